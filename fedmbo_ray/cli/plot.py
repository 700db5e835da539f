"""fedmbo plot: plot the records of runs."""

from pathlib import Path

from fedmbo_ray.cli.command import Parser, guarded
from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.io import write_atomically

KINDS = ("png", "svg", "pdf")


def main(words: list[str] | None = None) -> int:
    parser = Parser("fedmbo_ray.plot", "Plot the records of runs against communications.", "")
    parser.add_argument("folders", nargs="+", type=Path, metavar="RUN_FOLDER")
    parser.add_argument(
        "--out", type=Path, default=Path("curves.png"), help=f"the file, {', '.join(KINDS)} (default: curves.png)"
    )

    def work() -> int:
        args = parser.parse_args(words)
        kind = args.out.suffix.removeprefix(".")
        if kind not in KINDS:
            raise ConfigError(f"--out must end in one of {', '.join(KINDS)}, but got {args.out}")
        from fedmbo_ray.analysis.curves import draw, labels, read  # matplotlib takes seconds to import
        from fedmbo_ray.analysis.style import drawn

        runs = dict(zip(labels(args.folders), map(read, args.folders), strict=True))
        args.out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(args.out, drawn(draw(runs), kind))
        print(f"wrote {args.out}")
        return 0

    return guarded(work, lambda: "")
