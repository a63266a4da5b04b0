"""What a server was short of at the upper bound of a search, and whose the CPUs were."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from made_search_trials import BAD, GOOD, MACHINE, SUITE, figures

from plimsoll_lab.analysis.search_trial import what_broke
from plimsoll_lab.analysis.short_of import crowded, medians, share_cpus
from plimsoll_lab.store.records import MachineRecord, RoleRecord
from plimsoll_lab.suite.spec import Placement, Point


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (
            {"server": {"summary": {"errors": {"emfile": 1000}}}},
            "descriptors: it ran out of them 2,000 times (ulimit -n)",
        ),
        (
            {"server": {"summary": {"errors": {"enfile": 1}}}},
            "descriptors: the machine ran out of them 2 times (fs.file-max)",
        ),
        (
            {"server": {"summary": {"errors": {"fd_setsize": 7}}}},
            "descriptors: select can watch none of 1024 or above, and refused 14 connections",
        ),
        ({"machine": {"listen_overflows": 700}}, "listen queue: it overflowed 1,400 times in 2 trials"),
        (
            {"load": {"summary": {"errors": {"read": 1, "timeout": 1000, "write": 0}}}},
            "errors: 2,000 timeout, 2 read in 2 trials",
        ),
        ({"figures": figures(server__memory_bytes=972_800_000)}, "memory: it holds 928 MiB, all that the machine has"),
        ({"machine": {"busy_cores": 1.9}}, "CPU: 1.90 of the machine's 2 CPUs were busy, 0.21 of them by the server"),
    ],
)
def test_each_shortage_has_its_words(changed: dict[str, Any], text: str) -> None:
    """95 % of a million KiB is 972,800,000 bytes, and of two CPUs 1.9."""
    idle = replace(BAD, figures=figures(server__cpu_cores=0.21))
    bad = replace(
        idle, **{**changed, "figures": {**idle.figures, **changed.get("figures", {}), "server.cpu_cores": 0.21}}
    )
    found = what_broke(SUITE, [bad, bad], [bad], MACHINE)
    assert [each.text for each in found.causes] == [text]


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"server": {"summary": {"errors": {"emfile": 1}}}}, "descriptors: it ran out of them 1 time (ulimit -n)"),
        (
            {"server": {"summary": {"errors": {"fd_setsize": 1}}}},
            "descriptors: select can watch none of 1024 or above, and refused 1 connection",
        ),
        ({"machine": {"listen_overflows": 1}}, "listen queue: it overflowed 1 time in 1 trial"),
        ({"load": {"summary": {"errors": {"read": 1}}}}, "errors: 1 read in 1 trial"),
    ],
)
def test_what_was_seen_once_is_said_of_one(changed: dict[str, Any], text: str) -> None:
    """It was "1 times in 1 trials"."""
    bad = replace(BAD, **{**changed, "figures": {**BAD.figures, "server.cpu_cores": 0.21}})
    assert [each.text for each in what_broke(SUITE, [bad], [bad], MACHINE).causes] == [text]


@pytest.mark.parametrize(
    ("used", "more", "limit"),
    [
        (0.9, 0.9, True),
        (0.89, 0.89, False),
        (1.09, 1.09, True),
        (1.11, 1.11, False),
        (1.8, 1.8, True),
        (1.79, 1.79, False),
        (0.4, 0.4, False),
        # A twentieth more at a higher load is no more.
        (1.0, 1.05, True),
        (1.0, 1.06, False),
        # Of any number above 4.5 it was said: each is within a tenth of a whole one.
        (3.76, 3.76, True),
        (3.74, 3.74, False),
        (5.4, 5.4, False),
        (7.76, 7.76, True),
        (8.3, 8.3, False),
        (31.7, 31.7, False),
        (32.2, 32.2, True),
    ],
)
def test_a_server_is_out_of_cpu_at_a_whole_number_of_cores_that_it_never_leaves(
    used: float, more: float, *, limit: bool
) -> None:
    bad, beyond = (
        replace(BAD, setting={"load.rate": rate}, figures=figures(server__cpu_cores=each))
        for rate, each in ((100, used), (200, more))
    )
    found = what_broke(SUITE, [bad], [bad, beyond], MACHINE).causes
    assert [each.text for each in found] == (
        [f"CPU: it uses {used:.2f} cores there, and no more at any higher load"] if limit else []
    )


@pytest.mark.parametrize(
    ("rate", "told", "more"),
    [(200, True, ", and no more at any higher load"), (200, False, ""), (100, True, ""), (50, True, "")],
)
def test_no_more_cpu_at_a_higher_load_is_said_only_where_such_a_load_told_it(
    rate: int, more: str, *, told: bool
) -> None:
    """It was said of the highest load that was tried, too."""
    bad = replace(BAD, setting={"load.rate": 100})
    other = replace(BAD, setting={"load.rate": rate}, figures=BAD.figures if told else {})
    [cause] = what_broke(SUITE, [bad], [bad, other], MACHINE).causes
    assert cause.text == f"CPU: it uses 0.97 cores there{more}"


@pytest.mark.parametrize(
    ("busy", "generator", "found"), [(1.8, 0.2, True), (1.79, 1.0, False), (2.0, 0.19, False), (None, 1.0, False)]
)
def test_a_machine_is_crowded_where_all_of_it_is_busy_and_a_good_part_with_the_generator(
    *, busy: float | None, generator: float, found: bool
) -> None:
    machine: MachineRecord = {} if busy is None else {"busy_cores": busy}
    bad = replace(BAD, machine=machine, figures=figures(server__cpu_cores=0.92, generator__cpu_cores=generator))
    assert crowded([bad, bad], [bad], MACHINE) is found
    # Also where the generator was late, as it would be there.
    late = replace(bad, outcome="generator_limited")
    assert crowded([late, late], [bad], MACHINE) is found
    # Not where the server refused connections, or died: that is its own doing.
    for outcome in ("hard_limit", "failed"):
        assert not crowded([replace(bad, outcome=outcome)], [bad], MACHINE)


@pytest.mark.parametrize(
    ("load", "network", "cpus", "found"),
    [
        ((), None, {}, True),
        (("h1",), None, {}, True),
        (("h2",), {"links": []}, {}, True),
        # A cluster, whatever its suite says of a network: its generators are elsewhere already.
        (("h2", "h3"), None, {}, False),
        (("h1",), None, {"server": (0,), "load": (1,)}, False),
        (("h1",), None, {"server": (0, 1), "load": (1,)}, True),
    ],
)
def test_a_generator_takes_no_cpu_of_a_server_on_another_machine(
    load: tuple[str, ...], network: dict[str, object] | None, cpus: dict[str, tuple[int, ...]], *, found: bool
) -> None:
    place = Placement(server="h1", load=load, cpus=cpus)
    assert (
        share_cpus(Point(number=0, setting={}, server={}, load={}, place=place, network=cast("Any", network))) is found
    )


def test_a_thread_that_has_a_whole_cpu_and_can_use_no_more_is_its_servers_limit_beside_a_busy_generator() -> None:
    for used, found in ((1.0, False), (0.98, False), (0.96, True)):
        bad = replace(
            BAD, machine={"busy_cores": 1.85}, figures=figures(server__cpu_cores=used, generator__cpu_cores=0.6)
        )
        assert crowded([bad], [bad], MACHINE) is found
        assert crowded([replace(bad, outcome="generator_limited")], [bad], MACHINE) is found


@pytest.mark.parametrize(
    ("busy", "server", "generator", "text", "found"),
    [
        # A server elsewhere on the machine: what it uses is not known.
        (5.8, None, 1.9, None, False),
        (7.7, None, 1.9, "CPU: 7.70 of the machine's 8 CPUs were busy", True),
        # A server and a generator that the lab has started, and others beside them.
        (3.5, 1.2, 0.75, "CPU: 1.95 of the lab's 2 CPUs were busy, 1.20 of them by the server", True),
        (6.0, 1.2, 0.5, None, False),
        # Parts on CPUs that are not the lab's.
        (3.3, 1.5, 1.8, None, False),
    ],
)
def test_a_lab_that_may_use_two_of_eight_cpus_compares_with_each_what_was_busy_there(
    *, busy: float, server: float | None, generator: float, text: str | None, found: bool
) -> None:
    """It said that 5.80 of the machine's 2 CPUs were busy, and the machine was the limit."""
    used = {"server.cpu_cores": server, "generator.cpu_cores": generator}
    known = {name: value for name, value in {**BAD.figures, **used}.items() if value is not None}
    bad = replace(BAD, machine={"busy_cores": busy}, figures=known)
    environment = MACHINE.model_copy(update={"cpus_online": 8})
    assert [each.text for each in what_broke(SUITE, [bad], [bad], environment).causes] == ([text] if text else [])
    assert crowded([bad], [bad], environment) is found
    assert crowded([replace(bad, outcome="generator_limited")], [bad], environment) is found


