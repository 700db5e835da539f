"""python -m analysis.report [--scale SCALE] [--out DIR]: all studies that MLflow has, on one self-contained page.

Studies that only the folder has, from an earlier report, stay in it.
"""

import argparse
import sys
from pathlib import Path

from analysis import case_study, clients, heterogeneity, participation
from analysis.conclusions import FIGURES, VERDICT, Conclusion, conclude, read, tracking_uri
from analysis.page import page
from analysis.reading import Store, Study
from analysis.style import panels, save

COLUMNS = (heterogeneity, clients, participation)


def figure_2(studies: dict[str, Study], folder: Path) -> None:
    """The three case studies side by side, as the paper has them, if all are there."""
    if not all(column.SWEEPS[0] in studies for column in COLUMNS):
        return
    figure, axes = panels(3, 2)
    for number, column in enumerate(COLUMNS):
        case_study.column(studies[column.SWEEPS[0]], [axes[number], axes[number + 3]], column.label)
        axes[number + 3].legend(loc="lower right")
    save(figure, folder, "figure_2")


def summary(conclusions: list[Conclusion]) -> str:
    """A page in Markdown: figures, and how each was made."""
    columns = ["study", "scale", "verdict", "seeds", "commit", "machine", "command"]
    rows = [
        [each.study, each.scale, each.status, str(each.seeds), each.commit, each.machine, f"`{each.command}`"]
        for each in conclusions
    ]
    parts = ["# Results", "", *markdown(columns, rows)]
    for each in conclusions:
        parts += ["", f"## {each.study}", "", each.question, ""]
        for name, caption in each.captions.items():
            parts.append(f"![{caption}](figures/{each.study}/{name}.png)\n\n{caption}\n")
        for table in each.tables:
            parts += [*markdown(*table), ""]
        claims = [[claim.status, claim.text, claim.rule, claim.measured] for claim in each.claims]
        parts += markdown(["", "claim", "rule", "measured"], claims)
    return "\n".join(parts) + "\n"


def markdown(columns: list[str], rows: list[list[str]]) -> list[str]:
    """A table, line by line."""
    return [f"| {' | '.join(cells)} |" for cells in (columns, ["---"] * len(columns), *rows)]


def make(store: Store, scale: str | None, out: Path) -> list[Conclusion]:
    """Write report.html, README.md, and figures and verdicts by study into a folder; returns what it has."""
    figures = out / "figures"
    known = {name: store.identities(name, scale) for name in FIGURES}
    studies = {name: store.study(name, each[-1]) for name, each in known.items() if each}
    for name, study in studies.items():
        conclude(study, figures / name)
    figure_2(studies, figures)
    found = [read(figures / name) for name in FIGURES if (figures / name / VERDICT).exists()]
    out.mkdir(parents=True, exist_ok=True)
    (out / "report.html").write_text(page(found, figures))
    (out / "README.md").write_text(summary(found))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis.report", description=__doc__)
    parser.add_argument("--scale", help="of the studies; by default the newest of any")
    parser.add_argument("--out", type=Path, default=Path("report"))
    args = parser.parse_args()
    found = make(Store(tracking_uri()), args.scale, args.out)
    if not found:
        print(f"error: {tracking_uri()} has no study; run one with python -m fedmbo_ray.study", file=sys.stderr)
        return 2
    print(f"wrote {args.out / 'report.html'}: {', '.join(f'{each.study} {each.status}' for each in found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
