"""What a trial's figures are made of."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import cast

import pytest
from small_suites import GOOD, suite

from plimsoll_lab.analysis import formatting
from plimsoll_lab.hosts.host import Host
from plimsoll_lab.hosts.samplers.usage import Usage
from plimsoll_lab.store.form import record_of
from plimsoll_lab.store.records import Json, MeasuredLoadRecord, RoleRecord, Sample
from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.figures import FIGURES, figure_named, figures_of, read_limit
from plimsoll_lab.suite.read import read_text
from plimsoll_lab.suite.settings import Value
from plimsoll_lab.suite.spec import Placement, Point, Role
from plimsoll_lab.trial import testbed
from plimsoll_lab.trial.figures import FigureSources, late_of_parts, least_cores, sequences, trial_figures
from plimsoll_lab.trial.window import Window

SUMMARY: Json = {
    "completed_rate": 30.0,
    "requests": {"completed": 100, "failed": 2},
    "connections": {"established": 9},
    "establishment_time_us": {"count": 100, "mean": 250.0},
    "transmission_time_us": {"count": 100, "mean": 750.0},
    "generator": {"cpu_cores": 0.2},
}


def figures(roles: tuple[Role, ...] = (), targets: tuple[str, ...] = (), **changed: object) -> dict[str, float]:
    window = Window(first=Usage(cpu_s=1.0, memory_bytes=10), last=Usage(cpu_s=3.0, memory_bytes=20), length_s=4.0)
    sources: dict[str, object] = {
        "load": {"summary": SUMMARY},
        "connections": (),
        "server": {"summary": {"peak_connections": 9}},
        "roles": ({"name": "forwarder", "host": "h1", "cpu_cores": 0.5, "memory_bytes": 700},),
        "hosts": {
            "counters": {"h1": {"packets_sent": 30, "packets_received": 50, "retransmitted_segments": 4}},
            "timeline": [
                {
                    "hosts": {"h1": {"socket_memory_bytes": 4096}},
                    "parts": {"server": {"memory_bytes": 1000}, "forwarder": {"memory_bytes": 700}},
                    "machine": {"load_average": 1.5},
                }
            ],
        },
        "captures": (),
        "seconds": (),
        "window": window,
    }
    load: dict[str, Value] = {"connections": 10, "each": 12, "size": "255B"}
    load |= {"target": targets} if targets else {}
    place = Placement(server="h1", load=("h2",))
    point = Point(number=0, setting={}, server={}, load=load, place=place, roles=roles)
    return trial_figures(FigureSources(**{**sources, **changed}), point)  # type: ignore[arg-type]


def test_each_generator_says_which_of_its_figures_are_its_own_lateness() -> None:
    """The figures of both were left out for the lateness of one."""
    names = ["response_time_us.mean", "response_time_us.p99"]
    late: Json = {"doubted": names}
    sound: Json = {"doubted": []}
    generators: list[Json] = [
        {"name": name, "host": host, "command": [], "exit_code": 0, "stderr_tail": "", "summary": summary}
        for name, host, summary in (("load", "h1", late), ("load-2", "h2", sound), ("other", "h3", late))
    ]
    load = record_of(MeasuredLoadRecord, {"summary": sound, "generators": generators})
    roles = [
        record_of(RoleRecord, {"name": name, "kind": "load", "host": "h3", "summary": summary})
        for name, summary in (("other", late), ("saturator", {"doubted": ["response_time_us.max"]}), ("silent", None))
    ]
    assert sorted(late_of_parts(load, roles)) == [
        *(f"client.h1.{name}" for name in names),
        *(f"role.other.{name}" for name in names),
        "role.saturator.response_time_us.max",
    ]
    assert late_of_parts(record_of(MeasuredLoadRecord, {"summary": late}), ()) == []


def test_what_was_done_stands_beside_what_was_due() -> None:
    found = figures()
    assert (found["requests.due"], found["requests.completed"]) == (120, 100)
    assert found["bytes_due"] == 120 * 255
    assert found["connections.never_established"] == 1
    assert found["server.peak_connections"] == 9


def second(name: str = "second", **settings: Value) -> Role:
    return Role(name=name, kind="load", on="h3", measured=True, settings=settings)


def test_what_was_due_is_that_of_every_measured_load_as_what_was_done_is() -> None:
    found = figures(roles=(second(connections=6, each=2, size="100B"),))
    assert (found["requests.due"], found["bytes_due"]) == (10 * 12 + 6 * 2, 120 * 255 + 12 * 100)
    assert found["connections.never_established"] == 16 - 9
    endless = figures(roles=(second(connections=6, duration="1s"),))
    assert "requests.due" not in endless
    pages = figures(roles=(second(connections=6, each=2, protocol="http"),))
    assert (pages["requests.due"], "bytes_due" in pages) == (132, False)


def test_what_another_server_answers_is_no_work_of_the_server_under_test() -> None:
    def origin(**settings: Value) -> Role:
        return Role(name="origin", kind="server", on="h1", measured=False, settings=settings)

    cost = "server.cpu_us_per_request"
    assert cost in figures(roles=(second(target="role:server"), origin()))
    assert cost not in figures(roles=(second(target="role:origin"), origin()))
    assert cost in figures(roles=(second(target="role:origin"), origin(command=("nginx",))))
    assert cost not in figures(roles=(origin(),), targets=("role:server", "role:origin"))
    assert cost in figures(roles=(origin(),), targets=("role:server", "role:server"))


def test_the_growth_of_a_backlog_is_told_of_an_open_loop_whose_generators_tell_every_second() -> None:
    def rows(sums_s: list[float]) -> list[Json]:
        times = [{"count": 100, "mean": each * 1e6 / 100} for each in sums_s]
        return [{"second": n, "phase": "window", "response_time_us": each} for n, each in enumerate(times)]

    growing = rows([99.0, *(5.0 + second for second in range(8)), 99.0])
    summary = {**SUMMARY, "intended_rate": 200.0, "offered_rate": 200.0}
    found = figures(load={"summary": summary}, seconds=[growing])
    # One more each second is half a percent of 200. The two ends of the window are not whole.
    assert found["backlog_growth.low"] == pytest.approx(0.005)
    assert found["backlog_growth.high"] == pytest.approx(0.005)
    twice = figures(load={"summary": summary}, seconds=[growing, growing])
    assert twice["backlog_growth.high"] == pytest.approx(0.01)
    for seconds, sources in (([growing, []], summary), ([growing[:9]], summary), ([growing], SUMMARY)):
        assert "backlog_growth.high" not in figures(load={"summary": sources}, seconds=seconds)


def test_a_fetch_bears_its_part_of_what_connecting_took() -> None:
    assert figures()["connection_and_transmission_us"] == 1000.0
    one_connection = {**SUMMARY, "establishment_time_us": {"count": 5, "mean": 250.0}}
    assert figures(load={"summary": one_connection})["connection_and_transmission_us"] == 762.5


def test_what_a_server_spends_on_a_load_that_does_not_count_is_no_cost_of_one_that_does() -> None:
    def load(target: str, *, measured: bool) -> Role:
        return Role(name="other", kind="load", on="h3", measured=measured, settings={"target": target})

    relay = Role(name="relay", kind="forward", on="h3", measured=False, settings={"target": "role:server"})
    second = Role(name="second", kind="server", on="h3", measured=False, settings={})
    assert figures()["server.cpu_us_per_request"] == 20_000
    for beside, known in (
        (load("role:server", measured=False), False),
        (load("role:relay", measured=False), False),
        (load("role:second", measured=False), True),
        (load("role:server", measured=True), True),
    ):
        found = figures((beside, relay, second))
        assert ("server.cpu_us_per_request" in found) == known, beside
        assert found["server.cpu_cores"] == 0.5


def test_the_least_cpu_is_that_of_any_half_second_and_of_no_single_sample() -> None:
    def samples(*cores: float) -> list[Sample]:
        totals = itertools.accumulate((each * 0.1 for each in cores), initial=7.0)
        return [Sample(at_s=0.1 * n, cpu_s=total, memory_bytes=None) for n, total in enumerate(totals)]

    steady, dip = [1.0] * 10, [0.2] * 5
    assert least_cores(samples(*steady, *dip, *steady)) == pytest.approx(0.2)
    # One sample of nothing is a fifth of the half second around it.
    assert least_cores(samples(*steady, 0.0, *steady)) == pytest.approx(0.8)
    assert least_cores(samples(*[1.0] * 4)) is None, "too short"
    assert least_cores([samples(*steady)[0], samples(*steady)[-1]]) is None, "only its ends were read"
    assert least_cores([]) is None
    window = Window(first=Usage(cpu_s=1.0, memory_bytes=10), last=Usage(cpu_s=3.0, memory_bytes=20), length_s=2.5)
    window.samples.extend(samples(*steady, *dip, *steady))
    assert figures(window=window)["server.cpu_cores_min"] == pytest.approx(0.2)


def test_a_host_counts_its_packets_both_ways_and_its_parts_with_their_sockets() -> None:
    found = figures()
    assert (found["packets"], found["packets_per_s"], found["tcp.retransmitted_segments"]) == (80, 20.0, 4)
    assert found["host.memory_bytes"] == 1000 + 700 + 4096
    assert found["host.load_average"] == 1.5


@pytest.mark.parametrize(
    ("metering", "shares_machine", "sockets"),
    [
        ("cgroup v1", False, 4096),
        ("proc", False, 4096),
        ("cgroup v2", False, 0),
        ("cgroup v1", True, 0),
        ("cgroup v2", True, 0),
    ],
)
def test_sockets_of_other_hosts_and_sockets_that_a_group_has_counted_are_no_memory_of_the_host(
    metering: str, *, shares_machine: bool, sockets: int
) -> None:
    """The kernel's total, of all hosts on the machine, was added to what cgroup v2 had counted."""
    found = figures(server={"metering": metering}, shares_machine=shares_machine)
    assert found["host.memory_bytes"] == 1000 + 700 + sockets


