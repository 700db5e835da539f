"""What came out of a study that MLflow has: claims, figures and a verdict."""

import json
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from pydantic import TypeAdapter

from fedmbo_ray.analysis.claims import Claim, Table, verdict
from fedmbo_ray.analysis.figures import (
    clients,
    heterogeneity,
    horizon,
    inner,
    methods,
    mnist_speedup,
    neumann,
    pairs,
    participation,
    rounds,
    speedup,
    variance,
)
from fedmbo_ray.analysis.mlflow_reader import RecordedStudy
from fedmbo_ray.analysis.style import save, styled
from fedmbo_ray.core.errors import FolderDamaged
from fedmbo_ray.core.io import write_atomically
from fedmbo_ray.core.markup import code_markdown, plain_markdown

FIGURES: dict[str, list[ModuleType]] = {
    "linear_speedup": [variance, speedup, horizon, rounds, mnist_speedup],
    "heterogeneity": [heterogeneity],
    "clients": [clients],
    "participation": [participation],
    "estimators": [pairs],
    "methods": [methods],
    "theory": [neumann, inner],
}


VERDICT = "verdict.json"


def name_of(figure: ModuleType) -> str:
    return figure.__name__.rpartition(".")[2]


class Conclusion(NamedTuple):
    """What a study says, and where it was run: all that a report needs, besides the figures."""

    study: str
    scale: str
    seeds: int  # the most that any trial has
    question: str
    command: str
    commit: str
    machine: str
    versions: str
    sweeps: dict[str, int]  # how many points each has
    claims: list[Claim]
    captions: dict[str, str]  # by figure
    tables: list[Table]

    @property
    def status(self) -> str:
        return verdict(self.claims)

    def text(self) -> str:
        """For a terminal."""
        lines = [f"  {claim.status:6} {claim.text}: {claim.measured}" for claim in self.claims]
        return "\n".join([f"{self.study} ({self.scale}): {self.status}", *lines])

    def note(self, command: str) -> str:
        """In Markdown, for MLflow's page."""
        told = [(claim.status, claim.text, claim.rule, claim.measured) for claim in self.claims]
        rows = [f"| {' | '.join(map(plain_markdown, cells))} |" for cells in told]
        rows = [row.replace("_", r"\_") for row in rows]  # ℓ_{f,0} is not in italics
        table = "\n".join(["| | claim | rule | measured |", "|---|---|---|---|", *rows])
        figures = ", ".join(code_markdown(f"{name}.png") for name in self.captions)
        return f"**{self.status}**\n\n{table}\n\nFigures (artifacts): {figures}\n\n{code_markdown(command)}"

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        fields = {**self._asdict(), "status": self.status, "claims": [claim._asdict() for claim in self.claims]}
        fields["tables"] = [table._asdict() for table in self.tables]
        write_atomically(folder / VERDICT, f"{json.dumps(fields, indent=1, ensure_ascii=False)}\n".encode())


def read(folder: Path) -> Conclusion:
    """What was concluded before, beside its figures."""
    try:
        fields = json.loads((folder / VERDICT).read_bytes())
        del fields["status"]
        found = TypeAdapter(Conclusion).validate_python(fields)
        if folder.name not in (found.study, "figures") or any(name != Path(name).name for name in found.captions):
            raise ValueError("of another study, or with figures elsewhere")
        return found
    except (ValueError, KeyError, TypeError, RecursionError):
        raise FolderDamaged(
            f"{folder / VERDICT} is not what a report has written; without it, {folder} is left out"
        ) from None


def lacked(study: RecordedStudy, figure: ModuleType) -> str:
    """Why a figure can't be drawn, empty if it can."""
    endings = getattr(figure, "ENDINGS", ("finished",))
    return "; ".join(filter(None, (study.lacking(sweep, endings) for sweep in figure.SWEEPS)))


def conclude(study: RecordedStudy, folder: Path) -> Conclusion:
    """Judge a study and draw its figures into a folder, those whose sweeps were run to their end."""
    claims: list[Claim] = []
    captions: dict[str, str] = {}
    tables: list[Table] = []
    for figure in FIGURES[study.name]:
        lacking = lacked(study, figure)
        if lacking:
            claims.append(Claim(f"figure {name_of(figure)}", "all of its trials have finished", lacking, "open"))
        else:
            claims += figure.claims(study)
            save(styled(figure.draw)(study), folder, name_of(figure))
            captions[name_of(figure)] = figure.caption(study)
            tables += figure.tables(study) if hasattr(figure, "tables") else []
    tags, points = study.run.tags, {name: len(trials) for name, trials in study.sweeps.items()}
    conclusion = Conclusion(
        study.name,
        study.scale,
        study.seeds,
        tags.get("question", ""),
        tags.get("command", ""),
        tags.get("mlflow.source.git.commit", "?")[:10],
        tags.get("machine", "?"),
        ", ".join(f"{name} {tags.get(f'version.{name}', '?')}" for name in ("python", "torch", "ray", "mlflow")),
        points,
        claims,
        captions,
        tables,
    )
    conclusion.write(folder)
    return conclusion
