"""HTML and Markdown out of texts that may come from anywhere: what is not markup is escaped, here and nowhere else."""

import html
import re


class Html(str):
    """Markup, to be used as it is; any other text is escaped when it becomes a part of a page."""


def tag(name: str, *parts: str, **attributes: str) -> Html:
    """An element with its parts; an attribute's name may end in _, as in class_."""
    given = "".join(f' {key.rstrip("_")}="{html.escape(str(value))}"' for key, value in attributes.items())
    end = "" if name in ("img", "meta", "link") else f"</{name}>"
    return Html(f"<{name}{given}>{joined(*parts)}{end}")


def joined(*parts: str) -> Html:
    """Parts one after the other."""
    return Html("".join(part if isinstance(part, Html) else html.escape(str(part)) for part in parts))


def plain_markdown(text: object) -> str:
    """A text as Markdown shows it as it is, in one line and also in a table: no HTML, no links, no new cells."""
    line = re.sub(r"([\\|`])", r"\\\1", " ".join(str(text).split()))
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", re.sub(r"\](?=[(\[:])", r"]\\", line))


def code_markdown(text: object) -> str:
    """A text as code, with another letter for the one that would end it."""
    return f"`{' '.join(str(text).split()).replace('`', 'ˋ')}`"
