"""What becomes of a mutant: refused in one line, accepted, run for two rounds; anything else is a failure."""

import math
import signal
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn

from mutants import Mutant

from fedmbo_ray.api.configs import config_of
from fedmbo_ray.api.sweep import plan_of
from fedmbo_ray.config.schema import RunConfig
from fedmbo_ray.core.components import construct
from fedmbo_ray.core.errors import ConfigError, DownloadError
from fedmbo_ray.core.io import parse_yaml, to_yaml
from fedmbo_ray.runs.folder import RunFolder
from fedmbo_ray.runs.loop import run
from fedmbo_ray.sweeps.schema import SweepPlan, make_sweep
from fedmbo_ray.sweeps.space import corners

LONGEST_LINE = 2000  # letters of an error
TO_READ, TO_RUN = 5, 20  # seconds
ROUNDS = 2
SMALL = 1e7  # in samples of a round, roughly, times the width of the problem: a second or two
FAILURES = ("traceback", "slow to read", "not one line", "not read back")


class Verdict(NamedTuple):
    """How a mutant ended, and what is to be said about it."""

    outcome: str
    told: str = ""


class Timeout(BaseException):
    """Raised by the clock; no `except Exception` takes it."""


def judged(mutant: Mutant, folder: Path) -> Verdict:
    """Read the mutant and, if it is accepted and small, run it in a folder."""
    file = folder / "mutant.yaml"
    file.write_bytes(mutant.file)
    try:
        with time_limit(TO_READ):
            config = read(file, mutant)
    except Timeout:
        return Verdict("slow to read", "".join(traceback.format_exc(limit=-6)))
    except ConfigError as error:
        return refusal(error)
    except Exception:
        return Verdict("traceback", traceback.format_exc())
    return Verdict("not read back", str(config)) if isinstance(config, Difference) else two_rounds(config, folder)


def refusal(error: Exception) -> Verdict:
    said = str(error)
    wrong = not said or len(said) > LONGEST_LINE or not said.isprintable()
    return Verdict("not one line" if wrong else "refused", said)


class Difference(NamedTuple):
    """What a config is, and what it is after it was written down and read."""

    before: object
    after: object


def read(file: Path, mutant: Mutant) -> RunConfig | Difference:
    """The config or, of a sweep, that of the first point, as far as a command gets before it starts something."""
    if not mutant.sweep:
        config = config_of(file, mutant.words, {}, None, False)
        again = construct(RunConfig, parse_yaml(to_yaml(config.resolved()).decode(), "config.yaml"))
        return config if again == config else Difference(config, again)
    plan = plan_of(file, mutant.words)
    again_plan: SweepPlan = make_sweep(parse_yaml(to_yaml(plan.plain()).decode(), "sweep.yaml"))
    if again_plan.plain() != plan.plain():
        return Difference(plan.plain(), again_plan.plain())
    return plan.config(next(corners(plan.dims)))


def two_rounds(config: RunConfig, folder: Path) -> Verdict:
    """The outcome of two rounds; what is large, needs a download or a user's function is left out."""
    if config.data is not None and (config.data.name != "digits" or config.data.root):
        return Verdict("accepted, other data")
    if ":" in str(config.resolved()["problem"].get("name")) or size(config) > SMALL:
        return Verdict("accepted, large")
    short = config.model_copy(update={"rounds": ROUNDS if config.rounds is not None else None})
    rounds = 0

    def tick(round: int, share: float) -> None:
        nonlocal rounds
        rounds = round

    try:
        with time_limit(TO_RUN), tempfile.TemporaryDirectory(dir=folder) as out:
            last = list(run(short, RunFolder(Path(out)), stop=lambda: rounds >= ROUNDS, tick=tick))[-1]
    except Timeout:
        return Verdict("accepted, stopped after 20 s", "".join(traceback.format_exc(limit=-6)))
    except (ConfigError, DownloadError) as error:
        found = refusal(error)
        return found._replace(outcome="refused by the data") if found.outcome == "refused" else found
    except Exception:
        return Verdict("traceback", traceback.format_exc())
    return Verdict(f"ran, {last.get('status', 'not ended')}")


def size(config: RunConfig) -> float:
    """About how much a round computes: the largest numbers of the config, multiplied."""
    inner = sorted(numbers(config.resolved()["algorithm"]), reverse=True)[:2]
    outer = max(numbers(config.resolved()["problem"]), default=1)
    clients = config.clients
    most = max(clients.num_clients, config.record.loss_samples) * outer
    return max(clients.cohort_size * math.prod(inner) * outer, most, 1)


def numbers(value: Any) -> Iterator[float]:
    """Every number from 1 on that is somewhere in a value."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from numbers(each)
    elif isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        yield value


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises Timeout in this context after so many seconds."""

    def ring(number: int, frame: FrameType | None) -> NoReturn:
        raise Timeout

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def timed(mutant: Mutant, folder: Path) -> tuple[Verdict, float]:
    begin = time.monotonic()
    return judged(mutant, folder), time.monotonic() - begin
