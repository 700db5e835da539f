"""What the catalogue lists: every name of every kind that a config can use, and the shipped configs."""

import inspect
from typing import NamedTuple

from pydantic import TypeAdapter

from fedmbo_ray.config.shipped import comment, is_sweep, shipped_configs
from fedmbo_ray.core.cards import Cost, card_of
from fedmbo_ray.core.components import component_of
from fedmbo_ray.core.errors import ConfigError, choices
from fedmbo_ray.core.registry import Registry
from fedmbo_ray.core.settings import checked_fields
from fedmbo_ray.data.datasets import ABOUT, DATASETS, known, plugins
from fedmbo_ray.data.partitions import PARTITIONS
from fedmbo_ray.methods.algorithms import ALGORITHMS
from fedmbo_ray.methods.curvature import SMOOTHNESS
from fedmbo_ray.methods.hypergradients import HYPERGRADIENTS
from fedmbo_ray.methods.lower import LOWER
from fedmbo_ray.methods.outer import OUTER
from fedmbo_ray.methods.schedules import SCHEDULES
from fedmbo_ray.problems import PROBLEMS

# Where a config names each kind, and the registry of the kind.
KINDS: dict[str, Registry] = {
    "problem": PROBLEMS,
    "data.partition": PARTITIONS,
    "algorithm": ALGORITHMS,
    "algorithm.lower": LOWER,
    "algorithm.hypergradient": HYPERGRADIENTS,
    "algorithm.outer": OUTER,
    "algorithm.step_size": SCHEDULES,
    "algorithm.smoothness": SMOOTHNESS,
}
DATA = "data"  # data.name in a config
SHIPPED_KINDS = ("configs", "sweeps")  # shown only on request


class Entry(NamedTuple):
    """One name of one kind, as the catalogue shows it; unknown fields are None."""

    kind: str
    name: str
    summary: str
    description: str
    package: str
    parameters: dict[str, object]
    paper: str | None = None
    status: str | None = None
    communications: str | None = None
    floats_down: str | None = None
    floats_up: str | None = None
    participation: str | None = None
    heterogeneity: str | None = None
    assumes: str | None = None
    personal: bool | None = None
    licence: str | None = None
    source: str | None = None


def entries() -> list[Entry]:
    components = [entry(kind, name) for kind, registry in KINDS.items() for name in registry]
    return components + [data_set(name) if name in DATASETS else foreign_data_set(name) for name in known()]


def data_set(name: str) -> Entry:
    """One of this package."""
    said, about = inspect.getdoc(DATASETS[name]) or "", ABOUT[name]
    owners = f"{about.clients} clients own the rows" if about.clients else "the rows belong to nobody"
    description = f"{said}\n\n{about.train} rows to learn from, {about.test} to test on; {owners}"
    summary = said.split("\n\n")[0].replace("\n", " ")
    return Entry(DATA, name, summary, description, "fedmbo_ray", {}, licence=about.licence, source=about.source)


def foreign_data_set(name: str) -> Entry:
    """One of another package, whose function is not imported to say more."""
    point = plugins()[name]
    said = f"the function {point.value}"
    return Entry(DATA, name, said, said, point.dist.name if point.dist is not None else "", {})


def entry(kind: str, name: str) -> Entry:
    registry = KINDS[kind]
    point = registry.plugins.get(name)
    package = point.dist.name if point is not None and point.dist is not None else "fedmbo_ray"
    try:
        cls = registry[name]
    except ConfigError as error:  # a broken plug-in: still show the other entries
        return Entry(kind, name, "", "", package, {}, status=str(error))
    card = card_of(cls)
    cost = card.cost if card is not None and card.cost is not None else Cost("", "", "")
    return Entry(
        kind=kind,
        name=name,
        summary=(inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " "),
        description=inspect.getdoc(cls) or "",
        package=package,
        parameters=parameters(cls),
        paper=card.paper if card else None,
        status=card.status if card else None,
        communications=cost.communications or None,
        floats_down=cost.down or None,
        floats_up=cost.up or None,
        participation=card.participation if card is not None and card.cost is not None else None,
        heterogeneity=card.heterogeneity if card is not None and card.cost is not None else None,
        assumes=(card.assumes or None) if card else None,
        personal=card.personal if card is not None and card.cost is not None else None,
    )


def parameters(cls: type) -> dict[str, object]:
    """The default of every parameter as in a config; "required" if there is none."""
    found: dict[str, object] = {}
    for name, field in (checked_fields(cls) or {}).items():
        default = field.get_default(call_default_factory=True, validated_data={})
        component = component_of(field)
        if field.is_required():
            found[name] = "required"
        elif component is not None and component.registry.holds(default):
            found[name] = component.dump(default)
        else:
            found[name] = TypeAdapter(type(default)).dump_python(default, mode="json")
    return found


def shipped() -> list[Entry]:
    """The configs and sweeps that come with the package."""
    found = []
    for name, file in shipped_configs().items():
        said, sweep = comment(file), is_sweep(file)
        summary = said.split(". ")[0].removesuffix(".")
        use = f"{said}\n\nfile: {file}\nrun it: fedmbo {'tune' if sweep else 'run'} {name}"
        found.append(Entry(SHIPPED_KINDS[sweep], name, summary, use, "fedmbo_ray", {}))
    return sorted(found, key=lambda each: each.kind)


def chosen(names: list[str]) -> list[Entry]:
    """The entries with these names or kinds; an error suggests the nearest known name."""
    if not names:
        return entries()
    everything = entries() + shipped()
    words = [*sorted({each.name for each in everything}), *KINDS, DATA, *SHIPPED_KINDS]
    for name in names:
        if name not in words:
            raise ConfigError(f"nothing is called {name!r}; {choices(name, words)}")
    return [each for each in everything if each.name in names or each.kind in names]
