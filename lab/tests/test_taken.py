"""What is known of a trial although others had the CPUs at some moments: bounds that hold what it
would have measured without them, and nothing that vanishes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from simulated import tell
from simulated_loops import WINDOW, WINDOWS, Array, closed_loop, in_window, open_loop, told

from plimsoll_lab.analysis.family import value_of
from plimsoll_lab.analysis.repeats import as_first_measured
from plimsoll_lab.experiment.run import with_discarded_attempt
from plimsoll_lab.stats.cut import QUANTILES, Span
from plimsoll_lab.store.program_output import LoadSummary
from plimsoll_lab.store.records import CutRecord, Json, ResultWarning, TakenRecord, TrialRecord
from plimsoll_lab.trial.events import in_own_time
from plimsoll_lab.trial.moments import with_bounds
from plimsoll_lab.trial.taken import Loops, Others, is_much, taken_moments, taken_record
from plimsoll_lab.trial.validity import Judgement
from plimsoll_lab.trial.window import Window

LENGTH_S = WINDOW[1] - WINDOW[0]
OPEN, CLOSED = Loops(closed=False, suppress=False), Loops(closed=True, suppress=True)
COUNTED = replace(CLOSED, counted=True)
ALONE = Others(elsewhere=(), generator_cores=0.5)
P99, RATE = "response_time_us.p99", "completed_rate"


def rows_of(starts: Array, times: Array) -> list[Json]:
    """A generator's rows of each second of the window, which opened at 0."""
    ends = starts + times
    found: list[Json] = []
    for second in range(round(LENGTH_S)):
        first = WINDOW[0] + second
        here = times[(ends >= first) & (ends < first + 1)]
        found.append(row(second, here.tolist()))
    return found


def row(second: int, times_s: Sequence[float], *, covers_s: float = 1.0) -> Json:
    """A generator's row of one second."""
    times = {"count": len(times_s), "mean": 1e6 * sum(times_s) / len(times_s) if times_s else 0.0}
    times["max"] = 1e6 * max(times_s, default=0.0)
    return {
        "phase": "window", "second": second, "completed": len(times_s), "from_unix_s": float(second),
        "covers_s": covers_s, "response_time_us": times,
    }  # fmt: skip


def whole_seconds(stalls: Sequence[Span]) -> list[Span]:
    """The seconds since the window opened that stalls meet, as the machine is read."""
    met = {second for start, end in stalls for second in range(int(start - WINDOW[0]), math.ceil(end - WINDOW[0]))}
    return [(float(second), float(second + 1)) for second in sorted(met)]


def summary_of(starts: Array, times: Array) -> LoadSummary:
    """What the generator tells of the window: of what it answered there."""
    ends = starts + times
    answered = times[(ends >= WINDOW[0]) & (ends < WINDOW[1])].tolist()
    return told(answered, len(answered), LENGTH_S, 20)


def due(load: LoadSummary, requests: float) -> LoadSummary:
    """With so many requests that were due in an open loop."""
    return load.model_copy(update={"requests": load.requests.model_copy(update={"scheduled": round(requests)})})


def holds(record: TakenRecord, name: str, truth: Array) -> bool:
    low, high = record.bounds[f"response_time_us.{name}"]
    true = float(np.sort(truth)[math.ceil(QUANTILES[name] * len(truth)) - 1]) * 1e6
    # The histogram's three digits.
    return low * 0.998 <= true <= high * 1.002


