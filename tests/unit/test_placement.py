"""How many actors fit a machine."""

from fedmbo_ray.backends.ray.placement import capacity


def test_a_fraction_of_a_gpu_does_not_span_two() -> None:
    assert capacity({"CPU": 100, "GPU": 2}, {"CPU": 1, "GPU": 0.18}) == 10  # five on each, not eleven in all
    assert capacity({"CPU": 100, "GPU": 2}, {"CPU": 1, "GPU": 0.5}) == 4
    assert capacity({"CPU": 3, "GPU": 2}, {"CPU": 1, "GPU": 0.5}) == 3
    assert capacity({"CPU": 3}, {"CPU": 1, "GPU": 0.5}) == 0
    assert capacity({"CPU": 2}, {"CPU": 0.1}) == 20
