"""The catalogue knows every name, and other packages can add theirs."""

import json
import re

from fedmbo_ray.cli.catalog import main
from fedmbo_ray.cli.entries import KINDS, entries
from fedmbo_ray.core.cards import STATUS


def test_every_name_of_every_kind_is_listed(capsys) -> None:
    assert main([]) == 0
    printed = capsys.readouterr().out
    for kind, registry in KINDS.items():
        assert kind in printed
        for name in registry:
            assert name in printed


def test_as_json(capsys) -> None:
    assert main(["--json"]) == 0
    found = {(each["kind"], each["name"]): each for each in json.loads(capsys.readouterr().out)}
    fednest = found["algorithm", "fednest"]
    assert (fednest["communications"], fednest["participation"]) == ("2*T + D + 3", "partial")
    assert fednest["parameters"]["hypergradient"] == {"terms": 5, "batch_size": 32}
    assert found["algorithm.lower", "fedavg"]["parameters"]["local_steps"] == "required"
    assert found["algorithm", "adafbio"]["status"] == "reconstructed"
    assert all(each["status"] in STATUS for each in found.values() if each["paper"])
    assert all(each["summary"] and each["description"] for each in found.values())
    assert found["algorithm", "double_loop"]["parameters"]["outer"] == {"name": "plain"}


def test_details_of_one(capsys) -> None:
    assert main(["scaffold"]) == 0
    printed = capsys.readouterr().out
    assert "status: written from summaries, not checked against the paper's text" in printed
    assert "server_step_size: 1.0" in printed


def test_a_kind_can_be_asked_for_and_narrow_terminals_lose_no_formula(capsys, monkeypatch) -> None:
    assert main(["algorithm.lower"]) == 0
    printed = capsys.readouterr().out
    assert "proxskip" in printed
    assert "fednest " not in printed
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["algorithm"]) == 0
    printed = capsys.readouterr().out
    lines = re.sub(r"\x1b\[[0-9;]*m", "", printed).splitlines()
    assert max(map(len, lines)) <= 80
    assert printed.count("…") == 1  # {0, …, N−1} in the legend


def test_an_unknown_name_is_answered_with_the_nearest_known_one(capsys) -> None:
    assert main(["fednset"]) == 2
    assert capsys.readouterr().err.startswith("error: nothing is called 'fednset'; did you mean 'fednest'? known: ")


def test_methods_have_all_that_a_table_needs() -> None:
    for each in entries():
        if each.kind == "algorithm" and each.name != "double_loop":
            assert each.paper
            assert each.communications
            assert each.floats_down
            assert each.floats_up
            assert each.participation


def test_an_interruption_is_one_line(monkeypatch, capsys) -> None:
    def interrupted(names: list[str]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedmbo_ray.cli.entries.chosen", interrupted)
    assert main([]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_data_sets_are_listed_with_licence_and_source(capsys) -> None:
    assert main(["data", "--json"]) == 0
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert found["fars"]["licence"] == "public domain (NHTSA)"
    assert all(each["licence"] and each["source"] for each in found.values() if each["package"] == "fedmbo_ray")
    assert main(["adult"]) == 0
    printed = capsys.readouterr().out
    assert "15 clients own the rows" in printed
    assert "source: Becker, Kohavi 1996 (UCI Adult)" in printed
