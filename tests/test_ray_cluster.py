"""The same suites on a real Ray cluster: a head and five hosts, each in a network namespace of its
own. Each test says so where this machine lets none be made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import Cluster, needs_ray, open_cluster
from laboratory import Done

pytestmark = [*needs_ray, pytest.mark.long]

SUITE = """
name = "three"
question = "Do its parts find each other?"
[server]
protocol = "echo"
[load]
protocol = "echo"
connections = 40
each = 3
think = "200ms"
threads = 1
timeout = "60s"
"""
PLACES = '[network]\ntopology = "single,5"\n[place]\nserver = "h1"\nload = ["h2", "h3", "h4", "h5"]\n'
ONCE = '[run]\nrepeat = 1\nseed = 1\nready_timeout = "60s"\n'
RESULTS = {"ok", "invalid", "generator_limited"}
"""On a busy machine a generator may have been late; a failure is none that may happen."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with open_cluster(5, addresses=2) as made:
        yield made


def run(cluster: Cluster, folder: Path, text: str, *arguments: str, at: str = "", **environment: str) -> Done:
    (folder / "suite.toml").write_text(text)
    words = ("run", "suite.toml", "--hosts", f"ray:{cluster.address}", *arguments)
    return cluster.run(folder, *words, at=at, **environment)


def trials(folder: Path) -> list[dict[str, Any]]:
    made = [json.loads(path.read_text()) for path in sorted(folder.glob("runs/*/trials/*.json"))]
    for trial in made:
        assert trial["outcome"] in RESULTS, trial["reason"]
    return made


@pytest.mark.measures
def test_four_generators_load_a_server_of_three_models_from_hosts_of_their_own(
    cluster: Cluster, tmp_path: Path
) -> None:
    models = '[matrix]\n"server.model" = ["threads", "select", "epoll"]\n'
    together = SUITE.replace("timeout", "barrier = true\nrequest_log = true\ntimeout")
    text = "capture = true\n" + together + models + PLACES + ONCE
    done = run(cluster, tmp_path, text, "--json")
    assert done.returncode in {0, 4}, done.stderr
    assert len(trials(tmp_path)) == 3
    for trial in trials(tmp_path):
        assert trial["figures"]["connections.established"] == 40
        assert trial["figures"]["requests.completed"] == 120
        generators = trial["load"]["generators"]
        assert [each["host"] for each in generators] == ["h2", "h3", "h4", "h5"]
        assert [each["summary"]["requests"]["completed"] for each in generators] == [30] * 4
        told = trial["hosts"]
        assert set(told["counters"]) == {"h1", "h2", "h3", "h4", "h5"}
        # One machine has one clock: what was measured of it is wrong by no more than was stated.
        for clock in told["clocks"]:
            for when in ("before", "after"):
                assert abs(clock[when]["offset_us"]) <= clock[when]["error_us"] + 1
        opened = [each["opened_unix_s"] for each in told["windows"]]
        assert told["start_spread_s"] == pytest.approx(max(opened) - min(opened))
        assert all("--await-start" in each["command"] for each in generators)
        starts = {each["command"][each["command"].index("--start-at") + 1] for each in generators}
        assert len(starts) == 1
    summary = json.loads(done.stdout.splitlines()[-1])
    assert {point["point"]["server.model"] for point in summary["points"]} == {"threads", "select", "epoll"}
    assert len(list((tmp_path / "runs/0001/requests").glob("*.parquet"))) == 3


