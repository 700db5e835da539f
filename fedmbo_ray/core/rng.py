"""Where randomness comes from: named streams on the server, counter-based draws on the clients.

The server owns ``stream(seed, "round", k)``, so a run can be resumed from (k, state) alone. A client
draws from one 64-bit seed that the server sent; ``uniforms`` and ``normals`` turn a whole block of such
seeds into numbers at once, which one generator object per slot could not do fast enough.
"""

import hashlib

import numpy as np
from numpy.typing import ArrayLike, NDArray

Seeds = NDArray[np.uint64]
Floats = NDArray[np.float64]

_WEYL = np.uint64(0x9E3779B97F4A7C15)


def stream(seed: int, *path: str | int) -> np.random.Generator:
    """The generator named by `path` under `seed`; different paths give independent streams.

    Args:
        seed: of the run.
        path: words and numbers that say what the stream is for.

    Returns:
        A fresh numpy generator: the same one, whenever and wherever it is made.

    Example:
        >>> int(stream(0, "round", 3).integers(100)) == int(stream(0, "round", 3).integers(100))
        True
    """
    digest = hashlib.sha256(repr(path).encode()).digest()
    words = tuple(int(word) for word in np.frombuffer(digest, dtype=np.uint32))
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=words))


def draw_seeds(rng: np.random.Generator, count: int) -> Seeds:
    """`count` fresh 64-bit seeds, one for each slot of a communication."""
    return rng.bit_generator.random_raw(count)


def mix(z: Seeds) -> Seeds:
    """SplitMix64's finalizer: a bijection of the 64-bit integers whose output passes for random."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def fold(seeds: Seeds, index: ArrayLike) -> Seeds:
    """Seeds for purpose (or item) `index` of each given seed, independent of the given ones."""
    return mix(seeds ^ mix(np.atleast_1d(np.asarray(index, dtype=np.uint64)) + _WEYL))


def bits(seeds: Seeds, count: int) -> Seeds:
    """`count` random 64-bit words from each seed: SplitMix64 on the last axis."""
    steps = np.arange(1, count + 1, dtype=np.uint64) * _WEYL
    return mix(seeds[..., None] + steps)


def indices(seeds: Seeds, count: int, bounds: NDArray[np.int64]) -> NDArray[np.int64]:
    """`count` integers uniform on {0, …, bound − 1} from each seed (bias below bound/2³²)."""
    high = bits(seeds, count) >> np.uint64(32)
    return ((high * bounds.astype(np.uint64)[..., None]) >> np.uint64(32)).astype(np.int64)


def uniforms(seeds: Seeds, count: int) -> Floats:
    """`count` numbers uniform on (0, 1) from each seed, never 0 or 1."""
    return ((bits(seeds, count) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def normals(seeds: Seeds, count: int) -> Floats:
    """`count` standard normal numbers from each seed."""
    from scipy.special import ndtri  # takes a tenth of a second to import, and few problems need it

    return ndtri(uniforms(seeds, count))
