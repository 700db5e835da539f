"""The report as one page of HTML that needs nothing else: what was run, what holds, figures, errata."""

import base64
import time
from pathlib import Path

from fedmbo_ray.analysis.claims import Claim
from fedmbo_ray.analysis.conclusions import Conclusion
from fedmbo_ray.core.markup import Html, joined, tag

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
    body = joined(
        tag("h1", "Federated bilevel optimization: what was run and what came out"),
        tag("nav", *(tag("a", name, href=f"#{name}") for name in [*names, "errata"])),
        overview(conclusions),
        *(section(each, figures / each.study) for each in conclusions),
        errata(),
        tag("p", tag("small", f"Made {time.strftime('%Y-%m-%d')} by ", tag("code", "fedmbo report"), ".")),
    )
    icon = tag("link", rel="icon", href="data:,")
    head = tag(
        "head", tag("meta", charset="utf-8"), tag("title", "fedmbo_ray: studies"), icon, tag("style", Html(STYLE))
    )
    return f"<!doctype html>{tag('html', head, tag('body', body), lang='en')}"


def overview(conclusions: list[Conclusion]) -> Html:
    rows = []
    for each in conclusions:
        counts = {status: sum(claim.status == status for claim in each.claims) for status in ("holds", "fails", "open")}
        said = ", ".join(f"{n} {status if n == 1 else status.rstrip('s')}" for status, n in counts.items() if n)
        where = [tag("code", each.commit[:7]), each.machine, each.versions]
        link = tag("a", each.study, href=f"#{each.study}")
        rows.append([link, each.scale, marked(each.status), said, str(each.seeds), *where])
    columns = ["study", "scale", "verdict", "claims", "seeds", "commit", "machine", "versions"]
    explained = Html(
        "<p>The verdict is about what this software certifies: a study has <b>passed</b> if everything that it "
        "certifies holds, and is <b>open</b> if too little was run to tell. What the paper reports from its own "
        "runs is tested, too, and shown whether or not it holds, without a part in the verdict; a study of nothing "
        "else is only <b>compared</b>.</p>"
    )
    return joined(explained, table(columns, rows))


def section(each: Conclusion, figures: Path) -> Html:
    parts = [tag("h2", f"{each.study}: ", marked(each.status), id=each.study), tag("p", each.question)]
    for name, caption in each.captions.items():
        parts.append(picture((figures / f"{name}.png").read_bytes(), caption))
    for columns, rows in each.tables:
        parts.append(table(columns, rows))
    certified = [claim for claim in each.claims if claim.certified]
    seen = [claim for claim in each.claims if not claim.certified]
    if certified:
        parts += [tag("h3", "Certified"), claims_table(certified)]
    if seen:
        heading = "Compared seed by seed" if each.study == "methods" else "As in the paper?"
        parts += [tag("h3", heading), claims_table(seen)]
    runs = ", ".join(f"{name} ({points} points)" for name, points in each.sweeps.items())
    parts.append(tag("p", "Run again: ", tag("code", each.command), f". Sweeps: {runs}."))
    return joined(*parts)


def picture(image: bytes, caption: str) -> Html:
    data, width = base64.b64encode(image).decode(), int.from_bytes(image[16:20])  # as the PNG's header has it
    shown = tag("img", alt=caption, width=f"{0.7 * width:.0f}", src=f"data:image/png;base64,{data}")
    return tag("figure", shown, tag("figcaption", caption))


def claims_table(claims: list[Claim]) -> Html:
    columns = ["", "claim", "rule", "measured"]
    return table(columns, [[marked(each.status), each.text, each.rule, each.measured] for each in claims])


def marked(status: str) -> Html:
    return tag("span", status, class_=status)


def table(columns: list[str], rows: list[list[str]]) -> Html:
    head = tag("tr", *(tag("th", column) for column in columns))
    body = [tag("tr", *(tag("td", cell) for cell in row)) for row in rows]
    return tag("table", tag("thead", head), tag("tbody", *body))


def errata() -> Html:
    """The paper's errors, and what is done about each."""
    lines = [line for line in ERRATA.read_text().splitlines() if line.startswith("| E")]
    rows: list[list[str]] = [[marked_up(cell.strip()) for cell in line.strip("|").split(" | ")] for line in lines]
    return joined(tag("h2", "Errata of the paper", id="errata"), table(["", "where", "what", "what is done"], rows))


def marked_up(cell: str) -> Html:
    """A cell whose parts between ` are code."""
    parts = cell.strip("| ").split("`")
    return joined(*(tag("code", part) if number % 2 else part for number, part in enumerate(parts)))