def test_hosts_share_a_machine_where_the_kernel_is_one() -> None:
    def hosts_on(**machines: str) -> testbed.Testbed:
        hosts = {name: SimpleNamespace(machine=machine) for name, machine in machines.items()}
        return testbed.Testbed(hosts=cast("dict[str, Host]", hosts))

    assert not hosts_on(local="a").shares_machine(None)
    assert hosts_on(local="a", h1="a", h2="a").shares_machine("h1")
    cluster = hosts_on(h1="a", h2="b", h3="b")
    assert [cluster.shares_machine(name) for name in ("h1", "h2", "h3")] == [False, True, True]


def test_of_a_server_on_another_machine_no_host_and_no_packets_are_told() -> None:
    """They were those of the laboratory's own machine."""
    there, here = figures(server={"elsewhere": True}), figures(server={"elsewhere": False})
    gone = {"packets", "packets_per_s", "tcp.retransmitted_segments", "host.memory_bytes", "host.load_average"}
    assert here.keys() - there.keys() == gone
    assert here == figures(server={})


def test_each_role_and_each_generator_has_figures_of_its_own() -> None:
    """A measured role, here the forwarder's, had its figures told of the generator on its host."""
    told = (("load", "h2", 30.0), ("load-2", "h3", 60.0), ("forwarder", "h2", 7.0))
    generators = [
        {"name": name, "host": host, "summary": {**SUMMARY, "completed_rate": rate}} for name, host, rate in told
    ]
    found = figures(load={"summary": SUMMARY, "generators": generators})
    assert found["role.forwarder.cpu_cores"] == 0.5
    assert (found["client.h2.completed_rate"], found["client.h3.completed_rate"]) == (30.0, 60.0)
    assert found["client.h3.cpu_cores"] == 0.2


