"""The files that clusters are started from: valid by Ray's own schema or the CRD's fields, private, without secrets."""

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import ray
import yaml
from checkout import ROOT
from kuberay import RayCluster
from ray.autoscaler._private.util import prepare_config, validate_config

from fedmbo_ray.backends.ray.placement import HEAD, placeable, within_reach
from fedmbo_ray.cli.cluster import Machine, main, trouble

LAUNCHED = ("cluster.yaml", "cluster/aws.yaml", "cluster/gcp.yaml")
RENTED = LAUNCHED[1:]
SCHEMA = Path(ray.__file__).parent / "autoscaler" / "ray-schema.json"
EVERY = (*LAUNCHED, "cluster/kuberay.yaml")


def read(name: str) -> dict[str, Any]:
    return next(yaml.safe_load_all((ROOT / name).read_text()))


def validate(name: str, config: dict[str, Any]) -> None:
    """By the schema that will be asked when the file is used."""
    if "kind" in config:
        RayCluster.model_validate(config)
        return
    provider = config["provider"]
    needed = {"aws": ["region"], "gcp": ["region", "availability_zone", "project_id"], "local": []}[provider["type"]]
    missing = [key for key in needed if not provider.get(key)]  # Ray would ask the provider
    if missing:
        raise ValueError(f"provider.{missing[0]} is required")
    jsonschema.validate(config, json.loads(SCHEMA.read_text()))  # before defaults hide what is missing
    validate_config(prepare_config(copy.deepcopy(config)))
    types = config.get("available_node_types", {})
    if types and config.get("head_node_type") not in types:
        raise ValueError("head_node_type must be one of available_node_types")


@pytest.mark.parametrize("name", EVERY)
def test_is_valid(name: str) -> None:
    validate(name, read(name))


def without(*path: str) -> Callable[[dict[str, Any]], None]:
    def change(config: dict[str, Any]) -> None:
        for key in path[:-1]:
            config = config[key]
        del config[path[-1]]

    return change


def with_key(*path: str) -> Callable[[dict[str, Any]], None]:
    def change(config: dict[str, Any]) -> None:
        for key in path[:-1]:
            config = config[key]
        config[path[-1]] = 1

    return change


@pytest.mark.parametrize(
    ("name", "change"),
    [
        *((name, with_key("idle_timeout_minuts")) for name in LAUNCHED),
        *((name, without("cluster_name")) for name in LAUNCHED),
        *((name, without("available_node_types")) for name in RENTED),
        *((name, without("provider", "region")) for name in RENTED),
        *((name, without("available_node_types", "head")) for name in RENTED),
        *((name, with_key("available_node_types", "gpu", "maximum_workers")) for name in RENTED),
        ("cluster.yaml", without("provider", "head_ip")),
        ("cluster.yaml", with_key("auth", "ssh_password")),
        ("cluster/kuberay.yaml", without("spec", "headGroupSpec")),
        ("cluster/kuberay.yaml", without("spec", "headGroupSpec", "template")),
        ("cluster/kuberay.yaml", with_key("spec", "workerGroupSpec")),
        ("cluster/kuberay.yaml", with_key("spec", "autoscalerOptions", "idleTimeoutMinutes")),
    ],
)
def test_a_broken_one_is_rejected(name: str, change: Callable[[dict[str, Any]], None]) -> None:
    config = read(name)
    change(config)
    with pytest.raises((ValueError, jsonschema.ValidationError, click.ClickException)):
        validate(name, config)


@pytest.mark.parametrize("name", RENTED)
def test_rented_machines_come_and_go(name: str) -> None:
    config = read(name)
    assert config["idle_timeout_minutes"] > 0
    kinds = {kind: each for kind, each in config["available_node_types"].items() if kind != config["head_node_type"]}
    assert {"cpu", "gpu"} <= set(kinds)
    assert all(each["min_workers"] <= each["max_workers"] for each in kinds.values())


def test_pods_come_and_go() -> None:
    spec = RayCluster.model_validate(read("cluster/kuberay.yaml")).spec
    assert spec.enableInTreeAutoscaling
    assert spec.rayVersion == ray.__version__ == pinned("ray")
    assert f"ray:{ray.__version__}" in (ROOT / "cluster/Dockerfile").read_text()
    (gpu,) = (group for group in spec.workerGroupSpecs if group.groupName == "gpu")
    assert gpu.minReplicas < gpu.maxReplicas
    assert gpu.template.spec.containers[0].resources.limits["nvidia.com/gpu"] == "1"


