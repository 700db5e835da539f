"""Many mutants, one after the other: a table of what became of them, and each failure with how to repeat it.

python tests/fuzz --count 20000 --seed 1
"""

import argparse
import resource
import shlex
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch
from judge import FAILURES, Verdict, timed
from mutants import Mutant, mutant

ROOM = 2**30  # bytes that may be taken besides what the process has after its imports


def limit_memory() -> None:
    """From now on, what takes more than a gigabyte is a MemoryError."""
    status = Path("/proc/self/status").read_text()
    now = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (now + ROOM, now + ROOM))


def show(seed: int, number: int, found: Mutant, verdict: Verdict) -> None:
    repeat = f"python tests/fuzz --seed {seed} --only {number}"
    print(f"\n{verdict.outcome}: {repeat}\n{verdict.told}", flush=True)
    if found.words:
        print(f"words: {shlex.join(found.words)[:1000]}")


def shown_alone(seed: int, number: int) -> int:
    """One mutant: the file, the words, and what becomes of it."""
    found = mutant(seed, number)
    sys.stdout.flush()
    sys.stdout.buffer.write(found.file[:5000] + b"\n")
    with tempfile.TemporaryDirectory() as folder:
        verdict, seconds = timed(found, Path(folder))
    print(f"words: {shlex.join(found.words)[:2000]}\nread as a {'sweep' if found.sweep else 'run'}; {seconds:.1f} s")
    print(f"{verdict.outcome}: {verdict.told}")
    return int(verdict.outcome in FAILURES)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="the number of one mutant to show")
    args = parser.parse_args()
    torch.set_num_threads(1)
    limit_memory()
    if args.only is not None:
        return shown_alone(args.seed, args.only)
    outcomes, longest, begin = Counter[str](), (0.0, 0), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(args.count):
            found = mutant(args.seed, number)
            verdict, seconds = timed(found, Path(folder))
            outcomes[verdict.outcome] += 1
            longest = max(longest, (seconds, number))
            if verdict.outcome in FAILURES:
                show(args.seed, number, found, verdict)
    took = time.monotonic() - begin
    print(f"\n{args.count} mutants of seed {args.seed} in {took:.0f} s ({args.count / took * 60:.0f} a minute)")
    for outcome, count in sorted(outcomes.items(), key=lambda each: -each[1]):
        print(f"{count:8d}  {outcome}")
    print(f"the longest took {longest[0]:.1f} s: --only {longest[1]}")
    failed = sum(outcomes[each] for each in FAILURES)
    print(f"{failed} failures")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