def test_a_capture_tells_endpoints_flags_and_the_swing_of_its_whole_intervals() -> None:
    intervals = [{"packets": 1}, {"packets": 40}, {"packets": 80}, {"packets": 2}]
    summary = {"endpoints": 11, "packets": 123, "interval_s": 0.5, "interval": intervals, "tcp": {"resets": 3}}
    found = figures(captures=({"summary": summary},))
    assert (found["endpoints"], found["capture.packets"], found["capture.resets"]) == (11, 123, 3)
    assert found["capture.packets_per_s_max"] == 82.0
    assert found["capture.packets_per_s_swing"] == 0.5


@pytest.mark.parametrize(
    ("interval_s", "packets", "most"),
    [(1.0, [5, 40, 7], 40.0), (0.1, [90] + [1] * 9 + [10] * 10 + [99], 100.0), (0.1, [90, 9], 99.0)],
)
def test_the_busiest_second_is_one_however_short_the_capture(
    interval_s: float, packets: list[int], most: float
) -> None:
    """A capture below ten seconds has intervals of a tenth: its busiest one is no second."""
    summary = {"interval_s": interval_s, "interval": [{"packets": each} for each in packets]}
    assert figures(captures=({"summary": summary},))["capture.packets_per_s_max"] == pytest.approx(most)