@pytest.mark.parametrize(("cores", "found"), [(0.9, True), (0.1, False), (None, False)])
def test_the_cpu_of_further_parts_is_part_of_what_the_lab_used(*, cores: float | None, found: bool) -> None:
    """Server and generator used 1.1 of the two CPUs that the laboratory may use, a forwarder the
    rest; or other programs, on six CPUs that are not its own.
    """
    further: RoleRecord = {"name": "forwarder", "kind": "forward", "cpu_cores": cores}
    counted: RoleRecord = {"name": "load-2", "kind": "load", "cpu_cores": 0.4, "measured": True}
    bad = replace(
        BAD,
        machine={"busy_cores": 2.0},
        roles=(further, counted),
        figures=figures(server__cpu_cores=0.7, generator__cpu_cores=0.4),
    )
    # One that died within the window had used nothing by then.
    died = replace(bad, outcome="failed", roles=({**further, "cpu_cores": 0.0}, counted))
    assert crowded([bad, died, died], [bad], MACHINE.model_copy(update={"cpus_online": 8})) is found


@pytest.mark.parametrize(("busy", "found"), [(2.0, True), (2.11, False), (1.79, False)])
def test_over_emulated_links_all_that_was_busy_is_theirs_where_it_is_no_more_than_the_labs_cpus(
    *, busy: float, found: bool
) -> None:
    """What the emulator uses is in no figure of a trial."""
    used = figures(server__cpu_cores=0.7, generator__cpu_cores=0.4)
    bad = replace(BAD, machine={"busy_cores": busy}, network={"links": []}, figures=used)
    assert crowded([bad], [bad], MACHINE.model_copy(update={"cpus_online": 8})) is found


def test_nothing_is_said_of_a_machine_that_is_not_known() -> None:
    unknown = MACHINE.model_copy(update={"cpus": None, "memory": None})
    bad = replace(BAD, machine={"busy_cores": 9.0}, figures=figures(server__memory_bytes=1e15, server__cpu_cores=0.21))
    assert what_broke(SUITE, [bad], [bad], unknown).causes == []
    full = replace(
        bad, machine={"busy_cores": 1.89}, figures=figures(server__memory_bytes=972e6, server__cpu_cores=0.2)
    )
    assert what_broke(SUITE, [full], [full], MACHINE).causes == [], "just below both"


def test_medians_are_of_trials_with_a_result_and_the_figure() -> None:
    made = [replace(GOOD, figures={"a": value}) for value in (1.0, 5.0, 2.0)]
    assert medians([*made, replace(made[1], outcome="invalid"), GOOD], ("a", "b")) == {"a": 2.0}
