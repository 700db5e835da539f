"""The command that runs one config, in the test's own process, on something small."""

import io
import json
from contextlib import redirect_stderr, redirect_stdout

from fedmbo_ray.cli.run import main

QUICK = ["rounds=30", "record.every=5", "record.checkpoint_every=7", "clients.num_clients=20"]


def run(*words: str) -> tuple[int, str, str]:
    """The exit code, and what was said on stdout and stderr."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = main(list(words))
    return code, out.getvalue(), err.getvalue()


def last_record(*words: str) -> dict:
    code, out, err = run(*words, "clients.backend=in_process", "--json")
    assert code == 0, err
    return json.loads(out)


def bits(record: dict) -> tuple[str, str]:
    return record["x_sha256"], record["y_sha256"]
