"""fedmbo catalog: every problem, data set, partition, solver, estimator and method that a config can name."""

import json
import os
import sys
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedmbo_ray.cli.command import Parser, guarded
from fedmbo_ray.core.cards import STATUS

if TYPE_CHECKING:
    from fedmbo_ray.cli.entries import Entry

COSTS = ("communications", "floats down", "floats up")
NARROW, WIDE = 100, 140  # columns from which a table has room for papers, and for all costs
PARTICIPATION = {"partial": "n of m", "half": "all, and n", "full": "all", "one": "one"}
LEGEND = """
Costs are per round (for a part: per call) and per participating client; x has p floats, y has q. T: lower steps;
N: Neumann terms; Q: steps on a linear system. Random: D, uniform on {0, …, N−1} (D_max, D_mean: over a cohort's
columns); R, counted during the run. A single 1 among the floats down is ℓ. Not included: momenta in the first round,
1 communication whenever `smoothness: auto` measures, and what a method assumes that clients know already.
"non-iid": whether it converges to the right point when clients differ (drift: the error is of the order of its local
steps).
"""
CHECKED = "Status:\n" + "\n".join(f"  {word:14} {meaning}" for word, meaning in STATUS.items())
HELP = """
Examples:
  fedmbo catalog                    every name
  fedmbo catalog algorithm.lower    every name of a kind
  fedmbo catalog fednest            the details of one entry
  fedmbo catalog configs sweeps     what comes with the package, for `fedmbo run` and `fedmbo tune`
  fedmbo catalog --json             the details of every entry
"""


def tables(found: "list[Entry]", width: int) -> list[Table]:
    """One table for each kind; narrow ones omit the floats."""
    made = []
    for kind in dict.fromkeys(each.kind for each in found):
        rows = [each for each in found if each.kind == kind]
        costs = COSTS if width >= WIDE else COSTS[:1]
        columns = (*costs, "clients", "non-iid") if any(each.communications for each in rows) else ("what it is",)
        columns += ("paper",) if width >= NARROW and any(each.paper for each in rows) else ()
        columns += ("status",) if any(each.status for each in rows) else ()
        columns += ("source", "licence") if width >= NARROW and any(each.source for each in rows) else ()
        table = Table(title=kind, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("name", no_wrap=True)
        for column in columns:
            table.add_column(column, overflow="fold", no_wrap=column in ("communications", "clients", "non-iid"))
        for each in rows:
            cells = facts(each)
            table.add_row(each.name, *(escape(cells[column]) for column in columns))
        assuming = [f"{each.name} assumes: {each.assumes}" for each in rows if each.assumes]
        table.caption, table.caption_justify = escape("\n".join(assuming)) or None, "left"
        made.append(table)
    return made


def facts(each: "Entry") -> dict[str, str]:
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
        "source": each.source or "",
        "licence": each.licence or "",
    }


def details(each: "Entry") -> str:
    """The details of one entry, as text."""
    lines = [f"{each.kind}: {each.name}", ""]
    lines += [each.description, ""] if each.description else []
    lines += [f"paper: {each.paper}"] if each.paper else []
    lines += [f"status: {STATUS.get(each.status, each.status)}"] if each.status else []
    lines += [f"source: {each.source}", f"licence: {each.licence}"] if each.source else []
    known = facts(each)
    lines += [f"{column}: {known[column]}" for column in (*COSTS, "clients", "non-iid") if known[column]]
    lines += ["lower problem: every client has its own"] if each.personal else []
    lines += [f"assumes: {each.assumes}"] if each.assumes else []
    lines += [f"package: {each.package}"] if each.package != "fedmbo_ray" else []
    lines += ["", "parameters and their defaults:"] if each.parameters else []
    lines += [f"  {name}: {_short(value)}" for name, value in each.parameters.items()]
    return "\n".join(lines)


def _short(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value).replace('"', "")


def show(found: "list[Entry]", by_name: bool) -> None:
    """Print tables of kinds, or the details of entries that were given by name."""
    if by_name:
        print("\n\n".join(details(each) for each in found))
        return
    console = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 160)
    for table in tables(found, console.width):
        console.print(table)
    if any(each.status for each in found):
        console.print(f"{LEGEND.strip()}\n{CHECKED}", highlight=False)
    console.print("Details of one entry: fedmbo catalog NAME", highlight=False)


def main(words: list[str] | None = None) -> int:
    parser = Parser("fedmbo_ray.catalog", "Problems, partitions, solvers, estimators, methods: costs and papers.", HELP)
    parser.add_argument("names", nargs="*", metavar="NAME | KIND", help="show these entries in detail, or these kinds")
    parser.add_argument("--json", action="store_true", help="print the entries as JSON")
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # for terminals that lack some characters

    def work() -> int:
        args = parser.parse_args(sys.argv[1:] if words is None else words)
        from fedmbo_ray.cli.entries import DATA, KINDS, SHIPPED_KINDS, chosen  # torch takes seconds to import

        found = chosen(args.names)
        try:
            if args.json:
                print(json.dumps([each._asdict() for each in found], indent=1))
            else:
                show(found, any(name not in (*KINDS, DATA, *SHIPPED_KINDS) for name in args.names))
            sys.stdout.flush()
        except BrokenPipeError:  # the reader has closed the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0

    return guarded(work, lambda: "")
