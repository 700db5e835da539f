"""A report: all studies that MLflow has, on one self-contained page."""

from pathlib import Path

from fedmbo_ray.analysis.conclusions import FIGURES, VERDICT, Conclusion, conclude, lacked, name_of, read
from fedmbo_ray.analysis.figures import case_study, clients, heterogeneity, participation
from fedmbo_ray.analysis.mlflow_reader import RecordedStudy, Store
from fedmbo_ray.analysis.page import page
from fedmbo_ray.analysis.style import panels, save, styled
from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.io import write_atomically
from fedmbo_ray.core.markup import code_markdown, plain_markdown

COLUMNS = (heterogeneity, clients, participation)


@styled
def figure_2(studies: dict[str, RecordedStudy], folder: Path) -> None:
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
        [*map(plain_markdown, (each.study, each.scale, each.status, each.seeds, each.commit, each.machine)), command]
        for each, command in ((each, code_markdown(each.command).replace("|", r"\|")) for each in conclusions)
    ]
    parts = ["# Results", "", *markdown(columns, rows)]
    for each in conclusions:
        parts += ["", f"## {each.study}", "", plain_markdown(each.question), ""]
        for name, caption in ((name, plain_markdown(caption)) for name, caption in each.captions.items()):
            parts.append(f"![{caption}](figures/{each.study}/{name}.png)\n\n{caption}\n")
        for columns, cells in each.tables:
            parts += [
                *markdown(list(map(plain_markdown, columns)), [list(map(plain_markdown, row)) for row in cells]),
                "",
            ]
        claims = [(claim.status, claim.text, claim.rule, claim.measured) for claim in each.claims]
        parts += markdown(["", "claim", "rule", "measured"], [list(map(plain_markdown, claim)) for claim in claims])
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
        raise ConfigError(f"MLflow at {store.uri} has no study {scales}; run one with fedmbo study")
    write_atomically(out / "report.html", page(found, figures).encode())
    write_atomically(out / "README.md", summary(found).encode())
    return found
