"""The fuzzer: some of its mutants, and that it notices what must not happen. `make fuzz` runs many."""

from pathlib import Path

import judge
import pytest
from judge import FAILURES, judged
from mutants import Mutant, mutant

NUMBERS = range(150)


@pytest.mark.parametrize("start", range(0, len(NUMBERS), 50))
def test_every_mutant_is_refused_in_one_line_or_runs(start: int, tmp_path: Path) -> None:
    for number in NUMBERS[start : start + 50]:
        verdict = judged(mutant(7, number), tmp_path)
        assert verdict.outcome not in FAILURES, f"python tests/fuzz --seed 7 --only {number}: {verdict.told}"


def test_a_mutant_is_the_same_whenever_it_is_made() -> None:
    assert [mutant(1, number) for number in range(20)] == [mutant(1, number) for number in range(20)]
    assert mutant(1, 0) != mutant(2, 0)


def test_it_notices_tracebacks_long_lines_and_long_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = Mutant(Path("tune_configs/quadratic.yaml").read_bytes(), [], sweep=False)
    assert judged(good, tmp_path).outcome == "ran, finished"
    assert judged(Mutant(b"rounds: -1", [], sweep=False), tmp_path).outcome == "refused"

    def failing(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(judge, "read", failing)
    assert judged(good, tmp_path).outcome == "traceback"
    monkeypatch.setattr(judge, "read", lambda *_: [None for _ in iter(int, 1)])
    monkeypatch.setattr(judge, "TO_READ", 0.05)
    assert judged(good, tmp_path).outcome == "slow to read"
    assert (
        judge.refusal(ValueError("two\nlines")).outcome
        == judge.refusal(ValueError("x" * 5000)).outcome
        == "not one line"
    )
