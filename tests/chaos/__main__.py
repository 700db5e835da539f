"""make chaos MINUTES=10 SEED=1: faults of every kind, at random moments, and whether anything wrong comes of them."""

import argparse
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from contextlib import suppress
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support"), str(Path(__file__).parent)]
os.environ["PYTHONPATH"] = str(ROOT)

from own_mounts import begin_with_own_mounts  # noqa: E402

begin_with_own_mounts()

import numpy as np  # noqa: E402
import torch  # noqa: E402
from forked import Forks  # noqa: E402
from kinds import KINDS, SLOW  # noqa: E402
from suffering import Suffering, Wrong  # noqa: E402

for module in ("of_runs", "of_endings", "of_starts", "of_ray", "of_sweeps", "of_mlflow", "of_nodes"):
    import_module(module)
torch.set_num_threads(1)

OFTEN = 3  # times that a quick kind comes while a slow one comes once; they take seconds, and tens of seconds


def suffer(kind: str, seed: int, forks: Forks, keep: bool = False) -> str:
    """What came of one scenario: `right`, `refused`, or why it was wrong."""
    folder = Path(tempfile.mkdtemp(prefix="chaos"))
    suffering = Suffering(forks, folder, np.random.default_rng([seed, *kind.encode()]))
    found = "wrong"
    try:
        found = KINDS[kind](suffering)
        suffering.nothing_left()
        return found
    except Wrong as wrong:
        return f"wrong: {wrong}"
    except Exception:
        return f"wrong: {traceback.format_exc()}"
    finally:
        for process in suffering.processes():
            process.kill()
        if not keep or found in ("right", "refused"):
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(f"kept: {folder}")


def table(found: dict[str, Counter[str]]) -> str:
    rows = ["| fault | times | right | refused in one line | wrong |", "|---|---|---|---|---|"]
    for kind, counts in sorted(found.items()):
        rows.append(f"| {kind} | {counts.total()} | {counts['right']} | {counts['refused']} | {counts['wrong']} |")
    every = sum(found.values(), Counter[str]())
    rows.append(f"| **all** | {every.total()} | {every['right']} | {every['refused']} | {every['wrong']} |")
    return "\n".join(rows)


def campaign(kinds: list[str], args: argparse.Namespace, forks: Forks, found: dict[str, Counter[str]]) -> None:
    """Scenario after scenario, each kind equally often, until the time or the count is over."""
    rng, end, number, wrong = np.random.default_rng(args.seed), time.monotonic() + 60 * args.minutes, 0, 0
    order: list[str] = []
    while number < args.count if args.count is not None else time.monotonic() < end:
        order = order or list(rng.permutation(kinds))
        kind, seed = order.pop(), int(rng.integers(2**31))
        outcome = suffer(kind, seed, forks)
        number += 1
        found[kind][outcome.partition(":")[0]] += 1
        if outcome.startswith("wrong"):
            wrong += 1
            print(f"{kind}: {outcome}\n  repeat it: python tests/chaos --kind '{kind}' --seed {seed}", flush=True)
        elif number % 10 == 0:
            print(f"{number} faults, {wrong} wrong", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, help="so many faults instead of so many minutes")
    parser.add_argument("--kind", help="of this kind alone: repeats a failure, and keeps its folder")
    parser.add_argument("--quick", action="store_true", help="no faults that take twenty seconds: no Ray, no sweeps")
    args = parser.parse_args()
    forks, found = Forks(), defaultdict[str, Counter[str]](Counter)
    if args.kind is not None:
        outcome = suffer(args.kind, args.seed, forks, keep=True)
        print(outcome)
        forks.close()
        return int(outcome.startswith("wrong"))
    quick, slow = ([kind for kind in KINDS if kind.startswith(SLOW) == is_slow] for is_slow in (False, True))
    kinds = quick if args.quick else OFTEN * quick + slow
    with suppress(KeyboardInterrupt):  # what was found up to then is shown
        campaign(kinds, args, forks, found)
    print(table(found))
    every = sum(found.values(), Counter[str]())
    print(f"{every.total()} faults of {len(found)} kinds: {every['wrong']} wrong")
    forks.close()
    return 1 if every["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
