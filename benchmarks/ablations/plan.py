"""Which configs are compared with what. A further config is one more line in ABLATIONS."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from fedmbo_ray.config.overrides import read_config
from fedmbo_ray.config.schema import RunConfig
from fedmbo_ray.config.shipped import find_config
from fedmbo_ray.methods.hypergradients.direct import Direct

FULL, DIRECT, IMPLICIT, FROZEN, SINGLE = "as shipped", "direct", "phe_sum", "x frozen", "single-level"
TUNED = "tuned step size"
DEFAULT = "hyper_representation"  # the problem of the default config, which has no name of its own

GRID = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)  # of step sizes
TUNING_SEEDS = (100, 101, 102, 103)  # never in the table
UPPER, LOWER = "algorithm.step_size", "algorithm.lower_step_size"
Trained = Literal["x", "y", "both"]


class Arm(NamedTuple):
    """What an arm changes in its config, and the keys that all get one step size, the best of GRID on TUNING_SEEDS."""

    changes: tuple[str, ...] = ()
    tuned: tuple[str, ...] = ()
    tuned_for: str = ""  # a figure; if empty, the main one


class Ablation(NamedTuple):
    """A config, its figures with the sign of what is better (the first is the main one), and its arms."""

    config: str
    figures: dict[str, int]  # 1: more is better; -1: less is
    arms: Mapping[str, Arm]


def file_of(config: str) -> str | None:
    return None if config == DEFAULT else config


def shipped(config: str, *changes: str) -> RunConfig:
    file = file_of(config)
    return read_config(None if file is None else find_config(file), list(changes))


def ablation(config: str, figures: dict[str, int], steps: int, trains: Trained, **more: Arm) -> Ablation:
    """The usual arms of a shipped double loop.

    Args:
        config: the name of a shipped config.
        figures: see Ablation.
        steps: how many steps ordinary training takes in a round, as many as the config has communications.
        trains: what ordinary training trains; the rest stays where it starts. "x" is for minimax problems, whose y is
            to make things worse; "y" is for problems whose x is a hyperparameter.
        more: further arms, or others in the place of the usual ones.
    """
    run = shipped(config)
    estimator = run.algorithm.hypergradient
    batch, weight = estimator.batch_size, 1.0 if trains == "x" else run.data.validation
    if isinstance(estimator, Direct):  # the implicit term is what can be added
        term = {IMPLICIT: Arm((f"algorithm.hypergradient={{name: phe_sum, terms: 5, batch_size: {batch}}}",), (UPPER,))}
    else:
        term = {DIRECT: Arm((f"algorithm.hypergradient={{name: direct, batch_size: {batch}}}",))}
    arms = {FULL: Arm(), **term, FROZEN: Arm(("algorithm.outer=frozen",))}
    return Ablation(config, figures, {**arms, SINGLE: single_level(steps, batch, weight, trains), **more})


def larger(config: str, figures: dict[str, int], **more: Arm) -> Ablation:
    """A shipped double loop on larger data: as it is, without the implicit term, and with x frozen."""
    batch = shipped(config).algorithm.hypergradient.batch_size
    without = Arm((f"algorithm.hypergradient={{name: direct, batch_size: {batch}}}",))
    return Ablation(config, figures, {FULL: Arm(), DIRECT: without, FROZEN: Arm(("algorithm.outer=frozen",)), **more})


def single_level(steps: int, batch: int, weight: float, trains: Trained, tuned_for: str = "") -> Arm:
    algorithm = f"{{name: single_level, steps: {steps}, batch_size: {batch}, upper_weight: {weight}}}"
    moving = {"x": (UPPER,), "y": (LOWER,), "both": (UPPER, LOWER)}[trains]
    resting = tuple(f"{key}=0" for key in (UPPER, LOWER) if key not in moving)
    return Arm((f"algorithm={algorithm}", *resting), moving, tuned_for)


def frozen_at(*penalties: float) -> dict[str, Arm]:
    return {f"x frozen at {each}": Arm(("algorithm.outer=frozen", f"problem.initial={each}")) for each in penalties}


ALPHA_TUNED = {TUNED: Arm((), (UPPER,))}
# The step size with the smallest gap is one at which training hardly converges.
FOR_ACCURACY = {f"{SINGLE}, for accuracy": single_level(36, 64, 0.3, "y", "test_accuracy")}
# Without risk, x takes steps of plain SGD. They do not depend on y, so that one lower step is enough: three
# communications in a round instead of five.
RISK_NEUTRAL = ALPHA_TUNED | {SINGLE: Arm(("problem.risk=0", "algorithm.lower.steps=1", "rounds=500"), (UPPER,))}

# Every client has a y of its own; v stays at 0 where its step size is (nearly) 0. Ordinary training has one y for all.
PERSONAL = {
    FULL: Arm(),
    DIRECT: Arm(("algorithm.system_step_size=1e-12",)),
    FROZEN: Arm(("algorithm.step_size=1e-12",)),
    "one classifier": Arm(("algorithm=fedbio",)),
    SINGLE: single_level(1, 8, 0.5, "both"),
}

ABLATIONS = (
    ablation("hyper_representation", {"test_accuracy": 1, "test_loss": -1}, 11, "both", **ALPHA_TUNED),
    ablation("ridge_head", {"test_r2": 1}, 26, "both", **ALPHA_TUNED),
    ablation("hyper_cleaning", {"test_accuracy": 1, "test_loss": -1, "cleaning_auc": 1}, 16, "y"),
    ablation("loss_tuning", {"tail_accuracy": 1, "test_accuracy": 1}, 36, "y"),
    ablation("regularization", {"test_loss": -1, "test_accuracy": 1}, 11, "y", **frozen_at(0.001, 0.0001)),
    ablation("fair_reweighting", {"odds_gap": -1, "test_accuracy": 1}, 36, "y", **FOR_ACCURACY),
    ablation("risk_averse", {"test_risk": -1}, 5, "y", **RISK_NEUTRAL),
    ablation("robust_clients", {"worst_class_accuracy": 1, "test_accuracy": 1}, 6, "x", **ALPHA_TUNED),
    ablation("auc", {"test_auc": 1, "test_loss": -1}, 3, "x", **ALPHA_TUNED),
    Ablation("personal_heads", {"test_loss": -1, "test_accuracy": 1}, PERSONAL),
    larger("hyper_cleaning_exercises", {"test_accuracy": 1, "test_loss": -1, "cleaning_auc": 1}),
    larger("regularization_fars", {"test_loss": -1, "test_accuracy": 1}, **frozen_at(0.003)),
    larger("fair_reweighting_adult", {"odds_gap": -1, "test_accuracy": 1}),
    larger("risk_averse_fars", {"test_risk": -1}),
)
