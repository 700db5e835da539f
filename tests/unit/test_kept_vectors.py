"""Which large vectors a client actor keeps: driver and actor always agree on it."""

import random

from fedmbo_ray.backends.ray.protocol import VERSIONS_KEPT, KeptVectors, SentVectors


def answered(kinds: tuple[int | None, ...], kept: KeptVectors[str]) -> list[str]:
    """What an actor finds for the vectors of a request."""
    kept.make_room(kinds)
    for kind in kinds:
        if kind is not None and kind < 0:
            kept.add(-kind, f"vector {-kind}")
        elif kind is not None:
            assert kept.use(kind) == f"vector {kind}"
    return [kept.kept[abs(kind)] for kind in kinds if kind is not None]


def test_both_sides_keep_the_same_and_all_of_one_job() -> None:
    chance, sent, kept = random.Random(0), SentVectors(), KeptVectors[str]()
    for _ in range(300):
        versions = [chance.choice([None, *range(1, 12)]) for _ in range(chance.randrange(8))]
        found = answered(sent.kinds(versions), kept)
        assert found == [f"vector {version}" for version in versions if version is not None]
        assert list(sent.kept) == list(kept.kept)


def test_few_are_kept_while_jobs_have_few() -> None:
    sent = SentVectors()
    for version in range(1, 20):
        assert sent.kinds([version, None]) == (-version, None)
    assert len(sent.kept) == VERSIONS_KEPT