@pytest.mark.parametrize(("load", "known"), [(300, 0.8), (600, 0.8), (800, 0.7), (950, 0.4)])
def test_the_bounds_of_an_open_loop_hold_what_it_measures_without_the_moments(load: int, known: float) -> None:
    """Near its limit a server is late for the rest of the window, and after a moment in the first
    second it may be: there is no lower bound then.
    """
    held, bounded, below = dict.fromkeys(("p50", "p99"), 0), 0, 0
    moved = 0
    for seed in range(WINDOWS):
        luck = np.random.default_rng([seed, load])
        start = float(luck.uniform(WINDOW[0], WINDOW[1] - 1))
        stalls = [(start, start + float(luck.uniform(0.05, 0.4)))]
        starts, stalled, undisturbed = open_loop(luck, load, stalls)
        made, truth = summary_of(starts, stalled), in_window(starts, undisturbed)
        made = due(made, load * LENGTH_S)
        record = taken_record(whole_seconds(stalls), [rows_of(starts, stalled)], made, opened_unix_s=0.0, loops=OPEN)
        assert record is not None
        assert record.bounds[RATE][0] == made.completed_rate
        is_bounded = record.bounds[P99][0] > 0
        bounded += is_bounded
        below += not is_bounded and all(holds(record, name, truth) for name in held)
        for name in held:
            held[name] += is_bounded and holds(record, name, truth)
        true_us = float(np.sort(truth)[math.ceil(0.99 * len(truth)) - 1]) * 1e6
        moved += (made.response_time_us.p99 or 0.0) > 1.2 * true_us
    assert bounded >= known * WINDOWS
    assert moved >= 0.3 * WINDOWS, "moments that move nothing need no bounds"
    tell("taken", f"open loop at {load / 1000:.0%}", bounded, p50_held=held["p50"], p99_held=held["p99"])
    assert min(held.values()) >= 0.95 * bounded, held
    assert below >= 0.95 * (WINDOWS - bounded)


def test_the_bounds_of_a_closed_loop_hold_what_it_measures_without_the_moments() -> None:
    held = dict.fromkeys(("p50", "p99"), 0)
    of_rate = 0
    for seed in range(WINDOWS):
        luck = np.random.default_rng([seed, 2])
        start = float(luck.uniform(WINDOW[0] + 1, WINDOW[1] - 2))
        stalls = [(start, start + float(luck.uniform(0.1, 0.9)))]
        (starts, times), (_, undisturbed) = closed_loop(seed, 20, stalls), closed_loop(seed, 20, [])
        made, true = summary_of(starts, times), len(undisturbed) / LENGTH_S
        record = taken_record(whole_seconds(stalls), [rows_of(starts, times)], made, opened_unix_s=0.0, loops=CLOSED)
        assert record is not None
        for name in held:
            held[name] += holds(record, name, undisturbed)
        low, high = record.bounds[RATE]
        # The rate of the seconds without moments has their luck.
        of_rate += low * 0.99 <= true <= high * 1.01
        assert low == pytest.approx(made.completed_rate)
    tell("taken", "closed loop", WINDOWS, p50_held=held["p50"], p99_held=held["p99"], rate_held=of_rate)
    assert min(*held.values(), of_rate) >= 0.95 * WINDOWS, (held, of_rate)


QUICK, SLOW = [0.001] * 100, [0.001] * 60 + [0.05] * 40


def even(slow: Mapping[int, Sequence[float]]) -> tuple[LoadSummary, list[Json]]:
    """Ten seconds of a hundred quick answers each, but for these."""
    rows = {second: slow.get(second, QUICK) for second in range(10)}
    answered = [time_s for times in rows.values() for time_s in times]
    return told(answered, len(answered), 10.0, 1), [row(second, times) for second, times in rows.items()]


def test_a_percentile_lies_between_that_without_the_delayed_requests_and_the_measured_one() -> None:
    load, rows = even({4: SLOW})
    record = taken_record([(4.0, 4.9)], [rows], load, opened_unix_s=0.0, loops=OPEN)
    assert record == TakenRecord(moments=1, share=0.1, requests=100, bounds=record.bounds if record else {})
    assert record.bounds[P99] == pytest.approx((1000, 50_000), rel=0.002)
    assert record.bounds["response_time_us.p50"] == pytest.approx((1000, 1000), rel=0.002)
    # Without the hundred slowest; and of all, forty took 50 ms.
    assert record.bounds["response_time_us.mean"] == pytest.approx((1000, 2960), rel=0.002)
    assert record.bounds["response_time_us.max"] == pytest.approx((1000, 50_000), rel=0.002)
    times = {f"response_time_us.{name}" for name in (*QUANTILES, "mean", "max")}
    assert set(record.bounds) == {RATE, *times}, "of the others there is no histogram"
    assert record.bounds[RATE] == (100, 100)


