"""python -m analysis.report [--scale SCALE] [--out DIR]: all studies that MLflow has, on one self-contained page."""

import argparse
import base64
import html
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from analysis import case_study, clients, heterogeneity, methods, participation
from analysis.claims import Claim
from analysis.conclusions import FIGURES, Conclusion, conclude, tracking_uri
from analysis.reading import Store
from analysis.style import panels, save

ERRATA = Path(__file__).parent.parent / "docs" / "errata.md"
COLUMNS = (heterogeneity, clients, participation)

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; } h2 { margin-top: 2.5rem; border-top: 1px solid #ddd; padding-top: 1rem; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; margin: .8rem 0; }
th, td { text-align: left; padding: .3rem .5rem; border-bottom: 1px solid #e5e5e5; vertical-align: top; }
th { background: #f6f6f6; }
code { background: #f3f3f3; padding: .1rem .3rem; font-size: .88em; overflow-wrap: anywhere; }
figure { margin: 1.2rem 0; } figure img { max-width: 100%; } figcaption { font-size: .9rem; color: #444; }
.holds, .passed { color: #00664b; font-weight: 600; } .fails, .failed { color: #a33c00; font-weight: 600; }
.open { color: #666; } nav a { margin-right: 1rem; }
"""


def page(conclusions: list[Conclusion], images: dict[str, bytes], questions: dict[str, str]) -> str:
    """The whole page; images are embedded."""
    names = [each.study.name for each in conclusions]
    links = "".join(f'<a href="#{name}">{name}</a>' for name in [*names, "errata"])
    parts = [
        "<h1>Federated bilevel optimization: what was run and what came out</h1>",
        f"<nav>{links}</nav>",
        overview(conclusions),
        *(section(each, images, questions.get(each.study.name, "")) for each in conclusions),
        errata(),
        f"<p><small>Made {time.strftime('%Y-%m-%d')} by <code>python -m analysis.report</code>.</small></p>",
    ]
    head = (
        f'<meta charset="utf-8"><title>fedmbo_ray: studies</title><link rel="icon" href="data:,"><style>{STYLE}</style>'
    )
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>'


def overview(conclusions: list[Conclusion]) -> str:
    rows = []
    for each in conclusions:
        counts = {status: sum(claim.status == status for claim in each.claims) for status in ("holds", "fails", "open")}
        said = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
        link = f'<a href="#{each.study.name}">{each.study.name}</a>'
        rows.append([link, each.study.scale, marked(each.status), said, str(each.study.seeds), *surroundings(each)])
    columns = ["study", "scale", "verdict", "claims", "seeds", "commit", "machine", "versions"]
    explained = (
        "<p>The verdict is about what this software certifies: a study has <b>passed</b> if everything that it "
        "certifies holds, and is <b>open</b> if too little was run to tell. What the paper reports from its own "
        "runs is tested, too, and shown whether or not it holds, without a part in the verdict.</p>"
    )
    return explained + table(columns, rows)


def surroundings(conclusion: Conclusion) -> list[str]:
    tags = conclusion.study.run.tags
    versions = ", ".join(f"{name} {tags.get(f'version.{name}', '?')}" for name in ("python", "torch", "ray", "mlflow"))
    return [f"<code>{tags.get('mlflow.source.git.commit', '?')[:10]}</code>", tags.get("machine", "?"), versions]


def section(each: Conclusion, images: dict[str, bytes], question: str) -> str:
    study = each.study
    parts = [f'<h2 id="{study.name}">{study.name}: {marked(each.status)}</h2>', f"<p>{html.escape(question)}</p>"]
    for name, caption in each.captions.items():
        parts.append(picture(images[f"{study.name}/{name}"], caption))
    if study.name == "methods" and study.sweeps.get("comparison"):
        columns, rows = methods.table(study)
        parts.append(table(columns, [[row.method, row.takes_part, *row.cells] for row in rows]))
    certified = [claim for claim in each.claims if claim.certified]
    seen = [claim for claim in each.claims if not claim.certified]
    if certified:
        parts.append("<h3>Certified</h3>" + claims_table(certified))
    if seen:
        heading = "Compared seed by seed" if study.name == "methods" else "As in the paper?"
        parts.append(f"<h3>{heading}</h3>" + claims_table(seen))
    runs = ", ".join(f"{name} ({len(trials)} points)" for name, trials in study.sweeps.items())
    parts.append(f"<p>Run again: <code>{html.escape(study.run.tags.get('command', ''))}</code>. Sweeps: {runs}.</p>")
    return "".join(parts)


def picture(image: bytes, caption: str) -> str:
    data, width = base64.b64encode(image).decode(), int.from_bytes(image[16:20])  # as the PNG's header has it
    said = html.escape(caption)
    shown = f'<img alt="{said}" width="{0.7 * width:.0f}" src="data:image/png;base64,{data}">'
    return f"<figure>{shown}<figcaption>{said}</figcaption></figure>"


def claims_table(claims: list[Claim]) -> str:
    return table(
        ["", "claim", "rule", "measured"],
        [[marked(each.status), *map(html.escape, (each.text, each.rule, each.measured))] for each in claims],
    )


def marked(status: str) -> str:
    return f'<span class="{status}">{status}</span>'


def table(columns: list[str], rows: list[list[str]]) -> str:
    head = "".join(f"<th>{column}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def errata() -> str:
    """The paper's errors, and what is done about each."""
    lines = [line for line in ERRATA.read_text().splitlines() if line.startswith("| E")]
    rows = [[marked_up(cell.strip()) for cell in line.strip("|").split(" | ")] for line in lines]
    return '<h2 id="errata">Errata of the paper</h2>' + table(["", "where", "what", "what is done"], rows)


def marked_up(cell: str) -> str:
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(cell.strip("| ")))


def figure_2(conclusions: list[Conclusion], folder: Path) -> bool:
    """The three case studies side by side, as the paper has them; False if one is missing."""
    studies = {each.study.name: each.study for each in conclusions}
    if not all(column.SWEEPS[0] in studies for column in COLUMNS):
        return False
    figure, axes = panels(3, 2)
    for number, column in enumerate(COLUMNS):
        case_study.column(studies[column.SWEEPS[0]], [axes[number], axes[number + 3]], column.label)
        axes[number + 3].legend(loc="lower right")
    save(figure, folder, "figure_2")
    return True


def summary(conclusions: list[Conclusion]) -> str:
    """A page in Markdown: figures, and how each was made."""
    parts = [
        "# Results",
        "",
        "| study | scale | verdict | seeds | commit | machine | command |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in conclusions:
        tags = each.study.run.tags
        cells = [each.study.name, each.study.scale, each.status, str(each.study.seeds)]
        cells += [
            tags.get("mlflow.source.git.commit", "?")[:10],
            tags.get("machine", "?"),
            f"`{tags.get('command', '')}`",
        ]
        parts.append(f"| {' | '.join(cells)} |")
    for each in conclusions:
        parts += ["", f"## {each.study.name}", ""]
        parts += [
            f"![{caption}](figures/{each.study.name}/{name}.png)\n\n{caption}\n"
            for name, caption in each.captions.items()
        ]
        if each.study.name == "methods" and each.study.sweeps.get("comparison"):
            columns, rows = methods.table(each.study)
            parts += [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
            parts += [f"| {' | '.join([row.method, row.takes_part, *row.cells])} |" for row in rows] + [""]
        parts += ["| | claim | rule | measured |", "|---|---|---|---|"]
        parts += [f"| {c.status} | {c.text} | {c.rule} | {c.measured} |" for c in each.claims]
    return "\n".join(parts) + "\n"


def make(uri: str, scale: str | None, out: Path) -> list[Conclusion]:
    """Write report.html, README.md, verdicts.json and figures into a folder; returns what was found."""
    store = Store(uri)
    known = {name: store.identities(name, scale) for name in FIGURES}
    found = [conclude(uri, name, each[-1], out / "figures" / name) for name, each in known.items() if each]
    images: dict[str, bytes] = {}
    for each in found:
        for name in each.captions:
            images[f"{each.study.name}/{name}"] = (out / "figures" / each.study.name / f"{name}.png").read_bytes()
    figure_2(found, out / "figures")
    questions = {each.study.name: each.study.run.tags.get("question", "") for each in found}
    (out / "report.html").write_text(page(found, images, questions))
    (out / "README.md").write_text(summary(found))
    verdicts: list[Any] = [each.as_json() for each in found]
    (out / "verdicts.json").write_text(json.dumps(verdicts, indent=1, ensure_ascii=False))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis.report", description=__doc__)
    parser.add_argument("--scale", help="of the studies; by default the newest of any")
    parser.add_argument("--out", type=Path, default=Path("report"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    found = make(tracking_uri(), args.scale, args.out)
    if not found:
        print(f"error: {tracking_uri()} has no study; run one with python -m fedmbo_ray.study", file=sys.stderr)
        return 2
    print(f"wrote {args.out / 'report.html'}: {', '.join(f'{each.study.name} {each.status}' for each in found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
