"""fedmbo report: all studies in MLflow, on one self-contained page."""

import sys
from pathlib import Path

from fedmbo_ray.cli.command import Parser, guarded
from fedmbo_ray.core.errors import RunFailed
from fedmbo_ray.sweeps.scales import SCALES
from fedmbo_ray.tracking.connection import mlflow_at_hand, require_file, tracking_uri

HELP = """
MLflow is at $MLFLOW_TRACKING_URI, or in mlflow.db in the working folder. Studies from an earlier report in the same
folder are kept.

Examples:
  fedmbo report
  fedmbo report --scale standard --out analysis/results
"""


def main(words: list[str] | None = None) -> int:
    parser = Parser("fedmbo_ray.report", "Write a report on all studies in MLflow: one self-contained page.", HELP)
    parser.add_argument("--scale", choices=SCALES, help="the scale of the studies (default: the newest of any scale)")
    parser.add_argument("--out", type=Path, default=Path("report"), help="the report's folder (default: report)")

    def work() -> int:
        args, uri = parser.parse_args(words), tracking_uri()
        require_file(uri)
        print(f"reading {uri}", file=sys.stderr, flush=True)  # MLflow and matplotlib take seconds to import
        with mlflow_at_hand():
            made = make(uri, args.scale, args.out)
        print(f"wrote {args.out / 'report.html'}: {made}")
        return 0

    return guarded(work, lambda: "")


def make(uri: str, scale: str | None, out: Path) -> str:
    """Write the report; returns which studies it has, and their verdicts."""
    from mlflow.exceptions import MlflowException

    from fedmbo_ray.analysis import report
    from fedmbo_ray.analysis.mlflow_reader import Store

    try:
        found = report.make(Store(uri), scale, out)
    except MlflowException as error:
        raise RunFailed(f"MLflow at {uri} can't be read: {error}") from None
    return ", ".join(f"{each.study} {each.status}" for each in found)