def test_a_closed_loop_counts_what_the_moments_suppressed_and_has_a_rate_between_two() -> None:
    load, rows = even({4: SLOW[:40]})
    record = taken_record([(4.0, 4.9)], [rows], load, opened_unix_s=0.0, loops=CLOSED)
    assert record is not None
    assert record.requests == 100, "forty, and sixty that were not made"
    assert record.bounds[RATE] == pytest.approx((94, 100))
    slower, its_rows = even({4: QUICK * 2})
    faster = taken_record([(4.0, 4.9)], [its_rows], slower, opened_unix_s=0.0, loops=CLOSED)
    assert faster is not None
    assert faster.requests == 200
    assert faster.bounds[RATE] == pytest.approx((110, 110)), "a moment makes no loop faster"


def test_a_counted_run_took_no_longer_for_its_moments_than_they_lasted() -> None:
    """The last connections of a count are slow, so that the other seconds say nothing of its
    rate: 510/s where it had 538.
    """
    rows = [row(second, QUICK * 10) for second in range(12)]
    rows[2:4] = [row(second, QUICK * 3) for second in (2, 3)]
    rows[7:] = [row(second, QUICK[:20]) for second in range(7, 12)]
    load = told([0.001] * 5700, 5700, 12.0, 20)
    record = taken_record([(2.0, 3.9)], [rows], load, opened_unix_s=0.0, loops=COUNTED)
    assert record is not None
    assert record.bounds["elapsed_s"] == (10, 12)
    assert record.bounds[RATE] == pytest.approx((475, 570))


def test_an_open_loop_carries_no_more_than_was_due_and_a_closed_one_what_it_did_meanwhile() -> None:
    load, rows = even({4: SLOW[:40]})
    # Of 960 that were due it has sent 950.
    kept_up = due(load.model_copy(update={"offered_rate": 95.0, "goodput_bits_per_s": 9400.0}), 960)
    closed, opened = (
        taken_record([(4.0, 4.9)], [rows], kept_up, opened_unix_s=0.0, loops=each) for each in (CLOSED, OPEN)
    )
    assert closed is not None
    assert opened is not None
    assert closed.bounds["goodput_bits_per_s"] == pytest.approx((9400, 10_000))
    assert closed.bounds["offered_rate"] == pytest.approx((95, 95 / 0.94))
    assert "elapsed_s" not in closed.bounds
    assert opened.bounds["offered_rate"] == pytest.approx((95, 95 * 96 / 94))
    assert opened.bounds["goodput_bits_per_s"] == pytest.approx((9400, 9600))
    assert opened.bounds[RATE] == pytest.approx((94, 96))
    beyond = taken_record([(4.0, 4.9)], [rows], due(kept_up, 5000), opened_unix_s=0.0, loops=OPEN)
    assert beyond is not None
    assert beyond.bounds[RATE] == pytest.approx((94, 100))


def test_beside_a_closed_loop_the_backlog_of_an_open_one_may_last() -> None:
    """Both are measured: nothing is known of the open one's backlog after a moment in the first
    second.
    """
    load, rows = even({0: SLOW})
    mixed = taken_record([(0.2, 0.4)], [rows, rows], load, opened_unix_s=0.0, loops=replace(OPEN, suppress=True))
    assert mixed is not None
    assert mixed.bounds[P99][0] == 0.0


