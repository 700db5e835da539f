"""Results as tables and as a figure: `python -m benchmarks.report RESULTS.json` makes them again."""

import json
import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

BASE = {
    "one_step": "flower",
    "fedmbo": "fused by hand",
    "cnn": "in_process",
    "wide": "in_process",
    "fednest": "plain loop",
    "record": "products alone",
}
TITLES = {
    "one_step": "One step of SGD by 10 of 100 clients",
    "fedmbo": "FedMBO, m=100, n=10, S=64, T=N=5",
    "cnn": "The same with two convolutions",
    "wide": "The same with an MLP of width 2000",
    "fednest": "FedNest, 40 local SVRG steps",
    "record": "A record of FedMBO",
}
UNITS = dict.fromkeys(TITLES, "rounds") | {"record": "records"}
PANELS = 3  # side by side
COLOURS = {"ours": "#0072B2", "others": "#999999"}  # safe for colour-blind readers


def ours(name: str) -> bool:
    return name.startswith(("in_process", "ray"))


def tables(results: dict[str, Any]) -> list[Table]:
    compared = [table(results[part], part) for part in TITLES if part in results]
    return [*compared, *share_tables(results.get("record", {})), *growth_tables(results.get("growth", {}))]


def table(part: dict[str, Any], name: str) -> Table:
    arms, base = part["arms"], BASE[name]
    load = f"others used {part['foreign_cores']:.2f} cores, {part['stolen_cores']:.2f} were stolen"
    shown = Table(title=TITLES[name], caption=load)
    unit = UNITS[name]
    for column in ("", f"{unit}/s", f"x {base}", f"quartiles of ms/{unit[:-1]}", "test accuracy"):
        shown.add_column(column, justify="left" if not column else "right")
    for arm, entry in sorted(arms.items(), key=lambda item: item[1]["median_seconds"]):
        seconds = sorted(entry["seconds"])
        quarter = len(seconds) // 4
        ratio = f"{arms[base]['median_seconds'] / entry['median_seconds']:.2f}" if base in arms else "–"
        spread = f"{1000 * seconds[quarter]:.1f} – {1000 * seconds[-1 - quarter]:.1f}"
        figures = entry["figures"]
        accuracy = figures.get("test_accuracy")
        reached = "–" if accuracy is None else f"{100 * accuracy:.1f} % after {figures['rounds']}"
        shown.add_row(arm, f"{1 / entry['median_seconds']:.1f}", ratio, spread, reached)
    for arm, reason in part["missing"].items():
        shown.add_row(arm, "left out", "", reason, "")
    return shown


def share_tables(part: dict[str, Any]) -> list[Table]:
    if not part.get("shares"):
        return []
    table = Table(title="What records take of a run's time", caption="of each config the run with the largest share")
    for column in ("", "run", "every", "ms/round", "ms/record", "share"):
        table.add_column(column, justify="left" if column in ("", "run") else "right")
    for row in part["shares"]:
        times = [f"{1000 * row[key]:.1f}" for key in ("round_seconds", "record_seconds")]
        table.add_row(row["config"], row["run"], str(row["every"]), *times, f"{100 * row['share']:.1f} %")
    return [table]


def growth_tables(growth: dict[str, Any]) -> list[Table]:
    shown = []
    for curve, part in growth.items():
        table = Table(title=f"Growth in {curve}")
        for column in (curve, "rounds/s", "ms/round", "x the first", "MB"):
            table.add_column(column, justify="right")
        first = next(iter(part["arms"].values()))["median_seconds"]
        for value, entry in part["arms"].items():
            median = entry["median_seconds"]
            memory = f"{part['megabytes'][value]:.0f}"
            table.add_row(value, f"{1 / median:.1f}", f"{1000 * median:.1f}", f"{median / first:.2f}", memory)
        shown.append(table)
    return shown


def draw(results: dict[str, Any], path: Path) -> None:
    """Bars for the tasks, curves for the growth."""
    parts, curves = [part for part in TITLES if part in results], list(results.get("growth", {}))
    lines = [parts[start : start + PANELS] for start in range(0, len(parts), PANELS)]
    rows = len(lines) + (1 if curves else 0)
    figure = Figure(figsize=(13, 4.2 * max(rows, 1)), layout="constrained")
    grids = figure.subfigures(max(rows, 1), 1, squeeze=False)[:, 0]
    for grid, line_of_parts in zip(grids, lines, strict=False):
        for axes, part in zip(grid.subplots(1, len(line_of_parts), squeeze=False)[0], line_of_parts, strict=True):
            bars(axes, results[part]["arms"], part)
    if curves:
        for axes, curve in zip(grids[-1].subplots(1, len(curves), squeeze=False)[0], curves, strict=True):
            line(axes, results["growth"][curve], curve)
    figure.savefig(path, dpi=150)


def bars(axes: Any, arms: dict[str, Any], part: str) -> None:
    ordered = sorted(arms, key=lambda arm: -arms[arm]["median_seconds"])
    speeds = [1 / arms[arm]["median_seconds"] for arm in ordered]
    colours = [COLOURS["ours" if ours(arm) else "others"] for arm in ordered]
    axes.barh(ordered, speeds, color=colours)
    for row, speed in enumerate(speeds):
        axes.annotate(f" {speed:.3g}", (speed, row), va="center", fontsize=9)
    axes.set(title=TITLES[part], xlabel=f"{UNITS[part]} per second", xlim=(0, 1.15 * max(speeds)))
    axes.spines[["top", "right"]].set_visible(False)


def line(axes: Any, part: dict[str, Any], curve: str) -> None:
    values, medians = [int(value) for value in part["arms"]], [each["median_seconds"] for each in part["arms"].values()]
    if curve == "n":  # more clients are more work: what one of them costs is what matters
        shown, label = [1000 * median / n for n, median in zip(values, medians, strict=True)], "ms per client and round"
    else:
        shown, label = [1 / median for median in medians], "rounds per second"
    axes.plot(values, shown, "o-", color=COLOURS["ours"])
    axes.set(title=f"Growth in {curve}", xlabel=curve, ylabel=label, ylim=(0, 1.1 * max(shown)))
    if curve == "actors":
        axes.set_xticks(values)
    else:
        axes.set_xscale("log")
    axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    source = Path(sys.argv[1])
    kept = json.loads(source.read_text())
    draw(kept, source.with_name("speed.png"))
    Console().print(*tables(kept))
