"""python -m analysis.conclusions STUDY ...: what came out of studies that MLflow has, with figures and a verdict."""

import argparse
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from analysis import (
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
from analysis.claims import Claim, Table, verdict
from analysis.reading import Store, Study
from analysis.style import save

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
        rows = [f"| {claim.status} | {claim.text} | {claim.rule} | {claim.measured} |" for claim in self.claims]
        rows = [row.replace("_", r"\_") for row in rows]  # ℓ_{f,0} is not in italics
        table = "\n".join(["| | claim | rule | measured |", "|---|---|---|---|", *rows])
        figures = ", ".join(f"`{name}.png`" for name in self.captions)
        return f"**{self.status}**\n\n{table}\n\nFigures (artifacts): {figures}\n\n`{command}`"

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        fields = {**self._asdict(), "status": self.status, "claims": [claim._asdict() for claim in self.claims]}
        fields["tables"] = [table._asdict() for table in self.tables]
        (folder / VERDICT).write_text(json.dumps(fields, indent=1, ensure_ascii=False) + "\n")


def read(folder: Path) -> Conclusion:
    """What was concluded before, beside its figures."""
    fields = json.loads((folder / VERDICT).read_text())
    del fields["status"]
    fields["claims"] = [Claim(**claim) for claim in fields["claims"]]
    fields["tables"] = [Table(**table) for table in fields["tables"]]
    return Conclusion(**fields)


def conclude(study: Study, folder: Path) -> Conclusion:
    """Judge a study and draw its figures into a folder, those whose sweeps were run."""
    claims: list[Claim] = []
    captions: dict[str, str] = {}
    tables: list[Table] = []
    for figure in FIGURES[study.name]:
        if all(study.sweeps.get(sweep) for sweep in figure.SWEEPS):
            claims += figure.claims(study)
            save(figure.draw(study), folder, name_of(figure))
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


def tracking_uri() -> str:
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{Path('mlflow.db').absolute()}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis.conclusions", description=__doc__)
    parser.add_argument("names", nargs="+", choices=FIGURES, metavar="STUDY")
    parser.add_argument("--scale", help="of the studies; by default the newest of any")
    parser.add_argument("--out", type=Path, default=Path("figures"))
    args = parser.parse_args()
    store = Store(tracking_uri())
    for name in args.names:
        known = store.identities(name, args.scale)
        if not known:
            print(f"error: {store.uri} has no study {name!r}", file=sys.stderr)
            return 2
        print(conclude(store.study(name, known[-1]), args.out / name).text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