def test_lost_packets_make_more_requests_too_slow() -> None:
    load, rows = even({4: SLOW, 7: [*QUICK[:90], *[0.2] * 10]})
    alone, both = (
        taken_record([(4.0, 4.9)], [rows], load, opened_unix_s=0.0, loops=OPEN, lost=each) for each in (0, 40)
    )
    assert alone is not None
    assert both is not None
    assert (alone.requests, both.requests) == (100, 140)
    assert taken_record([], [rows], load, opened_unix_s=0.0, loops=OPEN, lost=40) is None


def test_two_generators_are_counted_together_and_one_without_rows_leaves_nothing_known() -> None:
    load, rows = even({4: SLOW})
    both = told([*QUICK * 19, *SLOW], 2000, 10.0, 2)
    (_, others) = even({})
    record = taken_record([(4.0, 4.9)], [rows, others], both, opened_unix_s=0.0, loops=CLOSED)
    assert record is not None
    assert (record.requests, record.share) == (200, 0.1)
    assert record.bounds[RATE] == pytest.approx((200, 200))
    assert taken_record([(4.0, 4.9)], [rows, []], load, opened_unix_s=0.0, loops=CLOSED) is None
    assert taken_record([(4.0, 4.9)], [], load, opened_unix_s=0.0, loops=CLOSED) is None


@pytest.mark.parametrize(
    ("moments", "slow", "touched"),
    [
        # The seconds that a moment meets; an answer from before it is none of its doing.
        ([(4.2, 4.4)], {}, 1),
        ([(4.0, 4.4)], {}, 1),
        ([(4.5, 5.001)], {}, 2),
        ([(4.2, 5.0)], {}, 2),
        ([(1.1, 1.2), (7.1, 7.2)], {}, 2),
        # An answer that may be to a request from before the moment's end.
        ([(4.2, 4.4)], {6: [*QUICK, 1.7]}, 2),
        ([(4.2, 4.4)], {6: [*QUICK, 1.5]}, 1),
        # A backlog that lasts: half as much again as the usual one is its like.
        ([(4.2, 4.4)], {5: [0.002] * 100, 6: [0.0016] * 100}, 3),
        ([(4.2, 4.4)], {5: [0.0014] * 100, 6: [0.002] * 100}, 1),
        ([(4.2, 4.4)], {3: [0.002] * 100}, 1),
        # Half of the window, and more.
        ([(5.0, 9.9)], {}, 5),
        ([(4.9, 9.9)], {}, None),
        # Of a moment in the first second it is not known what the backlog was before.
        ([(0.2, 0.4)], {}, 10),
        ([], {4: SLOW}, None),
        ([(11.0, 12.0)], {}, None),
    ],
)
def test_the_seconds_count_whose_answers_a_moment_may_have_delayed(
    moments: list[Span], slow: Mapping[int, Sequence[float]], touched: int | None
) -> None:
    load, rows = even(slow)
    record = taken_record(moments, [rows], load, opened_unix_s=0.0, loops=OPEN)
    assert (record and round(10 * record.share)) == touched
    if record is not None and record.share >= 0.5:
        # Of half of the requests or more, no median is known.
        assert {low for name, (low, _) in record.bounds.items() if name != RATE} == {0.0}
        assert record.bounds[P99][1] == load.response_time_us.p99
        assert record.bounds.get(RATE, (100, 100)) == (100, 100)


def test_of_a_closed_loop_the_backlog_is_back_at_once_where_none_was_seen_before() -> None:
    load, rows = even({0: SLOW})
    record = taken_record([(0.2, 0.4)], [rows], load, opened_unix_s=0.0, loops=CLOSED)
    assert record is not None
    assert (record.requests, record.share) == (100, 0.1)
    assert record.bounds[P99] == pytest.approx((1000, 50_000), rel=0.002)
    # Half a second before says nothing of a backlog.
    partial = [row(0, QUICK[:2], covers_s=0.5), *(row(1, SLOW), *rows[2:])]
    opened = taken_record([(1.2, 1.4)], [partial], load, opened_unix_s=0.0, loops=OPEN)
    assert opened is not None
    assert opened.share == pytest.approx(9 / 9.5)
    assert opened.bounds[P99][0] == 0.0