def test_the_files_of_a_trial_come_back_from_its_hosts(cluster: Cluster, tmp_path: Path) -> None:
    text = "capture = true\n" + SUITE.replace("timeout", "request_log = true\ntimeout") + ONCE
    done = run(cluster, tmp_path, text + '[network]\ntopology = "single,5"\n[place]\nserver = "h1"\nload = "h2"\n')
    assert done.returncode in {0, 4}, done.stderr
    (trial,) = trials(tmp_path)
    assert trial["figures"]["requests.completed"] == 120
    (capture,) = trial["hosts"]["captures"]
    file = tmp_path / "runs/0001/captures" / capture["file"]
    assert (capture["host"], capture["interface"]) == ("h1", "h1-eth0")
    assert file.stat().st_size > 0
    record = json.loads((tmp_path / "runs/0001/run.json").read_text())
    assert {each["name"]: each["address"] for each in record["hosts"]} == {f"h{n}": f"10.0.0.{n}" for n in (1, 2)}
    assert len({each["machine"] for each in record["hosts"]}) == 1
    assert len(list((tmp_path / "runs/0001/requests").glob("*.parquet"))) == 1
    assert len(list((tmp_path / "runs/0001/timelines").glob("*.parquet"))) == 1


@pytest.mark.measures
def test_a_forwarder_has_a_host_of_its_own_and_each_generator_its_addresses(cluster: Cluster, tmp_path: Path) -> None:
    roles = '[[role]]\nname = "relay"\nkind = "forward"\non = "h3"\nmappings = ["10.0.0.3:7000=role:server"]\n'
    text = SUITE.replace("[load]", '[load]\ntarget = "role:relay:7000"') + roles
    text += '[network]\ntopology = "single,5"\naddresses = 2\n[place]\nserver = "h4"\nload = ["h1", "h2"]\n' + ONCE
    done = run(cluster, tmp_path, text)
    assert done.returncode in {0, 4}, done.stderr
    (trial,) = trials(tmp_path)
    (relay,) = trial["roles"]
    assert (relay["host"], relay["ready"]["addresses"]) == ("h3", ["10.0.0.3:7000"])
    assert trial["figures"]["requests.completed"] == 120
    for number, each in enumerate(trial["load"]["generators"], start=1):
        words = each["command"]
        sources = [words[at + 1] for at, word in enumerate(words) if word == "--source-ip"]
        assert sources == [f"10.{place}.0.{number}" for place in range(2)]


def test_what_runs_on_a_host_does_not_find_the_token(cluster: Cluster, tmp_path: Path) -> None:
    script = "env | grep -c RAY_AUTH_TOKEN > {dir}/found; exec sleep 600"
    role = f'[[role]]\nname = "looks"\nkind = "command"\ncommand = ["sh", "-c", "{script}"]\n'
    done = run(cluster, tmp_path, SUITE + role + ONCE)
    assert done.returncode in {0, 4}, done.stderr
    assert (tmp_path / "found").read_text().strip() == "0"


@pytest.mark.parametrize(
    ("token", "said"),
    [("", "RAY_AUTH_TOKEN is not set"), ("another", "does not accept this token; give the one")],
)
def test_without_the_clusters_token_nothing_is_run(cluster: Cluster, tmp_path: Path, token: str, said: str) -> None:
    done = run(cluster, tmp_path, SUITE + ONCE, RAY_AUTH_TOKEN=token, HOME=str(tmp_path))
    assert done.returncode == 5
    assert said in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_cluster_that_asks_nobody_for_a_token_is_not_joined(tmp_path: Path) -> None:
    with open_cluster(1, RAY_AUTH_MODE="disabled") as open_to_all:
        done = run(open_to_all, tmp_path, SUITE + ONCE)
    assert done.returncode == 5
    assert "accepts clients without a token, so anyone who reaches it can run programs there" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("at", "hosts"), [("", 5), ("h5", 4)], ids=["at the head", "at a host"])
def test_more_hosts_than_there_are_is_said(cluster: Cluster, tmp_path: Path, at: str, hosts: int) -> None:
    """The machine that the laboratory works on is none."""
    done = run(cluster, tmp_path, SUITE + f'[place]\nload = "{hosts} hosts"\n' + ONCE, at=at)
    assert done.returncode == 5
    assert f"has no host for h{hosts + 1}" in done.stderr
    assert "10.0.0.5" in done.stderr
