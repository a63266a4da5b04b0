"""What is said of the hosts of a cluster, of records without any cluster."""

from __future__ import annotations

from made_records import run_record

from plimsoll_lab.analysis.hosts import host_rows, host_warnings
from plimsoll_lab.report.hosts import section
from plimsoll_lab.report.view import Table
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
    table = section(run).parts[0]
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
    assert not section(run_record()).parts