def test_a_second_that_the_window_only_touches_counts_for_its_part_and_others_phases_not_at_all() -> None:
    load, rows = even({})
    rows = [row(0, QUICK[:50], covers_s=0.5) | {"from_unix_s": 0.5}, *rows[1:9], row(9, QUICK[:50], covers_s=0.5)]
    rows.append(row(9, QUICK) | {"phase": "drain"})
    record = taken_record([(8.6, 8.7)], [rows], load, opened_unix_s=0.5, loops=OPEN)
    assert record is not None
    assert record.requests == 50
    assert record.share == pytest.approx(0.5 / 9)


def read(at_s: float, parts: Mapping[str, float | None] | None = None, /, **machine: float | None) -> Json:
    costs = {name: {} if cpu_s is None else {"cpu_s": cpu_s} for name, cpu_s in (parts or {"server": 0.0}).items()}
    idle = {"busy_s": 100.0 + at_s / 2, "softirq_threads_s": 5.0, "steal_s": 7.0, "throttled_s": None}
    return {"at_s": at_s, "machine": idle | machine, "parts": costs}


def test_moments_are_those_of_much_steal_of_a_quota_and_of_other_programs() -> None:
    quiet = [read(float(second)) for second in range(6)]
    assert taken_moments(quiet, ALONE) == []
    for later in ({"steal_s": 7.11}, {"busy_s": 103.8}, {"throttled_s": 0.02}):
        of_four = [{}, {}, {}, later]
        readings = [read(float(second), **({"throttled_s": 0.0} | each)) for second, each in enumerate(of_four)]
        assert taken_moments(readings, ALONE) == [(2.0, 3.0)], later
    little = [read(0.0), read(1.0, steal_s=7.09), read(2.0, steal_s=7.18, busy_s=101.2)]
    assert taken_moments(little, ALONE) == []
    # Two in a row are one.
    steal = (7.0, 7.5, 8.0, 8.0, 9.0)
    assert taken_moments([read(float(at), steal_s=each) for at, each in enumerate(steal)], ALONE) == [
        (0.0, 2.0), (3.0, 4.0)
    ]  # fmt: skip
    assert is_much(0.026, 0.1)
    assert not is_much(0.025, 0.1), "two ticks may be rounding"


def test_other_programs_are_what_no_part_of_the_trial_used_and_unknown_where_one_does_not_tell() -> None:
    def moments(before: Mapping[str, float | None], after: Mapping[str, float | None], others: Others = ALONE) -> bool:
        # Two seconds of CPU in one.
        return bool(taken_moments([read(0.0, before), read(1.0, after, busy_s=102.0)], others))

    assert moments({"server": 1.0}, {"server": 2.0}), "of two the generator used a half, and the server one"
    assert not moments({"server": 1.0}, {"server": 2.3})
    assert not moments({"server": 1.0, "back": 1.0}, {"server": 2.0, "back": 1.3})
    elsewhere = Others(elsewhere=("back",), generator_cores=0.5)
    assert moments({"server": 1.0, "back": 1.0}, {"server": 2.0, "back": 1.3}, elsewhere)
    assert not moments({"server": 1.0}, {"server": 2.0}, Others(elsewhere=(), generator_cores=None))
    assert not moments({"server": None}, {"server": None})
    assert not moments({}, {"server": 2.0})
    unknown = Others(elsewhere=(), generator_cores=None, were_busy=True)
    stolen = [read(0.0), read(1.0), read(2.0, steal_s=8.0)]
    assert taken_moments(stolen, ALONE) == taken_moments(stolen, replace(ALONE, were_busy=True)) == [(1.0, 2.0)]
    assert taken_moments(stolen, unknown) == [], "they may have been busy in every second"
    softirq = [read(0.0), read(1.0, busy_s=102.0, softirq_threads_s=6.3)]
    assert taken_moments(softirq, ALONE) == [], "packets are no program's"
    assert taken_moments([read(0.0, busy_s=None), read(1.0, busy_s=None)], ALONE) == []