def pinned(package: str) -> str:
    found = re.search(rf"^{package}==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert found
    return found[1]


@pytest.mark.parametrize("name", LAUNCHED)
def test_all_machines_get_this_tree_and_its_versions(name: str) -> None:
    config = read(name)
    assert all((ROOT / path).exists() for path in config["file_mounts"].values())
    assert config["setup_commands"] == ["bash ~/fedmbo/cluster/setup.sh"]
    assert "--constraint constraints.txt" in (ROOT / "cluster/setup.sh").read_text()


@pytest.mark.parametrize("name", EVERY)
def test_nothing_is_open_and_nothing_is_secret(name: str) -> None:
    text = (ROOT / name).read_text()
    starts = [line for line in re.sub(r"\n +--", " --", text).splitlines() if "ray start --head" in line]
    assert bool(starts) == (name in LAUNCHED)  # an operator starts pods
    assert all("--dashboard-host=127.0.0.1" in line for line in starts)
    assert not re.search(r"AKIA|BEGIN .*PRIVATE KEY|password:|token: ", text)
    assert "RAY_AUTH_MODE=token" in (ROOT / "cluster/environment.sh").read_text()
    assert "--host 127.0.0.1" in (ROOT / "cluster/tracking.sh").read_text()


class Group:
    def __init__(self, count: int, **resources: float) -> None:
        self.max_count, self.resources = count, resources


class Autoscaling:
    def __init__(self, *groups: Group) -> None:
        self.node_group_configs = groups


def test_what_an_autoscaler_may_start_counts_as_there() -> None:
    head = {"Alive": True, "Resources": {"CPU": 0.0, HEAD: 1.0}}
    grown = {"Alive": True, "Resources": {"CPU": 16.0}}
    gone = {"Alive": False, "Resources": {"CPU": 64.0}}
    nodes = within_reach([head, grown, gone], Autoscaling(Group(2, CPU=16.0), Group(1, CPU=8.0, GPU=1.0)))
    assert sum(node["CPU"] for node in nodes) == 40
    assert placeable([{"CPU": 1.0}, {"GPU": 0.5}, {"GPU": 0.5}], nodes)
    assert not placeable([{"CPU": 1.0}, {"GPU": 0.5}, {"GPU": 0.5}, {"GPU": 0.5}], nodes)
    for config in (None, Autoscaling(), Autoscaling(Group(2))):  # machines given by address have no resources there
        assert within_reach([head, grown, gone], config) == [head["Resources"], grown["Resources"]]


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        ("can't be reached by SSH (no route)", "can't be reached by SSH (no route)"),
        (Machine("3.12.1", 10**11), "has Python 3.12.1, but all machines must have the head's: 3.11.7"),
        (Machine("3.11.7", 10**9), "has 1.0 GB free on its disk, but 4 GB are needed"),
        (Machine("3.11.7", 10**11), None),
    ],
)
def test_what_keeps_a_machine_out(machine: Machine | str, said: str | None) -> None:
    assert trouble(machine, "3.11.7") == said


def test_the_head_needs_a_python_that_is_new_enough() -> None:
    assert trouble(Machine("3.9.18", 10**11), None) == "has Python 3.9.18, but it must be 3.11 or newer"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (None, "192.0.2.10, an example"),
        ("provider: {type: aws}", "provider.type must be 'local' to be checked, but"),
        ("provider: {type: local, head_ip: 10.0.0.1, worker_ips: [10.0.0.2]}", "auth.ssh_user: is required in"),
        (
            "provider: {type: local, head_ip: 10.0.0.1, worker_ips: [10.0.0.2]}\n"
            "auth: {ssh_user: me, ssh_private_key: /no/such/key}",
            "auth.ssh_private_key must be a file, but there is no /no/such/key",
        ),
        ("a: [", "is not YAML"),
    ],
)
def test_a_bad_file_is_one_line(
    text: str | None, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text((ROOT / "cluster.yaml").read_text() if text is None else text)
    assert main(["check", str(file)]) == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.startswith("error: ")
    assert len(said.splitlines()) == 1


def test_a_missing_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tmp_path / "no.yaml")]) in (1, 2)
    assert len(capsys.readouterr().err.splitlines()) == 1
