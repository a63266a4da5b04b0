"""What the emulator's own lateness leaves of a trial, a figure at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from made_records import point_summary, run_record

from plimsoll_lab.analysis.percentiles import curves
from plimsoll_lab.analysis.points import summarise_point
from plimsoll_lab.analysis.run_warnings import doubtful_figures
from plimsoll_lab.hosts.netns import Network
from plimsoll_lab.problem import ENVIRONMENT, LabError
from plimsoll_lab.store.program_output import LinkWindow
from plimsoll_lab.store.records import Json, TrialRecord
from plimsoll_lab.store.run_record import PointRecord
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.figures import read_limit
from plimsoll_lab.suite.read import read_text
from plimsoll_lab.suite.spec import PlannedTrial, Point, Suite
from plimsoll_lab.trial import testbed
from plimsoll_lab.trial.disturbance import (
    LoggedRequest,
    cut_record,
    is_told,
    network_warnings,
    read_log,
    unknown_moments,
    without_cut,
)
from plimsoll_lab.trial.events import take_log
from plimsoll_lab.trial.expectations import first_unmet, unjudged
from plimsoll_lab.trial.lifecycle import run_trial
from plimsoll_lab.trial.link_monitor import LinkMonitor
from plimsoll_lab.trial.moments import cut_of
from plimsoll_lab.trial.parts import PartialRecord
from plimsoll_lab.trial.retry import PASSING_WHERE_INVALID
from plimsoll_lab.trial.window import Window


def network(*, late: int = 0, lost: int = 0, unread: int = 0, moments: int = 0) -> LinkWindow:
    inner = {"from": "h1-eth0", "to": "s1", "delivered": 10_000, "released_late": 0, "dropped_by_fault": unread}
    last = {"from": "s1", "to": "h2-eth0", "delivered": 10_000, "released_late": late, "dropped_by_fault": lost}
    each = {"from_unix_s": 1.0, "to_unix_s": 1.1, "late_frames": late, "lost_frames": lost, "worst_us": 2500}
    return LinkWindow.model_validate({"links": [inner, last], "disturbances": [each] * moments})


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (None, None),
        (network(), None),
        (network(late=5000, moments=9), None),
        (network(lost=1, moments=1), None),
        (LinkWindow(silent=True), "said nothing"),
        (network(late=20), None),
        (network(late=21), "were late for 21 of 10000 packets during the window, and nothing says when"),
        (network(unread=2), "lost 2 packets that they should have delivered during the window, and nothing says when"),
        # As many connections are opened right before the window, or closed right after it.
        (network(late=21).model_copy(update={"late_outside": 1}), None),
    ],
)
def test_only_faults_of_an_unknown_moment_spoil_a_trial(seen: LinkWindow | None, said: str | None) -> None:
    found = unknown_moments(seen)
    assert (found is None) if said is None else (found is not None and said in found)


def test_the_reason_names_the_faults_that_are_too_many() -> None:
    """Of a closed loop a hundredth may be lost: a lost packet was the reason, and 21 were late."""
    assert "the links were late for 21 of 10000 packets during" in str(unknown_moments(network(late=21, lost=1), 100))
    both = "the links lost 2 packets that they should have delivered and were late for 21 of 10000 packets during"
    assert both in str(unknown_moments(network(late=21, lost=2), 100))


def test_links_that_were_late_at_no_known_moment_have_a_warning_by_which_the_trial_is_made_again() -> None:
    (warning,) = network_warnings(network(late=21))
    assert (warning.code in PASSING_WHERE_INVALID, warning.message) == (True, unknown_moments(network(late=21)))
    assert network_warnings(network(late=20)) == []


def test_a_moment_outside_of_the_window_is_none_of_its_faults() -> None:
    """The counts are from before a window to after it, and hold what happened around it too."""

    def counters(unix_s: float, late: int) -> Json:
        ways = [{"from": "s1", "to": "h2-eth0", "delivered": 10_000, "released_late": late, "dropped_by_fault": 0}]
        return {"event": "counters", "unix_s": unix_s, "links": ways}

    moment = {"from_unix_s": 9.95, "to_unix_s": 9.99, "late_frames": 9, "lost_frames": 0, "worst_us": 2500}
    emulated = SimpleNamespace(
        latest=counters(9.9, 0),
        counters=lambda *_: counters(12.2, 90),
        disturbances=lambda start, end: (
            [moment] if start <= moment["to_unix_s"] and end >= moment["from_unix_s"] else []
        ),
    )
    monitor = LinkMonitor(cast("Network", emulated))
    monitor.begin()
    seen = LinkWindow.model_validate(monitor.record(Window(opened_unix_s=10.0, closed_unix_s=12.0)))
    assert (seen.links[0].released_late, seen.disturbances, seen.late_outside) == (90, [], 9)
    assert (unknown_moments(seen), network_warnings(seen)) == (None, [])


def test_counts_are_those_of_which_it_is_told_when_packets_were_late_or_lost() -> None:
    """A packet that was dropped as connections closed spoilt the trial: the counts had it, and when
    that was came a tenth of a second later.
    """
    moment = {"event": "disturbance", "from_unix_s": 12.1, "to_unix_s": 12.2, "late_frames": 0, "lost_frames": 1}
    told = [
        {"event": "counters", "unix_s": 11.9, "disturbed": False},
        {"event": "counters", "unix_s": 12.2, "disturbed": True},
        moment,
        {"event": "counters", "unix_s": 12.4, "disturbed": False},
    ]
    lines = iter([json.dumps(each) for each in told])
    emulator = SimpleNamespace(take_lines=lambda: [next(lines)], exit_code=lambda: None)
    emulated = Network(cast("Any", SimpleNamespace(wait=lambda *_: None)), {}, cast("Any", emulator), {}, ())
    counts = emulated.counters(12.0, 60)
    assert counts is not None
    assert (counts["unix_s"], emulated.disturbances(12.0, 13.0)) == (12.4, [moment])


def test_counts_of_which_it_is_never_told_when_are_the_last_ones_there_are() -> None:
    lines = iter([["{}"], [json.dumps({"event": "counters", "unix_s": 12.2, "disturbed": True})], []])
    emulator = SimpleNamespace(take_lines=lambda: next(lines), exit_code=lambda: None)
    emulated = Network(cast("Any", SimpleNamespace(wait=lambda *_: None)), {}, cast("Any", emulator), {}, ())
    emulated.listen()
    assert emulated.counters(12.0, 0.0) == {"event": "counters", "unix_s": 12.2, "disturbed": True}
    assert emulated.counters(12.3, 0.0) is None


def test_a_run_ends_where_its_emulator_has() -> None:
    """Each later server could bind no address, and had failed."""
    ended = SimpleNamespace(exit_code=lambda: -9, stderr_tail=lambda: "it fell\n", lacked_memory=lambda: False)
    emulated = Network(cast("Any", None), {}, cast("Any", ended), {}, ())
    emulated_hosts = testbed.Testbed(hosts={}, network=emulated)
    suite, point = cast("Suite", None), cast("Any", None)
    with pytest.raises(LabError, match=r"links with it \(killed by SIGKILL, saying: it fell\).*resume") as refusal:
        run_trial(emulated_hosts, "", suite, point, PlannedTrial(number=1, block=1, point=0))
    assert refusal.value.exit_code == ENVIRONMENT


def test_where_most_of_a_window_is_cut_out_its_rate_is_doubted() -> None:
    most = cut_record(late_at((0.1, 9.9)), (OPENED, OPENED + 10), log(), closed=False)
    assert most is not None
    assert "completed_rate" in most.doubted
    part = cut_record(late_at((0.1, 4.0)), (OPENED, OPENED + 10), log(), closed=False)
    assert part is not None
    assert "completed_rate" not in part.doubted


def test_losses_are_told() -> None:
    (warning,) = network_warnings(network(lost=7))
    assert warning.code == "links_lost"
    assert "lost 7 packets" in warning.message


def test_losses_without_a_count_are_a_warning() -> None:
    uncounted = network().model_copy(update={"drops_unknown": ("h1-eth0", "h2-eth0")})
    (warning,) = network_warnings(uncounted)
    assert warning.code == "losses_unknown"
    assert "what h1-eth0, h2-eth0 dropped is not known" in warning.message


OPENED = 1_795_000_000.0
FIGURES = {
    "completed_rate": 90.0,
    "goodput_bits_per_s": 900.0,
    "response_time_us.p50": 2000.0,
    "response_time_us.p99": 150_000.0,
    "response_time_us.max": 150_000.0,
    "service_time_us.p99": 150_000.0,
    "server.cpu_us_per_request": 7.0,
}


def late_at(*moments: tuple[float, float]) -> LinkWindow:
    rows = [
        {"from_unix_s": OPENED + start, "to_unix_s": OPENED + end, "late_frames": 1, "lost_frames": 0, "worst_us": 900}
        for start, end in moments
    ]
    return LinkWindow.model_validate({"links": [], "disturbances": rows})


def log(*, delayed: tuple[float, float] = (0.0, 0.0), seconds: int = 10) -> LoggedRequest:
    """A request each 10 ms that takes 2 ms; those due in a time are answered at its end."""
    starts = [number / 100 for number in range(100 * seconds)]
    held = [delayed[0] <= start < delayed[1] for start in starts]
    times_s = [delayed[1] - start + 0.002 if late else 0.002 for start, late in zip(starts, held, strict=True)]
    return LoggedRequest(starts=[OPENED + start for start in starts], times_s=times_s)


def test_a_moment_of_disturbance_is_cut_out_and_every_other_figure_stands() -> None:
    moment = (4.0005, 4.0205)
    cut = cut_record(late_at(moment), (OPENED, OPENED + 10), log(delayed=moment), closed=True)
    assert cut is not None
    assert cut.moments == 1
    assert 0.03 <= cut.share * 10 <= 0.05
    kept = without_cut(FIGURES, cut)
    assert kept["completed_rate"] == pytest.approx(100, rel=0.01)
    assert kept["goodput_bits_per_s"] == pytest.approx(1000, rel=0.01)
    assert kept["response_time_us.p50"] == pytest.approx(2000)
    assert kept["response_time_us.p99"] == pytest.approx(2000), "the kept requests took 2 ms each"
    assert kept["server.cpu_us_per_request"] == 7.0
    assert not {"response_time_us.max", "service_time_us.p99"} & kept.keys(), "of these nothing is known"
    assert cut.bounds["response_time_us.p99"] == pytest.approx((2000, 2000))
    assert cut.doubted == ["response_time_us.p99_9"]


def test_a_long_disturbance_leaves_the_median_and_the_rate_and_no_tail() -> None:
    moment = (4.0, 5.0)
    cut = cut_record(late_at(moment), (OPENED, OPENED + 10), log(delayed=moment), closed=False)
    assert cut is not None
    assert cut.doubted == ["response_time_us.p90", "response_time_us.p99", "response_time_us.p99_9"]
    kept = without_cut(FIGURES, cut)
    assert "response_time_us.p99" not in kept
    assert kept["response_time_us.p50"] == pytest.approx(2000)
    assert kept["completed_rate"] == pytest.approx(100, rel=0.02)


def test_a_generator_without_a_log_leaves_its_rate_where_little_was_cut() -> None:
    short, long = (cut_record(late_at((4.0, end)), (OPENED, OPENED + 10), None, closed=True) for end in (4.1, 6.0))
    assert short is not None
    assert long is not None
    assert {"completed_rate", "server.cpu_us_per_request"} <= without_cut(FIGURES, short).keys()
    assert without_cut(FIGURES, long) == {"server.cpu_us_per_request": 7.0}


@pytest.mark.parametrize(
    ("name", "short", "long"),
    [
        ("client.h2.response_time_us.p99", False, False),
        ("role.saturator.establishment_time_us.mean", False, False),
        ("tcpbenchmark.connect_time_s.average", False, False),
        ("tcpbenchmark.send_recv_time_s.max", False, False),
        ("tcpbenchmark.times_over_elapsed", False, False),
        ("response_time_with_last_connections", False, False),
        ("client.h2.completed_rate", True, False),
        ("client.h2.requests.completed", True, True),
        ("tcpbenchmark.success", True, True),
        ("role.saturator.cpu_cores", True, True),
    ],
)
def test_times_of_parts_and_of_clients_are_of_the_whole_window_and_go_with_the_moment(
    name: str, *, short: bool, long: bool
) -> None:
    for end, stands in ((4.1, short), (6.0, long)):
        cut = cut_record(late_at((4.0, end)), (OPENED, OPENED + 10), log(), closed=True)
        assert (name in without_cut({name: 1.0}, cut)) is stands, end


def test_the_curve_of_percentiles_is_of_the_kept_time() -> None:
    moment = (4.0, 5.0)
    cut = cut_record(late_at(moment), (OPENED, OPENED + 10), log(delayed=moment), closed=False)
    told = {"count": 1000, "p50": 99_000.0, "p90": 99_000.0, "p95": 99_000.0}
    trial = TrialRecord(
        number=1, block=1, point=0, setting={}, outcome="ok", reason=None, warnings=(), started_unix_s=0, elapsed_s=1,
        figures=without_cut(FIGURES, cut), server={}, load={"summary": {"response_time_us": told}}, machine={}, cut=cut,
    )  # fmt: skip
    (curve,) = curves([point_summary({}, 0)], [trial])
    assert [quantile for quantile, _ in curve.quantiles] == [0.5, 0.75], "p90 is not known without the moment"
    assert [time_us for _, time_us in curve.quantiles] == pytest.approx([2000, 2000])
    (whole,) = curves([point_summary({}, 0)], [replace(trial, cut=None)])
    assert [quantile for quantile, _ in whole.quantiles] == [0.5, 0.9, 0.95]


def test_the_curve_of_percentiles_leaves_out_those_of_a_late_generator() -> None:
    told = {"count": 1_000_000, "p50": 100.0, "p99": 400.0, "p99_99": 9_000.0}
    doubted = ["response_time_us.p99", "response_time_us.p99_99"]
    trial = TrialRecord(
        number=1, block=1, point=0, setting={}, outcome="ok", reason=None, warnings=(), started_unix_s=0, elapsed_s=1,
        figures={"response_time_us.p50": 100.0}, server={},
        load={"summary": {"response_time_us": told, "doubted": doubted}}, machine={},
    )  # fmt: skip
    (curve,) = curves([point_summary({}, 0)], [trial])
    assert [quantile for quantile, _ in curve.quantiles] == [0.5]


@pytest.mark.parametrize(
    ("key", "quantile", "count"), [("p90", 0.9, 100), ("p99", 0.99, 1000), ("p99_99", 0.9999, 100_000)]
)
def test_a_percentile_is_drawn_with_ten_requests_beyond_it(key: str, quantile: float, count: int) -> None:
    """By rounding, a tenth of a hundred is less than ten."""
    for requests, drawn in ((count - 1, []), (count, [quantile])):
        trial = TrialRecord(
            number=1, block=1, point=0, setting={}, outcome="ok", reason=None, warnings=(), started_unix_s=0,
            elapsed_s=1, figures={}, server={}, machine={},
            load={"summary": {"response_time_us": {"count": requests, key: 5.0}}},
        )  # fmt: skip
        found = curves([point_summary({}, 0)], [trial])
        assert [each for curve in found for each, _ in curve.quantiles] == drawn, requests


def expecting(condition: str) -> Suite:
    return read_text(
        f'name = "it"\nquestion = "?"\n[server]\n[load]\nduration = "1s"\n[expect]\n{condition}\n',
        source="it.toml",
        directory="/here",
    )


@pytest.mark.parametrize("figure", ["response_time_us.p99", "response_time_us.p99_99", "load.response_time_us.p99_99"])
def test_an_expectation_of_what_a_trial_does_not_tell_fails_no_trial_and_is_a_warning(figure: str) -> None:
    suite = expecting(f'"{figure}" = "< 5ms"')
    (point,) = expand(suite, seed=1).points
    whole = {"load": {"response_time_us": {"p99": 150_000.0, "p99_99": 150_000.0}}}
    cut = cut_record(late_at((1.0, 1.1)), (OPENED, OPENED + 10), None, closed=True)
    spoilt = ("response_time_us.p99", "response_time_us.p99_99")
    for place, untold in ((cut, ()), (None, spoilt)):
        is_known = partial(is_told, cut=place, untold=untold)
        assert first_unmet(suite, point, {}, whole, is_known) is None
        (said,) = unjudged(suite, is_known)
        assert (said.code, figure in said.message) == ("expectation_not_judged", True)
    is_known = partial(is_told, cut=None, untold=())
    assert first_unmet(suite, point, {}, whole, is_known) is not None
    assert unjudged(suite, is_known) == ()
    kept = {figure.removeprefix("load."): 4_000.0}
    assert first_unmet(suite, point, kept, whole, is_known) is None, "of the kept time, not of the whole window"


def test_without_a_disturbance_nothing_is_cut() -> None:
    assert cut_record(late_at(), (OPENED, OPENED + 10), log(), closed=True) is None
    assert cut_record(None, (OPENED, OPENED + 10), log(), closed=True) is None
    assert without_cut(FIGURES, None) == FIGURES


def test_a_log_is_read_as_the_generator_writes_it() -> None:
    found = read_log(
        [
            "time,connection,request,bytes,response_time_us,phase,outcome\n",
            "1795335729.264431,2,1,64,241.099,warm_up,ok\n",
            "1795335729.571782,1,16,64,129.622,window,ok\n",
            "1795335729.591900,1,17,64,117.108,window,timeout\n",
            "1795335730.571782,2,18,64,500000,drain,ok\n",
        ],
        first=100,
    )
    assert list(found.times_s) == pytest.approx([129.622e-6])
    assert list(found.starts) == pytest.approx([1795335729.571652], abs=1e-6)
    assert list(found.connections) == [101]
    [(start, end)] = found.under_way
    assert (start, end) == pytest.approx((1795335730.071782, 1795335730.571782), abs=1e-6)
    [(start, end)] = found.timed_out
    assert (start, end) == pytest.approx((1795335729.591783, 1795335729.591900), abs=1e-6)


def rows(requests: Sequence[tuple[float, float]], closed: float) -> list[str]:
    """A request log of intended starts and ends in the window, and after it closed."""
    head = "time,connection,request,bytes,response_time_us,phase,outcome"
    lines = (
        f"{OPENED + end:.6f},1,1,64,{(end - start) * 1e6:.3f},{'window' if end < closed else 'drain'},ok"
        for start, end in requests
    )
    return [head, *lines]


def test_requests_without_an_answer_count_at_their_age_beside_a_cut_too() -> None:
    """They were left out: 30 of 1,000 that hung at the end of the window were in no percentile."""
    answered = [(number / 100, number / 100 + 0.002) for number in range(970)]
    hung = [(9.7 + number / 100, 10.5) for number in range(30)]
    moment = late_at((2.0, 2.005))
    cut = cut_record(moment, (OPENED, OPENED + 10), read_log(rows([*answered, *hung], 10.0)), closed=False)
    assert cut is not None
    assert cut.estimates["response_time_us.p99"] == pytest.approx(200_000, abs=10_500), "10 of 30 are older"
    assert cut.completed_rate == pytest.approx(97, abs=0.5)
    low, high = cut.bounds["response_time_us.p99"]
    assert 180_000 <= low <= high <= 221_000
    # What was never sent is in no log: so many more may have been the slowest.
    unsent = cut_record(
        moment, (OPENED, OPENED + 10), read_log(rows([*answered, *hung], 10.0)), closed=False, unanswered=30 + 50
    )
    assert unsent is not None
    assert "response_time_us.p99" in unsent.doubted


def test_the_logs_of_several_generators_are_one_with_every_request_of_each(tmp_path: Path) -> None:
    log = "\n".join([*rows([(1.0, 1.5), (1.5, 3.5)], 2.0), f"{OPENED + 1.9:.6f},1,3,64,100000.0,window,timeout", ""])
    for name in ("a", "b"):
        (tmp_path / f"{name}.request_log.csv").write_text(log)
    found = take_log(tmp_path, ["a", "b"], keep={"b"})
    assert found is not None
    assert (len(found.starts), len(found.times_s), found.connections) == (2, 2, [1, 3])
    assert (len(found.under_way), len(found.timed_out)) == (2, 2)
    assert [each.name for each in tmp_path.iterdir()] == ["b.request_log.csv"]
    assert take_log(tmp_path, ["a"], keep=()) is None


def test_the_log_of_a_measured_role_is_kept_where_its_own_settings_ask_for_it(tmp_path: Path) -> None:
    """[load] alone was asked."""
    (tmp_path / "load.request_log.csv").write_text("\n".join([*rows([(1.0, 1.5)], 2.0), ""]))
    (tmp_path / "second.request_log.csv").write_text("\n".join([*rows([(1.0, 1.5)], 2.0), ""]))
    role = SimpleNamespace(name="second", kind="load", settings={"request_log": True}, measured=True)
    point = cast("Point", SimpleNamespace(load={}, roles=(role,)))
    partial = PartialRecord(records=tmp_path, window=Window(opened_unix_s=OPENED, closed_unix_s=OPENED + 2))
    cut_of(partial, point, LinkWindow(), ["load", "second"])
    assert [each.name for each in tmp_path.iterdir()] == ["second.request_log.csv"]


def test_a_row_that_a_killed_generator_was_writing_is_left_out(tmp_path: Path) -> None:
    """It ended the run as an internal error."""
    whole = "\n".join([*rows([(1.0, 1.5)], 2.0), ""])
    file = tmp_path / "load.request_log.csv"
    file.write_text(f"{whole}{OPENED + 1.9:.6f},1,2")
    found = take_log(tmp_path, ["load"], keep={"load"})
    assert found is not None
    assert list(found.times_s) == pytest.approx([0.5])
    assert file.read_text() == whole


def test_late_moments_are_a_warning_with_the_worst_of_them() -> None:
    assert network_warnings(network()) == []
    (warning,) = network_warnings(network(late=5, moments=2))
    assert warning.code == "link_disturbed"
    assert "late 2 times during" in warning.message
    assert "2.5 ms at worst" in warning.message
    (once,) = network_warnings(network(late=5, moments=1))
    assert "late 1 time during" in once.message


def test_the_warning_of_late_moments_counts_the_frames_of_those_in_the_window() -> None:
    """It had the packets that were late right before the window and after it, too."""
    ways = [{"from": "s1", "to": "h2-eth0", "delivered": 10_000, "released_late": 500}]
    each = {"from_unix_s": 1.0, "to_unix_s": 1.1, "late_frames": 4, "lost_frames": 0, "worst_us": 2500}
    lost = {**each, "late_frames": 0, "lost_frames": 3, "worst_us": 0}
    seen = LinkWindow.model_validate({"links": ways, "disturbances": [each, each, lost], "late_outside": 490})
    (warning,) = network_warnings(seen)
    assert "was late 2 times during the window, for 8 frames, by 2.5 ms at worst" in warning.message


def test_a_loss_in_the_window_that_was_counted_before_it_is_no_lateness() -> None:
    """The counts from which those of a window begin are up to a tenth of a second old."""
    moment = {"from_unix_s": 1.0, "to_unix_s": 1.1, "late_frames": 0, "lost_frames": 3, "worst_us": 0}
    (warning,) = network_warnings(LinkWindow.model_validate({"disturbances": [moment]}))
    assert warning.code == "links_lost"
    assert "the links lost 3 packets that they should have delivered, at 1 moment of the window" in warning.message


def test_a_limit_on_a_figure_that_was_cut_away_is_neither_met_nor_missed() -> None:
    moment = (4.0, 5.0)
    cut = cut_record(late_at(moment), (OPENED, OPENED + 10), log(delayed=moment), closed=False)
    trial = TrialRecord(
        number=1, block=1, point=0, setting={}, outcome="ok", reason=None, warnings=(), started_unix_s=0, elapsed_s=1,
        figures=without_cut(FIGURES, cut), server={}, load={}, machine={}, cut=cut,
    )  # fmt: skip
    names = ("response_time.p50", "response_time.p99", "establishment_time.p99")
    limits = [read_limit(name, "<5ms", source="it.toml") for name in names]
    point = PointRecord(number=0, setting={}, server={}, load={})
    found = summarise_point(point, [trial], limits, paths_off=False)
    assert [each.limit for each in found.limits] == ["response_time.p50 < 5ms"]
    assert found.doubtful
    run = run_record().model_copy(update={"limits": tuple(limits)})
    [warning] = doubtful_figures(run, [found])
    assert "'response_time.p99 < 5ms' cannot be judged" in warning.message
    whole = summarise_point(point, [trial] * 5 + [replace(trial, cut=None)], limits, paths_off=False)
    assert [each.met for each in whole.limits] == [True, None, None], "an undisturbed trial has every figure"