def test_the_swing_of_a_capture_leaves_out_where_connections_open_and_close() -> None:
    steady = [{"packets": 100}, {"packets": 90}] * 9
    opening, closing = [{"packets": 400}, {"packets": 300}], [{"packets": 20}, {"packets": 1}]
    summary = {"interval_s": 1.0, "interval": [*opening, *steady, *closing]}
    assert figures(captures=({"summary": summary},))["capture.packets_per_s_swing"] == pytest.approx(0.1)
    one = {"interval_s": 1.0, "interval": [{"packets": 1}, {"packets": 9}, {"packets": 1}]}
    assert "capture.packets_per_s_swing" not in figures(captures=({"summary": one},)), "one interval has no swing"


def test_times_of_sequences_leave_failures_out_and_counters_do_not() -> None:
    good: Json = {"success": True, "failed_connects": 1, "failed_sequences": 2, "failed_requests": 3}
    times: list[Json] = [
        {"establishment_time_us": 1e6, "service_time_total_us": 2e6},
        {"establishment_time_us": 3e6, "service_time_total_us": 6e6},
    ]
    lost: Json = {**good, "success": False, "establishment_time_us": 9e9, "service_time_total_us": 9e9}
    found = sequences([{**good, **times[0]}, {**good, **times[1]}, lost], elapsed_s=8.0)
    assert found["tcpbenchmark.success"] == 2
    assert found["tcpbenchmark.failed_connect"] == 3
    assert found["tcpbenchmark.failed_send_recv_loop"] == 6
    assert found["tcpbenchmark.failed_send_recv"] == 9
    assert found["tcpbenchmark.connect_time_s.total"] == 4.0
    assert found["tcpbenchmark.send_recv_time_s.average"] == 4.0
    assert found["tcpbenchmark.send_recv_time_s.sample_variance"] == 8.0
    assert found["tcpbenchmark.send_recv_time_s.max"] == 6.0
    assert found["tcpbenchmark.send_recv_time_s.variation"] == pytest.approx(8**0.5 / 4)
    assert found["tcpbenchmark.times_over_elapsed"] == 1.5


