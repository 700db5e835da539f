"""The configs of problems end where their comments say."""

import pytest

from fedmbo_ray.api.experiment import run_experiment
from fedmbo_ray.api.run import Run
from fedmbo_ray.core.errors import DownloadError

ENDS = {
    "loss_tuning": {"test_accuracy": (0.90, 1), "tail_accuracy": (0.82, 1)},
    "loss_tuning_fashion": {"test_accuracy": (0.78, 1), "tail_accuracy": (0.68, 1)},
    "regularization": {"test_loss": (0, 0.27), "test_accuracy": (0.92, 1)},
    "regularization_fars": {"test_loss": (0, 0.54), "test_accuracy": (0.76, 1)},
    "ridge_head": {"test_r2": (0.90, 0.96)},
    "fair_reweighting": {"odds_gap": (0, 0.1), "test_accuracy": (0.74, 1)},
    "robust_clients": {"test_accuracy": (0.94, 1), "worst_class_accuracy": (0.85, 1), "smallest_weight": (0.5, 1)},
    "fair_reweighting_adult": {"odds_gap": (0, 0.11), "test_accuracy": (0.83, 1)},
    "robust_clients_fashion": {"test_accuracy": (0.78, 1), "worst_class_accuracy": (0.5, 1), "smallest_weight": (0, 1)},
    "auc": {"test_auc": (0.98, 1)},
    "auc_adult": {"test_auc": (0.87, 1)},
    "risk_averse": {"test_accuracy": (0.95, 1), "test_loss_variance": (0, 0.22)},
    "personal_heads": {"test_accuracy": (0.97, 1), "worst_tenth_accuracy": (0.85, 1)},
    "risk_averse_fars": {"test_accuracy": (0.77, 1), "test_loss_variance": (0, 0.4)},
    "hyper_cleaning": {"cleaning_auc": (0.89, 1)},
    "hyper_cleaning_exercises": {"cleaning_auc": (0.73, 1), "test_accuracy": (0.55, 1)},
}


def finished(config: str) -> Run:
    """The run of a config; skips where its data can't be had."""
    try:
        return run_experiment(config, progress=False)
    except DownloadError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("config", ENDS)
def test_a_config_learns(config: str) -> None:
    last = finished(config).records.iloc[-1]
    for figure, (low, high) in ENDS[config].items():
        assert low <= last[figure] <= high, (figure, last[figure])


def test_useless_pixels_have_the_larger_penalties() -> None:
    penalties = finished("regularization").x[:-1].unflatten(0, (8, 32))
    real, useless = penalties[:, :8].flatten(), penalties[:, 8:].flatten()
    assert (useless.unsqueeze(1) > real).double().mean() > 0.85
