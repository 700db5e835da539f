"""How much memory there is, and errors that say that there is too little."""

import resource

import psutil

from fedmbo_ray.core.errors import ConfigError, shortened

ALLOCATION = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "calculation overflowed",
    "multiplication overflow",
    "failed to map segment",  # when a library is imported
    "annot allocate memory",
)


def memory_at_hand() -> float:
    """The memory of this machine in bytes, or the limit of this process (`ulimit -v`)."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    total = psutil.virtual_memory().total
    return total if limit == resource.RLIM_INFINITY else min(total, limit)


def require_memory(needed: float, *path: str) -> None:
    """Raise a ConfigError if values need more memory than there is."""
    there = memory_at_hand()
    if needed > there:
        raise ConfigError(f"needs {in_words(needed)} of memory or more, but there is {in_words(there)}", *path)


def in_words(size: float) -> str:
    return f"{size / 2**30:,.3g} GiB" if size < 1e15 else f"{size / 2**30:.0e} GiB"


def is_shortage(error: BaseException) -> bool:
    """Whether an error says that there was not enough memory: from Python, numpy, torch or an import."""
    said = str(error)
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError | ImportError) and any(word in said for word in ALLOCATION)
    )


def out_of_memory(error: BaseException) -> str:
    """The message for such an error, in one line."""
    said = shortened(str(error).splitlines()[0]) if str(error) else "an allocation failed"
    return f"there is not enough memory ({said}): use smaller batches, fewer clients or a smaller problem"
