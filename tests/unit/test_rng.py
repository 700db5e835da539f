import numpy as np
import pytest
from scipy.stats import kstest

from fedmbo_ray.core.rng import bits, draw_seeds, fold, indices, normals, stream, uniforms


def test_streams_are_repeatable_and_differ_by_path() -> None:
    first = stream(3, "round", 1).random(4)
    assert (first == stream(3, "round", 1).random(4)).all()
    for other in [
        stream(3),
        stream(3, "round"),
        stream(3, "round", 1, 0),
        stream(3, "round", "1"),
        stream(4, "round", 1),
    ]:
        assert (first != other.random(4)).all()


def test_trailing_zeros_make_another_stream() -> None:
    assert stream(3, 0).random() != stream(3).random() != stream(3, 0, 0).random()


def test_a_slot_draws_the_same_whatever_block_it_is_in() -> None:
    seeds = draw_seeds(stream(0), 10)
    assert (bits(seeds, 5)[3:7] == bits(seeds[3:7], 5)).all()
    assert (fold(seeds, 2)[3:7] == fold(seeds[3:7], 2)).all()


@pytest.mark.parametrize(("draw", "law"), [(uniforms, "uniform"), (normals, "norm")])
def test_laws(draw, law: str) -> None:
    """Across seeds, along one seed's stream, and across folds: nothing to tell from the law (p > 0.001)."""
    seeds = draw_seeds(stream(1), 20_000)
    consecutive = np.arange(20_000, dtype=np.uint64)
    folded = fold(np.uint64([7]), consecutive)
    for sample in (draw(seeds, 1).ravel(), draw(seeds[:1], 20_000).ravel(), draw(folded, 1).ravel()):
        assert kstest(sample, law).pvalue > 0.001
        assert abs(np.corrcoef(sample[1:], sample[:-1])[0, 1]) < 4 / np.sqrt(len(sample))


def test_indices_cover_their_range_evenly() -> None:
    drawn = indices(draw_seeds(stream(2), 3), 60_000, np.array([1, 7, 480]))
    assert (drawn[0] == 0).all()
    for row, bound in ((drawn[1], 7), (drawn[2], 480)):
        counts = np.bincount(row, minlength=bound)
        assert len(counts) == bound
        chi_square = ((counts - 60_000 / bound) ** 2 / (60_000 / bound)).sum()
        assert abs(chi_square - bound) < 5 * np.sqrt(2 * bound)
