"""What is said of the hosts of a cluster, of records without any cluster."""

from __future__ import annotations

from made_records import run_record

from plimsoll_lab.analysis.hosts import clock_row, host_rows, host_warnings
from plimsoll_lab.report.hosts import section
from plimsoll_lab.report.view import Table, Text
from plimsoll_lab.store.records import ClockRecord, OffsetRecord, TrialRecord
from plimsoll_lab.store.run_record import HostRecord, RunRecord


def host(name: str, machine: str, **environment: object) -> HostRecord:
    known = {"cpu": "one", "load_average": name, "open_files_limit": {"soft": 1, "hard": 2}, **environment}
    return HostRecord(
        name=name,
        address=f"10.0.0.{name[1:]}",
        called=(),
        labels={},
        machine=machine,
        versions={},
        environment=known,
    )


def run_on(*hosts: HostRecord) -> RunRecord:
    run = run_record()
    run.hosts = hosts
    return run


def test_hosts_that_are_alike_are_not_warned_of() -> None:
    run = run_on(host("h1", "a"), host("h2", "b"))
    assert host_warnings(run) == []
    assert [row.name for row in host_rows(run) if row.differs] == []


def test_what_hosts_differ_in_is_named_and_marked() -> None:
    run = run_on(host("h1", "a"), host("h2", "b", cpu="two", tcp_congestion_control="bbr"))
    (warning,) = host_warnings(run)
    assert (warning.code, warning.message) == ("hosts_differ", "the hosts differ in cpu, tcp congestion control")
    table = section(run, ()).parts[0]
    assert isinstance(table, Table)
    assert table.head == ("", "h1", "h2")
    marked = {row[0].text: [cell.text for cell in row[1:]] for row in table.rows if row[0].badge}
    assert marked == {"cpu": ["one", "two"], "tcp congestion control": ["not told", "bbr"]}


def test_hosts_on_one_machine_are_said_to_be() -> None:
    run = run_on(host("h1", "a"), host("h2", "b"), host("h3", "a"))
    (warning,) = host_warnings(run)
    assert warning.code == "hosts_share_machine"
    assert warning.message.startswith("h1, h3 are one machine")


def test_a_run_on_one_machine_has_no_hosts() -> None:
    assert host_warnings(run_record()) == []
    assert not section(run_record(), ()).parts


def clock(name: str, address: str, offset_us: float, error_us: float) -> ClockRecord:
    told = OffsetRecord(offset_us=offset_us, error_us=error_us)
    return ClockRecord(host=name, address=address, before=told, after=told)


def trial(number: int, start_spread_s: float, *clocks: ClockRecord) -> TrialRecord:
    return TrialRecord(
        number=number, block=1, point=0, setting={}, outcome="ok", reason=None, warnings=(), figures={},
        started_unix_s=0.0, elapsed_s=1.0, server={}, load={}, machine={},
        hosts={"clocks": clocks, "start_spread_s": start_spread_s},
    )  # fmt: skip


def test_each_node_that_had_a_name_has_its_own_column_and_clock() -> None:
    run = run_on(host("h1", "a"), host("h2", "b"), host("h2", "b").model_copy(update={"address": "10.0.0.3"}))
    assert host_warnings(run) == [], "h2 shares no machine with h2"
    trials = [
        trial(1, 0.0002, clock("h1", "10.0.0.1", -31.0, 40.0), clock("h2", "10.0.0.2", 5.0, 61.0)),
        trial(2, 0.0010, clock("h1", "10.0.0.1", -35.0, 52.0), clock("h2", "10.0.0.3", 2100.0, 90.0)),
    ]
    table, spread = section(run, trials).parts
    assert isinstance(table, Table)
    assert [cell.text for cell in table.rows[-1]] == [
        "clock against the lab's",
        "-33.0 us, known within 52.0 us",
        "5.00 us, known within 61.0 us",
        "2.10 ms, known within 90.0 us",
    ]
    assert isinstance(spread, Text)
    assert spread.text == (
        "Generators of one trial opened their windows within 600 us of each other in the median, and 1.00 ms at most."
    )


def test_a_property_that_one_host_does_not_tell_differs_and_the_load_of_the_moment_does_not() -> None:
    run = run_on(host("h1", "a", memory="1 kB", extra=None), host("h2", "b", memory="2 kB"))
    rows = {row.name: (row.values, row.differs) for row in host_rows(run)}
    assert rows == {
        "address": (("10.0.0.1", "10.0.0.2"), False),
        "cpu": (("one", "one"), False),
        "load_average": (("h1", "h2"), False),
        "open_files_limit": (("soft 1, hard 2", "soft 1, hard 2"), False),
        "memory": (("1 kB", "2 kB"), True),
        "extra": (("not told", "not told"), False),
    }


def test_warnings_of_hosts_say_what_to_do() -> None:
    run = run_on(host("h1", "a", memory="1 kB"), host("h2", "a"), host("h3", "b"), host("h4", "b"))
    differ, first, second = host_warnings(run)
    assert (differ.code, differ.message, differ.remedy) == (
        "hosts_differ",
        "the hosts differ in memory",
        "compare only what ran on the same hosts, or make them alike; the page lists each host",
    )
    assert [each.message for each in (first, second)] == [
        "h1, h2 are one machine: they take each other's CPU",
        "h3, h4 are one machine: they take each other's CPU",
    ]
    assert {(each.code, each.remedy) for each in (first, second)} == {
        ("hosts_share_machine", "give each host a machine of its own, or read CPU per request and not rates")
    }


def test_a_clock_is_told_by_the_middle_of_what_was_seen_and_the_worst_error() -> None:
    run = run_on(host("h1", "a"), host("h2", "b"))
    row = clock_row(
        run,
        [
            trial(1, 0.0, clock("h1", "10.0.0.1", 10.0, 5.0), clock("h1", "10.0.0.9", 900.0, 900.0)),
            trial(2, 0.0, clock("h1", "10.0.0.1", 30.0, 8.0), clock("h3", "10.0.0.1", 900.0, 900.0)),
            trial(3, 0.0, clock("h1", "10.0.0.1", 40.0, 7.0)),
        ],
    )
    assert (row.name, row.differs) == ("clock against the lab's", False)
    assert row.values == ("30.0 us, known within 8.00 us", "not told")
