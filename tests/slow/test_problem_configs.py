"""The configs of problems end where their comments say."""

import pytest

from fedmbo_ray.api.experiment import run_experiment

ENDS = {
    "loss_tuning": {"test_accuracy": (0.90, 1), "tail_accuracy": (0.82, 1)},
    "regularization": {"test_loss": (0, 0.26), "test_accuracy": (0.94, 1)},
    "ridge_head": {"test_r2": (0.90, 0.96)},
    "fair_reweighting": {"odds_gap": (0, 0.1), "test_accuracy": (0.74, 1)},
    "robust_clients": {"test_accuracy": (0.94, 1), "worst_class_accuracy": (0.86, 1), "smallest_weight": (0.5, 1)},
    "auc": {"test_auc": (0.98, 1)},
    "risk_averse": {"test_accuracy": (0.95, 1), "test_loss_variance": (0, 0.22)},
    "hyper_cleaning": {"cleaning_auc": (0.89, 1)},
}


@pytest.mark.parametrize("config", ENDS)
def test_a_config_learns(config: str) -> None:
    run = run_experiment(config, progress=False)
    last = run.records.iloc[-1]
    for figure, (low, high) in ENDS[config].items():
        assert low <= last[figure] <= high, (figure, last[figure])