def test_the_times_of_tcpbenchmarks_own_run_have_its_figures() -> None:
    connects, exchanges = (1390.954, 1288.070, 1646.454), (362.995, 474.143, 457.696)
    good: Json = {"success": True, "failed_connects": 0, "failed_sequences": 0, "failed_requests": 0}
    rows = [
        {**good, "establishment_time_us": connect, "service_time_total_us": exchange}
        for connect, exchange in zip(connects, exchanges, strict=True)
    ]
    found = sequences(rows, elapsed_s=0.002886)
    # The row that it prints, to six decimals.
    assert f"{found['tcpbenchmark.connect_time_s.total']:.6f}" == "0.004325"
    assert f"{found['tcpbenchmark.connect_time_s.average']:.6f}" == "0.001442"
    assert f"{found['tcpbenchmark.connect_time_s.sample_variance']:.6f}" == "0.000000"
    assert f"{found['tcpbenchmark.connect_time_s.max']:.6f}" == "0.001646"
    assert f"{found['tcpbenchmark.send_recv_time_s.total']:.6f}" == "0.001295"
    assert f"{found['tcpbenchmark.send_recv_time_s.average']:.6f}" == "0.000432"
    # What its sentences say of it: hardly any fluctuation, and a sum above the time of the whole.
    assert found["tcpbenchmark.connect_time_s.variation"] == pytest.approx(0.128, abs=0.001)
    assert found["tcpbenchmark.send_recv_time_s.variation"] == pytest.approx(0.139, abs=0.001)
    assert found["tcpbenchmark.times_over_elapsed"] == pytest.approx(1.947, abs=0.001)


def test_nobody_that_succeeded_took_no_time_at_all() -> None:
    found = sequences([{"success": False, "failed_connects": 1, "failed_sequences": 0, "failed_requests": 0}])
    assert found["tcpbenchmark.connect_time_s.total"] == 0
    assert str(float(found["tcpbenchmark.connect_time_s.total"])) == "0.0"


def test_every_figure_has_one_name_and_each_can_be_a_limit() -> None:
    assert len({each.name for each in FIGURES}) == len(FIGURES)
    values = {"us": "1ms", "s": "1s", "bytes": "1KB", "ratio": "1%"}
    for figure in FIGURES:
        limit = read_limit(figure.name, f"< {values.get(figure.unit, '1')}", source="it.toml")
        assert limit.figure == figure.name
    assert read_limit("packets_per_s", "> 1", source="it.toml").figure == "packets_per_s"
    assert read_limit("elapsed", "< 2s", source="it.toml").value == 2.0


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "1e3", "1_0"])
@pytest.mark.parametrize("name", ["server.cpu_cores", "completed_rate", "goodput", "response_time.p99"])
def test_what_is_no_number_bounds_no_figure(name: str, text: str) -> None:
    with pytest.raises(SuiteError, match="is not a"):
        read_limit(name, f"< {text}", source="it.toml")


def test_a_limit_on_a_rate_or_on_cores_is_any_number() -> None:
    bounds = {"server.cpu_cores": "0.5", "completed_rate": "0.5", "goodput": "1.5M"}
    assert [read_limit(name, f"< {text}", source="it.toml").value for name, text in bounds.items()] == [0.5, 0.5, 1.5e6]


def test_a_load_average_is_no_count() -> None:
    """A limit of 1.5 was refused, and an exact one that no machine meets was not."""
    assert read_limit("host.load_average", "< 1.5", source="it.toml").value == 1.5
    with pytest.raises(SuiteError, match="== and != compare counts"):
        read_limit("host.load_average", "== 1", source="it.toml")


def test_a_limit_may_ask_for_an_exact_value_and_for_a_status() -> None:
    limit = read_limit("statuses.404", "== 0", source="it.toml")
    assert (limit.figure, limit.operator, limit.value) == ("statuses.404", "==", 0.0)
    assert read_limit("status_codes.5xx", "!=7", source="it.toml").operator == "!="
    for name in ("statuses.4xx", "statuses.099", "status_codes.404"):
        with pytest.raises(SuiteError, match="no such figure"):
            read_limit(name, "== 0", source="it.toml")


