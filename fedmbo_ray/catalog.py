"""python -m fedmbo_ray.catalog: every problem, partition, solver, estimator and method that a config can name."""

import inspect
import json
import sys
from typing import Any, NamedTuple

from pydantic import TypeAdapter
from rich import box
from rich.console import Console
from rich.table import Table

from fedmbo_ray.algorithms import ALGORITHMS
from fedmbo_ray.cards import STATUS, Card, Cost
from fedmbo_ray.command import Parser, complain
from fedmbo_ray.hypergradients import HYPERGRADIENTS
from fedmbo_ray.lower import LOWER
from fedmbo_ray.outer import OUTER
from fedmbo_ray.partitions import PARTITIONS
from fedmbo_ray.problems import PROBLEMS
from fedmbo_ray.registry import ConfigError, Registry, choices
from fedmbo_ray.schedules import SCHEDULES
from fedmbo_ray.smoothness import SMOOTHNESS

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
COSTS = ("communications", "floats down", "floats up", "clients", "differ")
PARTICIPATION = {"partial": "n of m", "half": "n, at times all", "full": "all", "one": "a single one"}
LEGEND = (
    """
Costs are per round (of a component: per call) and per participating client; x has p floats, y has q. T steps below,
N Neumann terms, Q steps on a linear system; random: D uniform on {0, …, N−1} (D_max, D_mean over a cohort's columns),
R counted as it comes. "differ": whether it stops at the
right point when clients differ (drift: off by the order of its local steps). A lone 1 down is ℓ. Status:
"""
    + "; ".join(f"{word}: {meaning}" for word, meaning in STATUS.items())
    + """.
Details of one entry: python -m fedmbo_ray.catalog NAME; all as JSON: --json
"""
)


class Entry(NamedTuple):
    """One name of one kind, as the catalogue shows it; None where there is nothing to say."""

    kind: str
    name: str
    summary: str
    paper: str | None
    status: str | None
    communications: str | None
    floats_down: str | None
    floats_up: str | None
    participation: str | None
    heterogeneity: str | None
    parameters: dict[str, Any]
    package: str


def entries() -> list[Entry]:
    return [entry(kind, name) for kind, registry in KINDS.items() for name in registry]


def entry(kind: str, name: str) -> Entry:
    registry = KINDS[kind]
    point = registry.plugins.get(name)
    package = point.dist.name if point is not None and point.dist is not None else "fedmbo_ray"
    try:
        cls = registry[name]
    except ConfigError as error:  # another package's, and broken: the others are still worth showing
        return Entry(kind, name, "", None, str(error), None, None, None, None, None, {}, package)
    card: Card | None = getattr(cls, "card", None)
    cost = card.cost if card is not None and card.cost is not None else Cost("", "", "")
    methods = card is not None and card.cost is not None
    return Entry(
        kind=kind,
        name=name,
        summary=(inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " "),
        paper=card.paper if card else None,
        status=card.status if card else None,
        communications=cost.communications or None,
        floats_down=cost.down or None,
        floats_up=cost.up or None,
        participation=card.participation if card is not None and methods else None,
        heterogeneity=card.heterogeneity if card is not None and methods else None,
        parameters=parameters(cls),
        package=package,
    )


def parameters(cls: Any) -> dict[str, Any]:
    """The default of every parameter as a config would give it; "required" where there is none."""
    found: dict[str, Any] = {}
    adapter = TypeAdapter(cls)
    for name, field in cls.__pydantic_fields__.items():
        if field.is_required():
            found[name] = "required"
        else:
            found[name] = field.get_default(call_default_factory=True, validated_data={})
    complete = "required" not in found.values()
    return adapter.dump_python(cls(), mode="json") if complete else {key: _plain(value) for key, value in found.items()}


def _plain(value: Any) -> Any:
    if hasattr(value, "__pydantic_fields__"):
        return TypeAdapter(type(value)).dump_python(value, mode="json")
    return value


def tables(found: list[Entry]) -> list[Table]:
    made = []
    for kind in KINDS:
        rows = [each for each in found if each.kind == kind]
        costly = any(each.communications for each in rows)
        table = Table(title=kind, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("name", no_wrap=True)
        for column in COSTS if costly else ("what it is",):
            table.add_column(column)
        table.add_column("paper")
        table.add_column("status")
        for each in rows:
            table.add_row(each.name, *(_costs(each) if costly else [each.summary]), each.paper or "", each.status or "")
        made.append(table)
    return made


def _costs(each: Entry) -> list[str]:
    if each.communications is None:
        return ["the sum of its parts", "", "", "", ""] if each.kind == "algorithm" else [""] * 5
    formulas = [each.communications, each.floats_down or "", each.floats_up or ""]
    clients = PARTICIPATION[each.participation or "partial"]
    return [*(formula.replace("*", "·") for formula in formulas), clients, each.heterogeneity or ""]


def details(each: Entry) -> str:
    """All about one entry, as text."""
    cls = KINDS[each.kind][each.name]
    lines = [f"{each.kind}: {each.name}", "", inspect.getdoc(cls) or "", ""]
    lines += [f"paper: {each.paper}", f"status: {STATUS.get(each.status or '', each.status)}"] if each.paper else []
    if each.communications:
        words = ("communications", "floats down", "floats up", "clients", "right when clients differ")
        lines += [f"{word}: {value}" for word, value in zip(words, _costs(each), strict=True)]
    lines += [f"package: {each.package}"] if each.package != "fedmbo_ray" else []
    lines += ["", "parameters and their defaults:"] if each.parameters else []
    lines += [f"  {name}: {_short(value)}" for name, value in each.parameters.items()]
    return "\n".join(lines)


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value).replace('"', "")


def chosen(names: list[str]) -> list[Entry]:
    """The entries of these names; an unknown one is answered with the nearest known ones."""
    everything = entries()
    for name in names:
        if not any(each.name == name for each in everything):
            raise ConfigError(
                f"nothing is called {name!r}; {choices(name, sorted({each.name for each in everything}))}"
            )
    return [each for each in everything if not names or each.name in names]


def main(words: list[str] | None = None) -> int:
    parser = Parser(
        "fedmbo_ray.catalog", "Everything that a config can name, with its cost and where it comes from.", LEGEND
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="show all about these entries only")
    parser.add_argument("--json", action="store_true", help="print the entries as JSON")
    try:
        args = parser.parse_args(sys.argv[1:] if words is None else words)
        found = chosen(args.names)
    except ConfigError as error:
        return complain(error, 2)
    if args.json:
        print(json.dumps([each._asdict() for each in found], ensure_ascii=False, indent=1))
    elif args.names:
        print("\n\n".join(details(each) for each in found))
    else:
        console = Console(width=None if sys.stdout.isatty() else 160)
        for table in tables(found):
            console.print(table)
        console.print(LEGEND.strip(), highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
