"""What a run needs at least of a machine's memory, so that absurd sizes are refused before any is taken."""

import numpy as np
import torch

from fedmbo_ray.config.schema import RunConfig
from fedmbo_ray.core.cards import card_of
from fedmbo_ray.core.components import parts_of
from fedmbo_ray.core.memory import require_memory
from fedmbo_ray.core.rng import draw_seeds, stream
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.problems.base import Task

SLOT, BLOCK = 16, 400  # bytes that are kept for each slot of a cohort (its client and its seed) and for each block


def require_clients(config: RunConfig) -> None:
    """Raise a ConfigError if there is no room for a cohort's numbers alone."""
    m, n = config.clients.num_clients, config.clients.cohort_size
    require_memory(n * SLOT + n / config.clients.block_size * BLOCK, "clients", "cohort_size")
    if not config.clients.replace and n > m / 50:  # numpy then shuffles all clients
        require_memory(8 * m, "clients", "num_clients")


def require_batches(config: RunConfig, task: Task) -> None:
    """Raise a ConfigError if there is no room for the samples that the clients of one block draw, or for their y."""
    one = sample_bytes(task)
    slots = min(config.clients.block_size, config.clients.cohort_size)
    for path, part in parts_of(config.algorithm, "algorithm"):
        size = getattr(part, "batch_size", None) or 1
        require_memory(slots * size * one, *path, "batch_size")
    require_memory(config.record.loss_samples * one if task.data.num_samples else 0, "record", "loss_samples")
    card = card_of(config.algorithm)
    if card is not None and card.personal:
        _, y = task.problem.init(stream(0, "size"))
        require_memory(config.clients.num_clients * y.nbytes, "clients", "num_clients")


def sample_bytes(task: Task) -> int:
    """The memory of one sample, as a client draws it."""
    seeds = draw_seeds(stream(0, "size"), 1)
    drawn = task.data.draw(np.zeros(1, dtype=np.int64), seeds, Draw("train", 1), torch.device("cpu"))
    return sum(field.nbytes for field in drawn)