def test_answers_by_status_are_figures_where_a_limit_names_them() -> None:
    summary = {**SUMMARY, "statuses": {"200": 98, "404": 2}, "status_codes": {"2xx": 98, "4xx": 2}}
    asked = ("statuses.404", "statuses.503", "status_codes.4xx", "response_time_us.p99")
    found = figures(load={"summary": summary}, asked=asked)
    named = {name: value for name, value in found.items() if name.startswith("status")}
    assert named == {"statuses.404": 2, "statuses.503": 0, "status_codes.4xx": 2}
    assert "statuses.404" not in figures(asked=asked), "without a summary nothing is known"


def test_a_figure_of_a_part_is_found_by_its_name_and_an_unknown_one_refused() -> None:
    assert read_limit("role.saturator.response_time.p99", "< 1ms", source="it.toml").value == 1000.0
    assert figure_named("client.h2.completed_rate") is not None
    assert figure_named("role.saturator.speed") is None
    with pytest.raises(SuiteError, match="no such figure"):
        read_limit("role.saturator.speed", "< 1ms", source="it.toml")


def test_a_suite_has_the_figures_of_its_roles_and_generators() -> None:
    suite = read_text(
        """
name = "it"
question = "Well?"
[server]
[load]
duration = "1s"
[network]
topology = "single,4"
[place]
server = "h1"
load = ["h2", "h3"]
[[role]]
name = "saturator"
kind = "load"
on = "h4"
measured = false
""",
        source="it.toml",
        directory="/here",
    )
    names = {each.name for each in figures_of(suite)}
    assert {"role.saturator.cpu_cores", "client.h2.completed_rate", "client.h3.elapsed_s"} <= names


@pytest.mark.parametrize(
    ("table", "name"),
    [
        ('[verdict]\nfigures = ["statuses.404"]\n', "statuses.404"),
        ('[[chart]]\nfigure = "client.h7.cpu_cores"\nover = "server.model"\n', "client.h7.cpu_cores"),
        (
            (
                '[[reference]]\nat = { "server.model" = "poll" }\nsource = "A report"\n'
                'figure = "client.h7.cpu_cores"\nvalue = 0.2\n'
            ),
            "client.h7.cpu_cores",
        ),
    ],
)
def test_a_suite_has_every_figure_that_it_names(table: str, name: str) -> None:
    """That of a host that `--set` left out, or of a status that is only compared, was unknown to
    whoever looked for its unit: once all trials were made, the answer was an internal error.
    """
    pages = GOOD.replace("[load]", '[load]\nprotocol = "http"') + '[matrix]\n"server.model" = ["epoll", "poll"]\n'
    names = [each.name for each in figures_of(suite(pages.replace('"echo"', '"http"') + table))]
    assert name in names
    assert len(names) == len(set(names))


def test_hosts_that_a_suite_only_counts_have_figures_by_name() -> None:
    suite = read_text(
        'name = "it"\nquestion = "Well?"\n[server]\n[load]\nduration = "1s"\n[network]\ntopology = "single,4"\n'
        '[place]\nload = "2 hosts"\n',
        source="it.toml",
        directory="/here",
    )
    names = {each.name for each in figures_of(suite, expand(suite, seed=1).points)}
    assert {"client.h2.completed_rate", "client.h3.elapsed_s"} <= names
    assert not [each for each in names if each.startswith(("client.h1.", "client.h4."))]


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("load.connections", 2000, "2,000 connections"),
        ("role.saturator.connections", 8, "8 saturator connections"),
        ("role.saturator.connections", 1, "1 saturator connection"),
        ("role.saturator.active", False, "no saturator"),
        ("load.reconnect", True, "reconnect"),
        ("load.size", "64B", "size 64B"),
    ],
)
def test_a_setting_in_words_says_whose_it_is(path: str, value: object, words: str) -> None:
    assert formatting.setting({path: value}) == words
