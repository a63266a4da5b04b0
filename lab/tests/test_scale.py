"""How many generators a target needs, from records whose answer is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import SUITE, Done, lab_here
from made_scale import HOST, RUN, summary, trial

from plimsoll_lab.analysis.scale import generators_needed
from plimsoll_lab.store.run_record import HostRecord, PointRecord
from plimsoll_lab.suite.spec import Placement


def test_each_bound_has_its_number_and_the_largest_is_the_answer() -> None:
    found = generators_needed(RUN, [trial(1, 0, summary(1e5, 5.6))], connections=10_000_000, rate=5_000_000)
    # 28 cores over 2.8 each; 50 GB over 4.3 each; ten million over 28,232 ports each.
    assert found.needs == {"cpu": 10, "memory": 12, "ports": 355}
    assert found.generators == 355
    more = generators_needed(
        RUN, [trial(1, 0, summary(1e5, 5.6))], connections=10_000_000, rate=5_000_000, addresses=100
    )
    assert (more.needs["ports"], more.generators) == (4, 12)


def test_the_cost_is_that_of_the_busiest_point_and_of_valid_trials_alone() -> None:
    trials = [
        trial(1, 0, summary(100, 150.0)),
        trial(2, 1, summary(1e5, 5.0)),
        trial(3, 1, summary(1e5, 7.0)),
        trial(4, 2, summary(9e5, 1.0), outcome="generator_limited"),
    ]
    found = generators_needed(RUN, trials, connections=1, rate=1)
    assert found.measured.cpu_us_per_request == pytest.approx(6.0)
    assert found.generators == 1


def test_the_memory_of_a_connection_is_the_most_at_any_point_and_not_that_of_the_busiest() -> None:
    """With few connections a generator tells the size of its slot alone."""
    trials = [trial(1, 0, summary(1e5, 5.0, 176)), trial(2, 1, summary(100, 150.0, 1200))]
    cost = generators_needed(RUN, trials, connections=1, rate=1).measured
    assert (cost.rate_per_generator, cost.cpu_us_per_request, cost.bytes_each) == (1e5, 5.0, 1200.0)


def test_a_generator_that_was_late_and_kept_to_its_rate_tells_what_a_request_costs() -> None:
    """Timers of an idle machine are late by as much as a server nearby takes for an answer."""
    late = trial(1, 0, summary(995, 20.0, intended_rate=1000), outcome="generator_limited")
    behind = trial(2, 1, summary(9e5, 1.0, intended_rate=1e6), outcome="generator_limited")
    found = generators_needed(RUN, [late, behind], connections=1, rate=1)
    assert found.measured.cpu_us_per_request == 20.0
    one_behind = trial(
        3, 2, summary(995, 20.0, intended_rate=1000), summary(100, 9.0, intended_rate=1000), outcome="generator_limited"
    )
    with pytest.raises(ValueError, match="kept up"):
        generators_needed(RUN, [one_behind], connections=1, rate=1)


def test_a_run_of_no_use_is_refused_with_its_own_reason() -> None:
    limited = trial(4, 2, summary(9e5, 1.0), outcome="generator_limited")
    with pytest.raises(ValueError, match="in no trial of it the generators kept up"):
        generators_needed(RUN, [limited], connections=1, rate=1)
    without_ports = [
        HostRecord(name="h2", address="", called=(), labels={}, machine="", versions={}, environment={"cpus": 2})
    ]
    record = RUN.model_copy(update={"hosts": without_ports})
    with pytest.raises(ValueError, match="does not record the memory and the ports"):
        generators_needed(record, [trial(1, 0, summary(1e5, 5.6))], connections=1, rate=1)


def test_on_a_cluster_the_smallest_host_of_a_generator_counts() -> None:
    hosts = [
        HostRecord(
            name=f"h{n}", address="", called=(), labels={}, machine="", versions={}, environment=HOST | {"cpus": cpus}
        )
        for n, cpus in ((1, 1), (2, 8), (3, 2))
    ]
    trials = [trial(1, 0, summary(2e5, 9.9), summary(1e5, 5.6))]
    found = generators_needed(RUN.model_copy(update={"hosts": hosts}), trials, connections=1, rate=1_000_000)
    assert found.host.cpus == 2
    # The record of a single one names no host: it was that of the server.
    point = PointRecord(number=0, setting={}, server={}, load={}, place=Placement(server="h1", load=("h2",)))
    alone = RUN.model_copy(update={"hosts": hosts, "points": [point]})
    found = generators_needed(alone, [trial(1, 0, summary(1e5, 5.6))], connections=1, rate=1_000_000)
    assert found.host.cpus == 8


def test_hosts_that_differ_count_by_the_least_that_one_has_of_each() -> None:
    """The memory was that of the host with the fewest CPUs."""
    own: list[dict[str, object]] = [
        {**HOST, "cpus": 8, "memory": "1048576 kB"},
        {**HOST, "cpus": 2},
        {**HOST, "cpus": 4, "ip_local_port_range": "40000 49999"},
    ]
    hosts = [
        HostRecord(name=f"h{n}", address="", called=(), labels={}, machine="", versions={}, environment=each)
        for n, each in enumerate(own, start=2)
    ]
    trials = [trial(1, 0, *[summary(1e5, 5.6)] * 3)]
    host = generators_needed(RUN.model_copy(update={"hosts": hosts}), trials, connections=1, rate=1).host
    assert (host.cpus, host.memory_bytes, host.ports) == (2, 2**30, 10_000)


@pytest.mark.parametrize("target", ["--target-connections", "--target-rate"])
@pytest.mark.parametrize("number", ["many", "-5", "1.5", "9" * 400])
def test_a_target_that_is_no_number_is_refused_in_one_line(
    finished: tuple[Path, Done], target: str, number: str
) -> None:
    done = lab_here(finished[0], "plan", "small.toml", "--scale", "runs/0001", f"{target}={number}")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {target}: '{number}' is ")
    assert done.stderr.count("\n") == 1


def test_a_target_without_a_run_to_scale_from_is_refused(finished: tuple[Path, Done]) -> None:
    done = lab_here(finished[0], "plan", "small.toml", "--target-rate", "5M")
    assert done.returncode == 2
    assert done.stderr == "error: --target-connections and --target-rate need --scale, a run to scale from\n"


def test_without_a_name_the_newest_run_of_the_suite_is_scaled_from(finished: tuple[Path, Done]) -> None:
    folder, _ = finished
    for named in (("--scale",), ("--scale", "runs/0001")):
        done = lab_here(folder, "plan", "small.toml", *named, "--json")
        assert done.returncode == 0, done.stderr
        scale = json.loads(done.stdout)["scale"]
        assert (scale["run"], scale["connections"], scale["rate"]) == ("runs/0001", 10_000_000, 5_000_000)
        assert scale["generators"] == max(scale["needs"].values())
    told = lab_here(folder, "plan", "small.toml", "--scale").stdout
    assert "as measured in runs/0001 at" in told
    (folder / "other.toml").write_text(SUITE.replace('"small"', '"other"'))
    refused = lab_here(folder, "plan", "other.toml", "--scale")
    assert (refused.returncode, refused.stderr) == (
        2,
        "error: no run of other in runs has ended; run it, or name another run after --scale\n",
    )
