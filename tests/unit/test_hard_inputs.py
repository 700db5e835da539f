"""Inputs that once gave tracebacks, took minutes or took all memory: each is one line now."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT
from quick_runs import run
from tasks import tiny_config

from fedmbo_ray.api.configs import config_of
from fedmbo_ray.api.sweep import plan_of
from fedmbo_ray.cli import command
from fedmbo_ray.core import memory
from fedmbo_ray.core.errors import LONGEST, ConfigError, quoted
from fedmbo_ray.core.io import parse_yaml, read_yaml
from fedmbo_ray.runs.build import build_task
from fedmbo_ray.runs.driver import require_few
from fedmbo_ray.sweeps.space import MOST_POINTS

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{key}: &{key} [{', '.join([f'*{before}'] * 9)}]\n" for before, key in zip("abcdefg", "bcdefgh", strict=True)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("!!bool maybe", "'maybe' can't be read as !!bool"),
        ("!!int ''", "'' can't be read as !!int"),
        ("!!timestamp 2001-99-99", "can't be read as !!timestamp"),
        ("&a {x: *a}", "contains itself"),
        ("&a [*a]", "contains itself"),
        ("[" * 500 + "]" * 500, "nested 100 deep at most"),
        (LAUGHS, "100000 values at most"),
        ("0x" + "f" * 5000, "10000 bits at most"),
        ("{a: 1, a: 2}", "'a' is given twice"),
    ],
)
def test_what_yaml_allows_and_a_config_does_not(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("[", r"\[")) as caught:
        parse_yaml(text, "the value")
    assert len(str(caught.value)) < 600


def test_an_alias_may_be_used_again() -> None:
    assert parse_yaml("{a: &x [1, 2], b: *x, c: {<<: {d: 1}}}", "it") == {"a": [1, 2], "b": [1, 2], "c": {"d": 1}}


def test_files_without_end_or_with_odd_names() -> None:
    with pytest.raises(ConfigError, match="at most 10000000 bytes"):
        read_yaml(Path("/dev/zero"))
    with pytest.raises(ConfigError, match="can't read"):
        read_yaml(Path("a\x00b"))


@pytest.mark.parametrize("scales", [5, "x", [1], {"smoke": 5}, {"smoke": [1]}])
def test_scales_that_are_no_mapping(scales: object) -> None:
    with pytest.raises(ConfigError, match="must be a mapping, but is"):
        plan_of({**read_yaml(Path("tune_configs/quickstart.yaml")), "scales": scales}, [], "smoke")


def test_keys_of_scales_need_not_be_text() -> None:
    fields = {**read_yaml(Path("tune_configs/quickstart.yaml")), "scales": {1: {2: 3}}}
    with pytest.raises(ConfigError, match="unknown scale 'smoke'"):
        plan_of(fields, [], "smoke")


def test_long_values_are_shown_in_part() -> None:
    long = "x" * 100_000
    for words in (
        [f"rounds={long}"],
        [f"{long}=1"],
        [f"algorithm={long}"],
        [f"data.name={long}"],
        [f"problem.{long}=1"],
    ):
        with pytest.raises(ConfigError) as caught:
            config_of(None, words, {}, None, False)
        assert len(str(caught.value)) < LONGEST
    with pytest.raises(ConfigError) as listed:
        config_of(None, [f"rounds={list(range(10_000))}"], {}, None, False)
    assert len(str(listed.value)) < 400
    assert quoted(10**5000) == "a very large int"


def test_values_from_python_are_as_limited_as_those_from_files() -> None:
    endless: dict[str, Any] = {}
    endless["x"] = endless
    for changes in ({"seed": endless}, {"seed": 10**5000}):
        with pytest.raises(ConfigError, match="at most"):
            config_of(None, [], changes, None, False)


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["clients.num_clients=1000000000"], "rows of its own"),
        (["clients.cohort_size=2000000000"], "clients.cohort_size: needs"),
        (["algorithm.lower.batch_size=2000000000"], "algorithm.lower.batch_size: needs"),
        (["record.loss_samples=2000000000"], "record.loss_samples: needs"),
        (["problem.backbone.width=1000000000000"], "needs 2.42e+05 GiB of memory or more, but there is"),
        (["quadratic", "problem.upper_dim=1000000000"], "problem.upper_dim: needs"),
        (["quadratic", "algorithm.hypergradient.batch_size=2000000000"], "hypergradient.batch_size: needs"),
    ],
)
def test_absurd_sizes_are_refused_before_memory_is_taken(words: list[str], key: str, tmp_path: Path) -> None:
    code, _, said = run(*words, "--out", str(tmp_path / "run"))
    assert code == 2
    assert key in said
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_value_too_long_for_a_file_s_name_is_shown_in_part() -> None:
    code, out, said = run("seed=" + "x" * 5000)
    assert (code, out) == (2, "")
    assert said.startswith("error: seed: input should be a valid integer")
    assert len(said) < 1000


def test_large_numbers_of_clients_stay_possible() -> None:
    clients = {"num_clients": 1_000_000_000, "cohort_size": 5, "replace": False}
    assert build_task(tiny_config(clients=clients)).data.num_clients == 1_000_000_000


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        MemoryError("Unable to allocate 7 GiB"),
        RuntimeError("[…] DefaultCPUAllocator: can't allocate memory"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
    ],
)
def test_a_shortage_of_memory_is_one_line(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> int:
        raise error

    assert command.guarded(work, lambda: "") == 1
    said = capsys.readouterr().err
    assert said.startswith("error: there is not enough memory (")
    assert said.count("\n") == 1
    with pytest.raises(RuntimeError, match="else"):
        command.guarded(lambda: _raise("something else"), lambda: "")


@pytest.mark.parametrize("kilobytes", [300_000, 800_000])
def test_a_process_without_room_ends_at_once(kilobytes: int, tmp_path: Path) -> None:
    """OpenBLAS, told to use several threads, would ask for their memory for ever while it is imported."""
    program = f"ulimit -v {kilobytes}; exec '{sys.executable}' -m fedmbo_ray run rounds=1 --out run"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("OPENBLAS_NUM_THREADS", None)
    ended = subprocess.run(["bash", "-c", program], cwd=tmp_path, env=environment, capture_output=True, timeout=60)
    assert ended.returncode in (0, 1)
    assert b"Traceback" not in ended.stderr
    errors = [line for line in ended.stderr.splitlines() if line.startswith(b"error: ")]
    assert len(errors) == ended.returncode


def _raise(said: str) -> int:
    raise RuntimeError(said)


def test_the_memory_that_a_process_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.resource, "getrlimit", lambda kind: (2**20, 2**20))
    assert memory.memory_at_hand() == 2**20
    with pytest.raises(ConfigError, match=r"x\.y: needs 1 GiB of memory or more, but there is"):
        memory.require_memory(2**30, "x", "y")


def test_more_points_than_a_sweep_can_have(capsys: pytest.CaptureFixture[str]) -> None:
    step = "algorithm.step_size={loguniform: [0.01, 1]}"
    with pytest.raises(ConfigError, match=f"{MOST_POINTS} points at most, but got 1000000000"):
        plan_of("quadratic", [step, "tune.samples=1000000000"])
    plan_of("quadratic", [step, "tune.samples=2001"])
    assert "checking 2001 points" in capsys.readouterr().err


@pytest.mark.parametrize(
    "word", ["clients.actors=100000", "clients.cpus_per_actor=1e18", "clients.gpus_per_actor=1e18"]
)
def test_more_actors_and_cores_than_any_cluster_has(word: str) -> None:
    with pytest.raises(ConfigError, match="less than or equal to 10000"):
        config_of(None, [word], {}, None, False)


def test_more_actors_than_a_machine_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    require_few(tiny_config(clients={"actors": 128}).clients)
    with pytest.raises(ConfigError, match=r"clients\.actors: .* 128 at most on this machine .* got 129; use fewer"):
        require_few(tiny_config(clients={"actors": 129}).clients)
    with pytest.raises(ConfigError, match=r"clients\.cpus_per_actor: .* got 200"):
        require_few(tiny_config(clients={"actors": 100, "cpus_per_actor": 2}).clients)


@pytest.mark.parametrize("value", [".nan", ".inf", "2001-02-03", "!!set {a}", "!!binary aGk="])
def test_parameters_that_a_config_would_not_give_back(value: str) -> None:
    for key in ("data={name: 'a:b', arguments: {x: %s}}", "problem.backbone={name: mlp, width: %s}"):
        with pytest.raises(ConfigError, match="must be finite numbers, text, lists or mappings"):
            config_of(None, [key % value], {}, None, False)


def test_numbers_that_float32_can_not_hold() -> None:
    with pytest.raises(ConfigError, match="must be 3e38 at most"):
        config_of(None, ["algorithm.smoothness=1e300"], {}, None, False)