def trial(**more: object) -> TrialRecord:
    return TrialRecord(
        number=1, block=1, point=0, setting={}, outcome="ok", reason=None, warnings=(), figures={P99: 9.0, RATE: 5.0},
        started_unix_s=0, elapsed_s=1, server={}, load={}, machine={}, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_trial_with_such_moments_keeps_its_figures_and_is_compared_by_its_bounds() -> None:
    record = TakenRecord(moments=1, share=0.1, requests=3, bounds={P99: (2.0, 9.0)})
    taken = trial(taken=record)
    assert (value_of(taken, P99), value_of(taken, RATE)) == ((2.0, 9.0), 5.0)
    cut = CutRecord(
        moments=1, share=0.1, requests=1, touched=0, completed_rate=5.0, bounds={P99: (8.0, 9.0)}, estimates={},
        doubted=[],
    )  # fmt: skip
    assert value_of(trial(cut=cut), P99) == (8.0, 9.0)
    lossy = replace(cut, moments=0, bounds={P99: (8.1, 9.9), RATE: (5.0, 5.5)})
    both = trial(taken=replace(record, bounds={P99: (2.0, 9.0), RATE: (5.0, 6.0)}), cut=lossy)
    assert value_of(both, P99) == pytest.approx((2 * 8.1 / 9, 9.9)), "each moved it as far"
    assert value_of(both, RATE) == pytest.approx((5.0, 6.6))
    assert value_of(trial(taken=record, cut=lossy), RATE) == (5.0, 5.5)
    # Made again without: what the first measurement said stays known.
    again = with_discarded_attempt(taken, trial())
    assert value_of(again, P99) == 9.0
    assert value_of(as_first_measured(again), P99) == (2.0, 9.0)


def test_who_had_the_cpus_is_told_with_what_the_tail_was_without_them() -> None:
    warnings = tuple(ResultWarning(code=code, message=code, remedy="") for code in ("steal", "few_samples"))
    judgement = Judgement(outcome="ok", reason=None, warnings=warnings)
    record = TakenRecord(moments=1, share=0.1, requests=3, bounds={P99: (812.6, 5314.0)})
    steal, few = with_bounds(judgement, record).warnings
    assert steal.message == "steal; without such moments its 99th percentile is between 0.812 and 5.32 ms"
    assert few.message == "few_samples"
    assert with_bounds(judgement, None) == judgement
    for untold in (replace(judgement, outcome="invalid"), replace(judgement, untold=(P99,))):
        assert with_bounds(untold, record) == untold
    assert with_bounds(judgement, replace(record, bounds={})) == judgement


def test_rows_of_a_generator_on_another_machine_are_by_the_clock_of_the_laboratory() -> None:
    class Ahead:
        def own_time(self, unix_s: float) -> float:
            return unix_s - 2.0

    moved = in_own_time(row(4, QUICK) | {"unix_s": 1764000004.25}, Ahead())  # type: ignore[arg-type]
    assert (moved["from_unix_s"], moved["unix_s"], moved["covers_s"]) == (2.0, 1764000002.25, 1.0)


def test_what_generators_use_is_of_their_own_windows_and_unknown_where_one_does_not_tell() -> None:
    def told_of(cores: float | None, elapsed_s: float) -> LoadSummary:
        return LoadSummary.model_validate({"elapsed_s": elapsed_s, "generator": {"cpu_cores": cores}})

    window = Window(length_s=10.0)
    assert window.generator_cores([told_of(0.8, 9.0)]) == 0.8
    assert window.generator_cores([told_of(0.8, 10.0), told_of(0.5, 4.0)]) == pytest.approx(1.0)
    assert window.generator_cores([told_of(0.8, 10.0), told_of(None, 10.0)]) is None
    assert window.generator_cores([]) == 0
    assert Window().generator_cores([]) is None
