"""A sweep goes on while its tracking server is away."""

from pathlib import Path

from forked import Forks
from servers import free_port, served
from small_sweeps import SMALL, all_records, lines_of, shown, wait_for


def test_nothing_is_lost_while_the_tracking_server_is_away(forks: Forks, database: str, tmp_path: Path) -> None:
    port = free_port()
    words = [*SMALL, "algorithm.lower.step_size=0.5", "rounds=90", "--out", "sweeps/a"]
    with served(database, tmp_path / "files", port) as uri:
        process = forks.start("-m", "fedmbo_ray.tune", *words, f"tune.tracking_uri={uri}", cwd=tmp_path)
        wait_for(lambda: lines_of(tmp_path / "sweeps/a/trials/00000") >= 3)
    wait_for(lambda: "can't be reached, records wait" in process.said()[1])
    with served(database, tmp_path / "files", port):
        code, _, err = process.finish()
        assert code == 0, err
        assert "is reachable again" in err
        found = shown(uri, "a")
        for name, lines in all_records(tmp_path / "sweeps/a").items():
            assert found[name]["status"] == ("FINISHED", "finished")
            assert found[name]["metrics"]["upper_loss"] == [(line["round"], line["upper_loss"]) for line in lines]
