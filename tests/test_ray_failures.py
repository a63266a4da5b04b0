"""What becomes of a run on a real Ray cluster when a host, a link or the laboratory itself goes in
the middle of a trial. Each test says so where this machine lets no cluster be made.
"""

from __future__ import annotations

import json
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import Cluster, needs_ray, open_cluster
from laboratory import wait_until

pytestmark = [*needs_ray, pytest.mark.long]

HANGS_S = 400
SUITE = """
name = "long"
question = "What if a host goes?"
[server]
protocol = "echo"
[load]
protocol = "echo"
connections = 4
think = "100ms"
threads = 1
duration = "{duration}"
[place]
load = ["h2"]
[run]
repeat = 1
seed = 1
ready_timeout = "{ready}"
trial_timeout = "{timeout}"
"""
HOSTS = ("h1", "h2", "h3")


@pytest.fixture(scope="module")
def made() -> Iterator[Cluster]:
    with open_cluster(len(HOSTS)) as cluster:
        yield cluster


@pytest.fixture
def cluster(made: Cluster) -> Cluster:
    """The cluster, whole: every node that an earlier test has ended runs again."""
    made.start(*(name for name in HOSTS if name not in made.nodes))
    return made


def suite(folder: Path, *, duration: str = "600s", timeout: str = "900s", ready: str = "60s", more: str = "") -> None:
    text = SUITE.format(duration=duration, timeout=timeout, ready=ready) + more
    (folder / "long.toml").write_text(text)


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("runs/*/trials/*.json"))]


def test_a_host_without_power_ends_the_trial_and_one_that_joined_since_takes_its_name(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.stop("h3")
    suite(tmp_path, more='[matrix]\n"load.duration" = ["600s", "2s"]\n')
    lab = cluster.lab(tmp_path, "run", "long.toml", "--hosts", f"ray:{cluster.address}")
    wait_until(lambda: bool(cluster.running("load")), "no generator was started")
    cluster.start("h3")
    cluster.stop("h2")
    _, said = lab.communicate(timeout=HANGS_S)
    assert lab.returncode in {0, 4}, said
    first, second = records(tmp_path)
    assert first["outcome"] == "invalid"
    assert first["reason"].startswith("the host h2 was lost during the trial: ")
    assert [each["code"] for each in first["warnings"]] == ["host_lost"]
    assert second["outcome"] in {"ok", "invalid", "generator_limited"}, second["reason"]
    assert "lost" not in (second["reason"] or "")
    (clock,) = [each for each in second["hosts"]["clocks"] if each["host"] == "h2"]
    assert clock["after"]["error_us"] > 0
    assert clock["address"] == "10.0.0.3"
    hosts = json.loads((tmp_path / "runs/0001/run.json").read_text())["hosts"]
    assert [(each["name"], each["address"]) for each in hosts] == [
        ("h1", "10.0.0.1"),
        ("h2", "10.0.0.2"),
        ("h2", "10.0.0.3"),
    ]
    wait_until(lambda: not cluster.running("load") + cluster.running("serve"), "a process is left")


def test_a_host_that_is_cut_off_ends_the_trial_and_stops_by_itself(cluster: Cluster, tmp_path: Path) -> None:
    suite(tmp_path, timeout="20s", ready="20s")
    lab = cluster.lab(tmp_path, "run", "long.toml", "--hosts", f"ray:{cluster.address}")
    wait_until(lambda: bool(cluster.running("load")), "no generator was started")
    cluster.link("h2", "down")
    try:
        _, said = lab.communicate(timeout=HANGS_S)
        assert lab.returncode == 4, said
        (trial,) = records(tmp_path)
        assert trial["outcome"] == "invalid"
        assert trial["reason"].startswith("the host h2 was lost during the trial: ")
        assert not cluster.running("serve")
        wait_until(lambda: not cluster.running("load"), "the generator goes on on the host that was cut off")
    finally:
        cluster.link("h2", "up")
        cluster.stop("h2")


def test_a_search_whose_servers_host_is_lost_makes_the_trial_again_on_another(cluster: Cluster, tmp_path: Path) -> None:
    search = '[limits]\nfailed_ratio = "<1%"\n[search]\nover = "load.connections"\nrange = [2, 4]\nhold = "0s"\n'
    suite(tmp_path, more=search)
    lab = cluster.lab(tmp_path, "run", "long.toml", "--hosts", f"ray:{cluster.address}")
    wait_until(lambda: bool(cluster.running("load")), "no generator was started")
    before = set(cluster.running("serve"))
    cluster.stop("h1")
    wait_until(lambda: bool(set(cluster.running("serve")) - before), "no server was started on another host")
    wait_until(lambda: bool(cluster.running("load")), "no generator was started again")
    lab.send_signal(signal.SIGINT)
    _, said = lab.communicate(timeout=HANGS_S)
    assert lab.returncode == 130, said
    (trial,) = records(tmp_path)
    assert trial["reason"].startswith("the host h1 was lost during the trial: ")
    wait_until(lambda: not cluster.running("load") + cluster.running("serve"), "a process is left")


def test_a_laboratory_that_is_killed_leaves_nothing_on_any_host(cluster: Cluster, tmp_path: Path) -> None:
    suite(tmp_path)
    lab = cluster.lab(tmp_path, "run", "long.toml", "--hosts", f"ray:{cluster.address}")
    wait_until(lambda: bool(cluster.running("load")), "no generator was started")
    lab.kill()
    lab.communicate(timeout=HANGS_S)
    wait_until(lambda: not cluster.running("load") + cluster.running("serve"), "a process is left")


def test_a_run_that_lacked_a_host_goes_on_once_one_has_joined(cluster: Cluster, tmp_path: Path) -> None:
    cluster.stop("h3")
    (tmp_path / "long.toml").write_text(
        SUITE.format(duration="1s", timeout="60s", ready="60s").replace('"h2"]', '"h2", "10.0.0.3"]')
    )
    done = cluster.run(tmp_path, "run", "long.toml", "--hosts", f"ray:{cluster.address}")
    assert done.returncode == 5
    assert "has no host for 10.0.0.3" in done.stderr
    assert not records(tmp_path)
    cluster.start("h3")
    done = cluster.run(tmp_path, "resume", "runs/0001")
    assert done.returncode in {0, 4}, done.stderr
    (trial,) = records(tmp_path)
    assert [each["host"] for each in trial["load"]["generators"]] == ["h2", "10.0.0.3"]


def test_a_host_with_another_build_is_refused_with_both_named(cluster: Cluster, tmp_path: Path) -> None:
    other = tmp_path / "plimsoll"
    other.write_text("#!/bin/sh\necho 'plimsoll 9.9.9 (0123456789)'\n")
    other.chmod(other.stat().st_mode | stat.S_IXUSR)
    cluster.stop("h2")
    cluster.start("h2", PLIMSOLL_BIN=str(other))
    try:
        suite(tmp_path, duration="1s")
        done = cluster.run(tmp_path, "run", "long.toml", "--hosts", f"ray:{cluster.address}")
        assert done.returncode == 5
        assert "h2 (10.0.0.2) has another build: its plimsoll is plimsoll 9.9.9 (0123456789)" in done.stderr
        assert not records(tmp_path)
    finally:
        cluster.stop("h2")
