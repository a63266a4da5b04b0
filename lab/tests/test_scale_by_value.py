"""How many generators a target needs, at the edges of each of their bounds."""

from __future__ import annotations

from typing import Any

import pytest
from made_scale import HOST, RUN, summary, trial

from plimsoll_lab.analysis.scale import generators_needed
from plimsoll_lab.store.run_record import HostRecord

ONE = trial(1, 0, summary(1e5, 5.6))
"""A request costs 5.6 us of one CPU, and a connection 904 bytes and the kernel's 4,096."""


@pytest.mark.parametrize(
    ("connections", "rate", "addresses", "bound", "needed"),
    [
        # Seven tenths of four CPUs are 500,000 requests a second.
        (1, 499_000, 1, "cpu", 1),
        (1, 501_000, 1, "cpu", 2),
        # Half of 8 GiB are 858,993 connections of 5,000 bytes, and a half.
        (858_993, 1, 1, "memory", 1),
        (858_994, 1, 1, "memory", 2),
        # From 32,768 to 60,999.
        (28_232, 1, 1, "ports", 1),
        (28_233, 1, 1, "ports", 2),
        (56_464, 1, 2, "ports", 1),
        (56_465, 1, 2, "ports", 2),
    ],
)
def test_one_more_than_a_host_can_have_needs_another(
    connections: int, rate: float, addresses: int, bound: str, needed: int
) -> None:
    found = generators_needed(RUN, [ONE], connections=connections, rate=rate, addresses=addresses)
    assert found.needs[bound] == needed


def test_an_estimate_is_printed_with_what_it_rests_on() -> None:
    found = generators_needed(RUN, [ONE], connections=30_000, rate=600_000, addresses=2)
    assert found.to_json() == {
        "connections": 30_000,
        "rate": 600_000,
        "addresses": 2,
        "measured": {"rate_per_generator": 1e5, "cpu_us_per_request": 5.6, "bytes_each": 904},
        "host": {"cpus": 4, "memory_bytes": 2**33, "ports": 28_232},
        "needs": {"cpu": 2, "memory": 1, "ports": 1},
        "generators": 2,
    }


def test_nothing_needs_one_generator_all_the_same() -> None:
    found = generators_needed(RUN, [ONE], connections=0, rate=0)
    assert (found.needs, found.generators) == ({"cpu": 0, "memory": 0, "ports": 0}, 1)


def test_the_cost_at_a_point_is_the_median_of_its_generators() -> None:
    three = trial(1, 0, summary(100, 9.0, 1000), summary(300, 7.0, 3000), summary(200, 8.0, 2000))
    cost = generators_needed(RUN, [three], connections=1, rate=1).measured
    assert (cost.rate_per_generator, cost.cpu_us_per_request, cost.bytes_each) == (200.0, 8.0, 2000.0)


@pytest.mark.parametrize("idle", [summary(0, 0.0), summary(900, None), None])
def test_a_generator_that_completed_nothing_or_tells_no_cost_is_none(idle: dict[str, Any] | None) -> None:
    cost = generators_needed(RUN, [trial(1, 0, summary(1000, 20.0), idle)], connections=1, rate=1).measured
    assert (cost.rate_per_generator, cost.cpu_us_per_request) == (1000.0, 20.0)


@pytest.mark.parametrize(("rate", "kept"), [(990, True), (989, False)])
def test_a_late_generator_kept_to_its_rate_by_99_of_100_requests(rate: float, *, kept: bool) -> None:
    late = trial(1, 0, summary(rate, 20.0, intended_rate=1000), outcome="generator_limited")
    if kept:
        assert generators_needed(RUN, [late], connections=1, rate=1).measured.rate_per_generator == rate
        return
    with pytest.raises(ValueError, match=r"^in no trial of it the generators kept up, so what a request costs is not"):
        generators_needed(RUN, [late], connections=1, rate=1)


@pytest.mark.parametrize("outcome", ["failed", "hard_limit", "invalid"])
def test_a_trial_without_a_result_tells_no_cost(outcome: str) -> None:
    kept = trial(1, 0, summary(1000, 20.0, intended_rate=1000), outcome=outcome)
    with pytest.raises(ValueError, match="kept up"):
        generators_needed(RUN, [kept], connections=1, rate=1)


def host(name: str, **environment: object) -> HostRecord:
    return HostRecord(
        name=name, address="", called=(), labels={}, machine="", versions={}, environment={**HOST, **environment}
    )


def test_of_hosts_of_which_one_is_not_known_nothing_is_estimated() -> None:
    two = trial(1, 0, summary(1000, 20.0), summary(1000, 20.0))
    known = RUN.model_copy(update={"hosts": [host("h2", cpus=8), host("h3", cpus=2), host("h4", cpus=1)]})
    assert generators_needed(known, [two], connections=1, rate=1).host.cpus == 2
    lacking: list[dict[str, object]] = [
        {"cpus": None}, {"cpus": 2, "memory": None}, {"cpus": 2, "ip_local_port_range": None},
    ]  # fmt: skip
    for lacks in lacking:
        partly = RUN.model_copy(update={"hosts": [host("h2", cpus=8), host("h3", **lacks)]})
        with pytest.raises(ValueError, match="does not record the memory and the ports of its generators' hosts"):
            generators_needed(partly, [two], connections=1, rate=1)
