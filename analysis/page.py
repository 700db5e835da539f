"""The report as one page of HTML that needs nothing else: what was run, what holds, figures, errata."""

import base64
import html
import re
import time
from pathlib import Path

from fedmbo_ray.analysis.claims import Claim
from fedmbo_ray.analysis.conclusions import Conclusion

ERRATA = Path(__file__).parent / "errata.md"

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
.open, .compared { color: #666; } nav a { margin-right: 1rem; }
"""


def page(conclusions: list[Conclusion], figures: Path) -> str:
    """The whole page; figures, a folder for each study, are embedded."""
    names = [each.study for each in conclusions]
    links = "".join(f'<a href="#{name}">{name}</a>' for name in [*names, "errata"])
    parts = [
        "<h1>Federated bilevel optimization: what was run and what came out</h1>",
        f"<nav>{links}</nav>",
        overview(conclusions),
        *(section(each, figures / each.study) for each in conclusions),
        errata(),
        f"<p><small>Made {time.strftime('%Y-%m-%d')} by <code>fedmbo report</code>.</small></p>",
    ]
    head = (
        f'<meta charset="utf-8"><title>fedmbo_ray: studies</title><link rel="icon" href="data:,"><style>{STYLE}</style>'
    )
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>'


def overview(conclusions: list[Conclusion]) -> str:
    rows = []
    for each in conclusions:
        counts = {status: sum(claim.status == status for claim in each.claims) for status in ("holds", "fails", "open")}
        said = ", ".join(f"{n} {status if n == 1 else status.rstrip('s')}" for status, n in counts.items() if n)
        where = [f"<code>{each.commit[:7]}</code>", each.machine, each.versions]
        link = f'<a href="#{each.study}">{each.study}</a>'
        rows.append([link, each.scale, marked(each.status), said, str(each.seeds), *where])
    columns = ["study", "scale", "verdict", "claims", "seeds", "commit", "machine", "versions"]
    explained = (
        "<p>The verdict is about what this software certifies: a study has <b>passed</b> if everything that it "
        "certifies holds, and is <b>open</b> if too little was run to tell. What the paper reports from its own "
        "runs is tested, too, and shown whether or not it holds, without a part in the verdict; a study of nothing "
        "else is only <b>compared</b>.</p>"
    )
    return explained + table(columns, rows)


def section(each: Conclusion, figures: Path) -> str:
    parts = [f'<h2 id="{each.study}">{each.study}: {marked(each.status)}</h2>', f"<p>{html.escape(each.question)}</p>"]
    for name, caption in each.captions.items():
        parts.append(picture((figures / f"{name}.png").read_bytes(), caption))
    for columns, rows in each.tables:
        parts.append(table(columns, [[html.escape(cell) for cell in row] for row in rows]))
    certified = [claim for claim in each.claims if claim.certified]
    seen = [claim for claim in each.claims if not claim.certified]
    if certified:
        parts.append("<h3>Certified</h3>" + claims_table(certified))
    if seen:
        heading = "Compared seed by seed" if each.study == "methods" else "As in the paper?"
        parts.append(f"<h3>{heading}</h3>" + claims_table(seen))
    runs = ", ".join(f"{name} ({points} points)" for name, points in each.sweeps.items())
    parts.append(f"<p>Run again: <code>{html.escape(each.command)}</code>. Sweeps: {runs}.</p>")
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
