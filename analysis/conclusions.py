"""python -m analysis.conclusions STUDY ...: what came out of studies that MLflow has, with figures and a verdict."""

import argparse
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

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
from analysis.claims import Claim, verdict
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


def name_of(figure: ModuleType) -> str:
    return figure.__name__.rpartition(".")[2]


class Conclusion(NamedTuple):
    """What a study says."""

    study: Study
    claims: list[Claim]
    captions: dict[str, str]  # by figure

    @property
    def status(self) -> str:
        return verdict(self.claims)

    def text(self) -> str:
        """For a terminal."""
        lines = [f"  {claim.status:6} {claim.text}: {claim.measured}" for claim in self.claims]
        return "\n".join([f"{self.study.name} ({self.study.scale}): {self.status}", *lines])

    def note(self, command: str) -> str:
        """In Markdown, for MLflow's page."""
        rows = [f"| {claim.status} | {claim.text} | {claim.rule} | {claim.measured} |" for claim in self.claims]
        rows = [row.replace("_", r"\_") for row in rows]  # ℓ_{f,0} is not in italics
        table = "\n".join(["| | claim | rule | measured |", "|---|---|---|---|", *rows])
        figures = ", ".join(f"`{name}.png`" for name in self.captions)
        return f"**{self.status}**\n\n{table}\n\nFigures (artifacts): {figures}\n\n`{command}`"

    def as_json(self) -> dict[str, Any]:
        return {
            "study": self.study.name,
            "scale": self.study.scale,
            "status": self.status,
            "seeds": self.study.seeds,
            "claims": [claim._asdict() for claim in self.claims],
            "captions": self.captions,
        }


def conclude(uri: str, name: str, identity: str, folder: Path) -> Conclusion:
    """Judge a study and draw its figures into a folder, those whose sweeps were run."""
    study = Store(uri).study(name, identity)
    claims: list[Claim] = []
    captions: dict[str, str] = {}
    for figure in FIGURES[name]:
        if all(study.sweeps.get(sweep) for sweep in figure.SWEEPS):
            claims += figure.claims(study)
            save(figure.draw(study), folder, name_of(figure))
            captions[name_of(figure)] = figure.caption(study)
    conclusion = Conclusion(study, claims, captions)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "verdict.json").write_text(json.dumps(conclusion.as_json(), indent=1, ensure_ascii=False))
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
        print(conclude(store.uri, name, known[-1], args.out / name).text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
