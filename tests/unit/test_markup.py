"""What comes from files and from MLflow is text on a page, never markup."""

import json
from pathlib import Path

import pytest

from fedmbo_ray.analysis.claims import Claim, Table
from fedmbo_ray.analysis.conclusions import Conclusion, read
from fedmbo_ray.analysis.page import page
from fedmbo_ray.analysis.report import summary
from fedmbo_ray.core.errors import FolderDamaged
from fedmbo_ray.core.markup import Html, code_markdown, joined, plain_markdown, tag
from fedmbo_ray.runs.profile import Profile
from fedmbo_ray.sweeps.ranking import Standing
from fedmbo_ray.tracking.metadata import Pages, ranking_rows, sweep_note

EVIL = "<script>alert(1)</script>\"'|`[x](javascript:alert(1))"
PNG = bytes(32)


def evil() -> Conclusion:
    """A conclusion with a script in every field."""
    claim = Claim(EVIL, EVIL, EVIL, EVIL)  # type: ignore[arg-type]
    words = dict.fromkeys(("study", "scale", "question", "command", "commit", "machine", "versions"), EVIL)
    return Conclusion(
        **words, seeds=1, sweeps={EVIL: 1}, claims=[claim], captions={"a": EVIL}, tables=[Table([EVIL], [[EVIL]])]
    )


def test_markup_and_text() -> None:
    assert tag("p", "<b>", Html("<i>x</i>"), class_='"') == '<p class="&quot;">&lt;b&gt;<i>x</i></p>'
    assert joined("a<b", tag("img", src="x")) == 'a&lt;b<img src="x">'


def test_no_field_of_a_report_is_markup(tmp_path: Path) -> None:
    study = evil()._replace(study="theory")
    (tmp_path / "theory").mkdir()
    (tmp_path / "theory" / "a.png").write_bytes(PNG)
    shown = page([study], tmp_path)
    assert "<script" not in shown
    assert shown.count("&lt;script&gt;") >= 14
    assert "<script" not in page([evil()._replace(captions={})], tmp_path)
    outside_code = "".join(summary([study]).split(" `")[0::2])
    assert "<script" not in outside_code
    assert "](javascript" not in outside_code


def test_no_name_in_a_flame_graph_is_markup() -> None:
    shown = Profile({EVIL: {f"runs/loop.py:records;{EVIL}": 1.0}}, 1).flame_graph()
    assert shown.count("<script") == 1  # the page's own


def test_descriptions_in_mlflow_hold_no_markup() -> None:
    best = Standing("00000", {"a": EVIL}, EVIL, EVIL, 5, 0.1)
    note = sweep_note(Pages("1"), {"": "a", "00000": "b"}, [best], EVIL, EVIL, pictured=True)
    for text in (note, ranking_rows([best], EVIL), evil().note(EVIL)):
        outside_code = "".join(text.split("`")[::2])
        assert "<script" not in outside_code
        assert "](javascript" not in outside_code


def test_plain_markdown_stays_as_it_was_where_it_is_harmless() -> None:
    assert plain_markdown("p < 0.05, slope −0.5 [−0.6, −0.4]") == "p < 0.05, slope −0.5 [−0.6, −0.4]"
    assert plain_markdown("a|b\nc") == r"a\|b c"
    assert code_markdown("a`b") == "`aˋb`"


@pytest.mark.parametrize(
    "change", [{"machine": 5}, {"seeds": "many"}, {"claims": [1]}, {"study": "../x"}, {"tables": 3}]
)
def test_a_verdict_of_another_kind(change: dict[str, object], tmp_path: Path) -> None:
    whole = evil()._replace(study=tmp_path.name, claims=[Claim("a", "b", "c", "holds")], captions={})
    whole.write(tmp_path)
    assert read(tmp_path) == whole
    fields = json.loads((tmp_path / "verdict.json").read_text())
    (tmp_path / "verdict.json").write_text(json.dumps({**fields, **change}))
    with pytest.raises(FolderDamaged, match=r"verdict\.json is not what a report has written"):
        read(tmp_path)
