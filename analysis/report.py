"""python -m analysis.report: all studies that MLflow has, on one self-contained page."""

import sys
from pathlib import Path

from analysis import case_study, clients, heterogeneity, participation
from analysis.conclusions import FIGURES, VERDICT, Conclusion, conclude, lacked, name_of, read
from analysis.page import page
from analysis.reading import Store, Study
from analysis.style import panels, save
from fedmbo_ray.checkpoints import write_atomically
from fedmbo_ray.command import SCALES, Parser, guarded
from fedmbo_ray.federation import RunFailed
from fedmbo_ray.registry import ConfigError
from fedmbo_ray.tracking.connection import tracking_uri

COLUMNS = (heterogeneity, clients, participation)

HELP = """
MLflow is the one that $MLFLOW_TRACKING_URI names, or mlflow.db here. Studies that only the folder has, from an earlier
report, stay in it.

Examples:
  python -m analysis.report
  python -m analysis.report --scale standard --out analysis/results
"""


def figure_2(studies: dict[str, Study], folder: Path) -> None:
    """The three case studies side by side, as the paper has them, if all are there."""
    if not all(name_of(column) in studies and not lacked(studies[name_of(column)], column) for column in COLUMNS):
        return
    figure, axes = panels(3, 2)
    for number, column in enumerate(COLUMNS):
        case_study.column(studies[name_of(column)], [axes[number], axes[number + 3]], column.label)
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
    if not found:
        scales = f"of scale {scale}" if scale else "in it"
        raise ConfigError(f"MLflow at {store.uri} has no study {scales}; run one with python -m fedmbo_ray.study")
    write_atomically(out / "report.html", page(found, figures).encode())
    write_atomically(out / "README.md", summary(found).encode())
    return found


def main(words: list[str] | None = None) -> int:
    parser = Parser("analysis.report", "All studies that MLflow has, on one self-contained page.", HELP)
    parser.add_argument("--scale", choices=SCALES, help="of the studies; by default the newest of any")
    parser.add_argument("--out", type=Path, default=Path("report"), help="the report's folder (default: report)")

    def work() -> int:
        args, uri = parser.parse_args(words), tracking_uri()
        store = Store(uri)
        from mlflow.exceptions import MlflowException

        try:
            found = make(store, args.scale, args.out)
        except MlflowException as error:
            raise RunFailed(f"MLflow at {uri} can't be read: {error}") from None
        print(f"wrote {args.out / 'report.html'}: {', '.join(f'{each.study} {each.status}' for each in found)}")
        return 0

    return guarded(work, lambda: "")


if __name__ == "__main__":
    sys.exit(main())
