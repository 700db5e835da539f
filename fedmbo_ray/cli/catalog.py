"""python -m fedmbo_ray.catalog: every problem, partition, solver, estimator and method that a config can name."""

import inspect
import json
import os
import sys
from typing import Any, NamedTuple

from pydantic import TypeAdapter
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedmbo_ray.algorithms import ALGORITHMS
from fedmbo_ray.cards import STATUS, Card, Cost
from fedmbo_ray.command import Parser, complain
from fedmbo_ray.hypergradients import HYPERGRADIENTS
from fedmbo_ray.lower import LOWER
from fedmbo_ray.outer import OUTER
from fedmbo_ray.partitions import PARTITIONS
from fedmbo_ray.problems import PROBLEMS
from fedmbo_ray.registry import ConfigError, Registry, choices, component_of
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
COSTS = ("communications", "floats down", "floats up")
NARROW, WIDE = 100, 140  # columns from which a table has room for papers, and for all costs
PARTICIPATION = {"partial": "n of m", "half": "all, and n", "full": "all", "one": "one"}
LEGEND = """
Costs are per round (of a part: per call) and per participating client; x has p floats, y has q. T steps below,
N Neumann terms, Q steps on a linear system; random: D uniform on {0, …, N−1} (D_max, D_mean over a cohort's columns),
R counted as it comes; a lone 1 down is ℓ. Not included: momenta in the first round, and 1 communication whenever
`smoothness: auto` measures. "non-iid": whether it stops at the right point when clients differ (drift: off by the order
of its local steps).
"""
CHECKED = "status: " + "; ".join(f"{word}, {meaning}" for word, meaning in STATUS.items())
HELP = """
Examples:
  python -m fedmbo_ray.catalog                   every name
  python -m fedmbo_ray.catalog algorithm.lower   every name of a kind
  python -m fedmbo_ray.catalog fednest           all about one
  python -m fedmbo_ray.catalog --json            all about everything
"""


class Entry(NamedTuple):
    """One name of one kind, as the catalogue shows it; None where there is nothing to say."""

    kind: str
    name: str
    summary: str
    description: str
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
        return Entry(kind, name, "", "", None, str(error), None, None, None, None, None, {}, package)
    card: Card | None = getattr(cls, "card", None)
    cost = card.cost if card is not None and card.cost is not None else Cost("", "", "")
    return Entry(
        kind=kind,
        name=name,
        summary=(inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " "),
        description=inspect.getdoc(cls) or "",
        paper=card.paper if card else None,
        status=card.status if card else None,
        communications=cost.communications or None,
        floats_down=cost.down or None,
        floats_up=cost.up or None,
        participation=card.participation if card is not None and card.cost is not None else None,
        heterogeneity=card.heterogeneity if card is not None and card.cost is not None else None,
        parameters=parameters(cls),
        package=package,
    )


def parameters(cls: Any) -> dict[str, Any]:
    """The default of every parameter as a config would give it; "required" where there is none."""
    found: dict[str, Any] = {}
    for name, field in cls.__pydantic_fields__.items():
        default = field.get_default(call_default_factory=True, validated_data={})
        component = component_of(field)
        if field.is_required():
            found[name] = "required"
        elif component is not None and component.registry.holds(default):
            found[name] = component.dump(default)
        else:
            found[name] = TypeAdapter(type(default)).dump_python(default, mode="json")
    return found


def tables(found: list[Entry], width: int) -> list[Table]:
    """One for each kind; narrow ones leave the floats to the details."""
    made = []
    for kind in dict.fromkeys(each.kind for each in found):
        rows = [each for each in found if each.kind == kind]
        costs = COSTS if width >= WIDE else COSTS[:1]
        columns = (*costs, "clients", "non-iid") if any(each.communications for each in rows) else ("what it is",)
        columns += ("paper",) if width >= NARROW and any(each.paper for each in rows) else ()
        columns += ("status",) if any(each.status for each in rows) else ()
        table = Table(title=kind, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("name", no_wrap=True)
        for column in columns:
            table.add_column(column, overflow="fold", no_wrap=column in ("communications", "clients", "non-iid"))
        for each in rows:
            cells = facts(each)
            table.add_row(each.name, *(escape(cells[column]) for column in columns))
        made.append(table)
    return made


def facts(each: Entry) -> dict[str, str]:
    """What a table shows of an entry, by column."""
    costs = (each.communications or "", each.floats_down or "", each.floats_up or "")
    if each.name == "double_loop":
        costs = ("that of its parts", "", "")
    return {
        **dict(zip(COSTS, (cost.replace("*", "·") for cost in costs), strict=True)),
        "clients": PARTICIPATION[each.participation] if each.participation else "",
        "non-iid": each.heterogeneity or "",
        "what it is": each.summary,
        "paper": each.paper or "",
        "status": each.status or "",
    }


def details(each: Entry) -> str:
    """All about one entry, as text."""
    lines = [f"{each.kind}: {each.name}", ""]
    lines += [each.description, ""] if each.description else []
    lines += [f"paper: {each.paper}"] if each.paper else []
    lines += [f"status: {STATUS.get(each.status, each.status)}"] if each.status else []
    known = facts(each)
    lines += [f"{column}: {known[column]}" for column in (*COSTS, "clients", "non-iid") if known[column]]
    lines += [f"package: {each.package}"] if each.package != "fedmbo_ray" else []
    lines += ["", "parameters and their defaults:"] if each.parameters else []
    lines += [f"  {name}: {_short(value)}" for name, value in each.parameters.items()]
    return "\n".join(lines)


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value).replace('"', "")


def chosen(names: list[str]) -> list[Entry]:
    """The entries of these names or kinds; an unknown one is answered with the nearest known ones."""
    everything = entries()
    known = sorted({each.name for each in everything}) + list(KINDS)
    for name in names:
        if name not in known:
            raise ConfigError(f"nothing is called {name!r}; {choices(name, known)}")
    return [each for each in everything if not names or each.name in names or each.kind in names]


def show(found: list[Entry], names: list[str]) -> None:
    """Tables of kinds, or all about the entries that were asked for by name."""
    if any(name not in KINDS for name in names):
        print("\n\n".join(details(each) for each in found))
        return
    console = Console(width=None if sys.stdout.isatty() else 160)
    for table in tables(found, console.width):
        console.print(table)
    console.print(f"{LEGEND.strip()} {CHECKED}.\nAll about one: python -m fedmbo_ray.catalog NAME", highlight=False)


def main(words: list[str] | None = None) -> int:
    parser = Parser("fedmbo_ray.catalog", "Problems, partitions, solvers, estimators, methods: costs and papers.", HELP)
    parser.add_argument("names", nargs="*", metavar="NAME | KIND", help="show all about these entries, or these kinds")
    parser.add_argument("--json", action="store_true", help="print the entries as JSON")
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # for terminals without these letters
    try:
        args = parser.parse_args(sys.argv[1:] if words is None else words)
        found = chosen(args.names)
        if args.json:
            print(json.dumps([each._asdict() for each in found], indent=1))
        else:
            show(found, args.names)
        sys.stdout.flush()
    except ConfigError as error:
        return complain(error, 2)
    except BrokenPipeError:  # whoever reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
