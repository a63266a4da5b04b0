"""Capacity, found of simulated servers whose capacity is known."""

from __future__ import annotations

import math
import os
import random
from dataclasses import replace

import numpy as np
import pytest
import queues
from scipy import special
from simulated import tell

from plimsoll_lab.stats.backlog import BATCHES, CONFIDENCE, STUDENT, batch_growth
from plimsoll_lab.stats.capacity import Bounds, OutOfPatience, Search, search
from plimsoll_lab.stats.goal import CONFIRMATIONS, Goal
from plimsoll_lab.stats.readings import Measure, Reading, load_noise

TRUTH = 8123
GOAL = Goal(lowest=100, highest=60_000, width=0.02, trials=5)
SEEDS = int(os.environ.get("PLIMSOLL_CAPACITY_SEEDS", "40"))
"""`make soak` asks for 300."""


def server(seed: int, *, noise: float = 0.01, dips: float = 0.1) -> Measure:
    """A server of known capacity: 1 % noise, and one trial in ten at which it carries 30 % less."""
    luck = random.Random(seed)

    def measure(load: int, _length_s: float) -> Reading:
        return Reading(met=load <= TRUTH * luck.gauss(1, noise) * (0.7 if luck.random() < dips else 1))

    return measure


def test_a_known_capacity_is_found_in_spite_of_noise_and_dips() -> None:
    found = [search(server(seed), GOAL) for seed in range(SEEDS)]
    lowers = [each.lower or 0 for each in found]
    near, above = sum(lower >= 0.95 * TRUTH for lower in lowers), sum(lower > 1.01 * TRUTH for lower in lowers)
    tell("capacity", "1 % noise, a tenth of the trials 30 % low", SEEDS, at_most_5_percent_below=near, too_high=above)
    assert near >= 0.9 * SEEDS
    assert above <= 0.05 * SEEDS
    assert all(each.confirmed >= 7 for each in found)
    assert all(each.lower is not None and each.upper is not None and each.lower < each.upper for each in found)


def test_a_quiet_server_is_held_between_its_bounds() -> None:
    found = search(server(1, noise=0, dips=0), GOAL)
    assert found.lower is not None
    assert found.upper is not None
    assert found.lower <= TRUTH < found.upper
    assert found.upper - found.lower <= 0.02 * found.upper + 1
    assert (found.confirmed, found.unconfirmed, found.held_s) == (8, (), 8 * GOAL.least_s)


def test_repeated_searches_try_other_loads() -> None:
    found = {search(server(1, noise=0, dips=0), replace(GOAL, shift=shift)).lower for shift in (0.0, 0.3, 0.6, 0.9)}
    assert len(found) == 4
    assert all(lower is not None and 0.98 * TRUTH <= lower <= TRUTH for lower in found)


def test_one_that_never_saturates_has_no_upper_bound() -> None:
    found = search(lambda _load, _length_s: Reading(met=True), GOAL)
    assert (found.lower, found.upper, found.finished) == (60_000, None, True)


def test_one_that_always_fails_has_no_lower_bound_and_is_tried_at_the_gentlest_load_only() -> None:
    seen: list[int] = []

    def measure(load: int, _length_s: float) -> Reading:
        seen.append(load)
        return Reading(met=False)

    found = search(measure, GOAL)
    assert (found.lower, found.upper, found.finished) == (None, 100, True)
    assert set(seen) == {100}


def test_no_load_is_beyond_four_times_what_was_carried_and_every_one_is_within_the_range() -> None:
    carried = [GOAL.lowest]
    quiet = server(1, noise=0, dips=0)

    def measure(load: int, length_s: float) -> Reading:
        assert isinstance(load, int)
        assert GOAL.lowest <= load <= min(GOAL.highest, 4 * max(carried))
        reading = quiet(load, length_s)
        carried.append(load if reading.met else 0)
        return reading

    search(measure, GOAL)


def test_longer_trials_rise_to_at_most_four_times_what_was_carried() -> None:
    """The first ones, which are short, met a slow moment: the server carries far more."""
    luck, carried = random.Random(1), [GOAL.lowest]

    def measure(load: int, length_s: float) -> Reading:
        assert load <= 4 * max(carried), (load, length_s, carried[-5:])
        excess = math.log(load / 900) + luck.gauss(0, 0.3) if length_s == GOAL.first_s else -2.0
        carried.append(load if excess < 0 else 0)
        return Reading(met=excess < 0, excess=excess)

    assert search(measure, GOAL).lower == GOAL.highest


def test_repeated_searches_of_a_narrow_range_try_other_loads() -> None:
    """One that is narrower than the first rise, which then ends at the highest load of them all."""
    narrow = replace(GOAL, lowest=6000, highest=11_000)
    found = {search(server(1, noise=0, dips=0), replace(narrow, shift=shift)).lower for shift in (0.0, 0.3, 0.6, 0.9)}
    assert len(found) == 4


Trial = tuple[int, float, bool]
"""The load of a trial, its length, and whether the limits were met."""


def given_up(goal: Goal, truth: Measure, after: int) -> tuple[list[Trial], Bounds]:
    """A search that is given up after so many trials, which it made."""
    seen: list[Trial] = []

    def measure(load: int, length_s: float) -> Reading:
        if len(seen) == after:
            raise OutOfPatience
        reading = truth(load, length_s)
        seen.append((load, length_s, reading.met is True))
        return reading

    found = search(measure, goal)
    return seen, found


def test_a_search_that_is_given_up_names_no_load_that_no_trial_has_met() -> None:
    """While it confirmed a lower load, or one nearer to the upper bound, its answer was that load,
    before any trial there.
    """

    def truth(load: int, length_s: float) -> Reading:
        # Short trials carry a quarter too much, as a queue has not grown yet.
        return Reading(met=load <= TRUTH * (1.25 if length_s < GOAL.least_s else 1.0))

    goal, best = replace(GOAL, trials=1, hold_s=60.0), 0
    for after in range(1, 200):
        seen, found = given_up(goal, truth, after)
        met = {load for load, _, good in seen if good}
        assert found.lower in met, (after, seen[-3:])
        confirmed = sum(good for load, length_s, good in seen if load == found.lower and length_s >= GOAL.least_s)
        assert found.confirmed <= confirmed
        assert (found.lower or 0) >= best, "what is confirmed is not given up for what is not"
        best = best if found.confirmed < CONFIRMATIONS else found.lower or 0
        if found.finished:
            break
    assert found.finished
    assert best > 0


def test_a_search_that_is_given_up_names_no_load_above_one_whose_confirmation_failed() -> None:
    """After a minute that failed it named a load above, at which one short trial had passed."""

    def truth(load: int, length_s: float) -> Reading:
        carries = TRUTH * (1.25 if length_s < GOAL.least_s else 1.0 if length_s < 60 else 0.9)
        return Reading(met=load <= carries)

    goal = replace(GOAL, trials=1, hold_s=60.0)
    for after in range(1, 200):
        seen, found = given_up(goal, truth, after)
        missed = [load for load, length_s, good in seen if length_s >= GOAL.least_s and not good]
        assert found.lower is not None
        assert not missed or found.lower <= min(missed), (after, found, seen[-3:])
        if found.finished:
            break
    assert found.finished
    assert missed


def test_a_search_that_begins_anew_with_longer_trials_keeps_its_bounds_meanwhile() -> None:
    """It had none then, and said that not even the lowest load had been tried."""

    def noisy(seed: int) -> Measure:
        luck = random.Random(seed)

        def measure(load: int, length_s: float) -> Reading:
            excess = 3 * math.log(load / TRUTH) + luck.gauss(0, 0.3 / math.sqrt(length_s))
            return Reading(met=excess < 0, excess=excess)

        return measure

    goal = replace(GOAL, trials=1)
    anew = [after for after in range(2, 120) if len({each[1] for each in given_up(goal, noisy(5), after)[0]}) == 1][-1]
    seen, found = given_up(goal, noisy(5), anew + 1)
    assert len({length_s for _, length_s, _ in seen}) > 1, "its trials never became longer"
    before = given_up(goal, noisy(5), anew)[1]
    assert before.lower is not None
    assert found.lower is not None or found.upper is not None


def test_a_load_that_holds_for_a_short_trial_only_is_not_confirmed() -> None:
    """A queue that grows stays under the limit of a short trial up to 1.1 times the truth."""
    found = search(lambda load, length_s: Reading(met=load <= (TRUTH if length_s > 1 else 1.1 * TRUTH)), GOAL)
    assert found.lower is not None
    assert 0.97 * TRUTH <= found.lower <= TRUTH
    assert found.upper is not None
    assert TRUTH < found.upper <= min(found.unconfirmed)


def test_a_load_that_does_not_last_is_lowered_until_one_does() -> None:
    """It carries a fifth less from 30 s on, which only the longest of the trials meets."""
    goal = replace(GOAL, hold_s=60.0)
    found = search(lambda load, length_s: Reading(met=load <= (0.8 * TRUTH if length_s > 30 else TRUTH)), goal)
    assert found.lower is not None
    assert 0.98 * 0.8 * TRUTH <= found.lower <= 0.8 * TRUTH
    assert (found.trial_s, found.held_s) == (5, 40 + 120)


def test_a_trial_too_short_to_show_that_a_load_lasts_is_made_longer_and_confirms_nothing() -> None:
    shown_from_s = 30.0

    def measure(load: int, length_s: float) -> Reading:
        return Reading(met=False if load > TRUTH else True if length_s > shown_from_s else None)

    found = search(measure, GOAL)
    assert found.trial_s > shown_from_s
    assert found.lower is not None
    assert 0.98 * TRUTH <= found.lower <= TRUTH
    never = search(measure, replace(GOAL, most_s=20.0))
    assert never.lower == found.lower
    assert never.upper is not None
    assert never.upper > TRUTH
    assert (never.confirmed, never.held_s, never.unconfirmed, never.finished) == (0, 0, (), False)


def test_trials_are_as_long_as_the_noise_of_their_verdicts_asks_for() -> None:
    """The excess rises by the load's logarithm, and its noise falls with the root of the length."""
    luck = random.Random(3)

    def measure(load: int, length_s: float) -> Reading:
        excess = math.log(load / TRUTH) + luck.gauss(0, 0.05) / math.sqrt(length_s)
        return Reading(met=excess < 0, excess=excess)

    near = [(load, 4.0, measure(load, 4.0).excess or 0.0) for load in range(7000, 9001, 20)]
    assert load_noise(near, 4.0) == pytest.approx(0.025, rel=0.2)
    assert load_noise(near, 16.0) == pytest.approx(0.0125, rel=0.2)
    assert load_noise(near[:3], 4.0) is None
    assert load_noise([(load, 4.0, -excess) for load, _, excess in near], 4.0) == math.inf
    found = search(measure, GOAL)
    # At 2 % of width the noise of a trial may be 0.8 %: 39 s of it.
    assert 20 <= found.trial_s <= 150
    assert found.precision is not None
    assert found.precision <= 0.02
    coarse = search(measure, replace(GOAL, width=0.2, least_s=1.0))
    assert coarse.trial_s == 1.0


def test_a_search_that_is_given_up_keeps_the_bounds_it_has() -> None:
    quiet = server(1, noise=0, dips=0)
    made: list[int] = []

    def impatient(load: int, length_s: float) -> Reading:
        if len(made) == 15:
            raise OutOfPatience
        made.append(load)
        return quiet(load, length_s)

    hunt = Search(GOAL, impatient)
    assert (hunt.bounds().lower, hunt.bounds().upper, hunt.bounds().finished) == (None, None, False)
    assert hunt.left_s() is None
    found = hunt.run()
    assert not found.finished
    assert found == hunt.bounds()
    # Five loads were decided by three trials each: 100, 400, 1,600, 6,400 and 25,600.
    assert (found.lower, found.upper) == (6400, 25_600)
    assert (hunt.left_s() or 0) > CONFIRMATIONS * GOAL.least_s


QUEUES: dict[str, tuple[queues.Server, float, bool, float]] = {
    "M/M/1, 50 ms": (queues.Server(), 0.05, False, queues.p99_capacity(0.05, queues.m_m_1)),
    "M/M/1, 200 ms": (queues.Server(), 0.2, False, queues.p99_capacity(0.2, queues.m_m_1)),
    "M/M/1, 1 s": (queues.Server(), 1.0, False, queues.p99_capacity(1.0, queues.m_m_1)),
    "even arrivals, 50 ms": (queues.Server(), 0.05, True, queues.p99_capacity(0.05, queues.d_m_1)),
    "M/D/1, 20 ms": (queues.Server(fixed=True), 0.02, False, queues.p99_capacity(0.02, queues.m_d_1)),
    "M/D/1, 200 ms": (queues.Server(fixed=True), 0.2, False, queues.p99_capacity(0.2, queues.m_d_1)),
    "even arrivals and services": (queues.Server(fixed=True), 0.02, True, queues.RATE),
    "four workers, 50 ms": (queues.Server(workers=4), 0.05, False, queues.p99_capacity(0.05, queues.m_m_4)),
    "pauses, 300 ms": (queues.Server(pauses=True), 0.3, False, 937.0),
    "degrades, 200 ms": (queues.Server(degrades=True), 0.2, False, 0.8 * queues.RATE - queues.P99 / 0.2),
}
"""A server, the limit of its p99, whether arrivals are even, and the truth by queueing theory; that
of the one that pauses is by an exact simulation, which a test of its own repeats."""
THOROUGH = SEEDS >= 100
WIDTH = 0.02 if THOROUGH else 0.1
SEARCHES = SEEDS // 15 if THOROUGH else 2


def capacity_of(kind: queues.Server, limit_s: float, luck: np.random.Generator, *, even: bool) -> Bounds:
    def measure(load: int, length_s: float) -> Reading:
        return queues.trial(kind, load, luck, window_s=length_s, limit_s=limit_s, even=even)

    goal = Goal(
        lowest=50, highest=4000, width=WIDTH, trials=3, least_s=10.0, most_s=5000.0, hold_s=60.0, shift=luck.random()
    )
    return search(measure, goal)


@pytest.mark.parametrize("case", QUEUES)
def test_a_queue_of_known_theory_is_neither_overstated_nor_understated(case: str) -> None:
    """Within the width below the truth, and above by more than half of it in at most one of
    twenty.
    """
    kind, limit_s, even, truth = QUEUES[case]
    found = [capacity_of(kind, limit_s, np.random.default_rng([seed, 7]), even=even) for seed in range(SEARCHES)]
    answers = [(each.lower or 0) / truth for each in found]
    above, below = (sum(answer > 1 + WIDTH / 2 for answer in answers), sum(answer < 1 - WIDTH for answer in answers))
    between = f"answers {min(answers):.3f} to {max(answers):.3f} of the truth"
    tell("capacity", f"{case}, width {WIDTH:.0%}, {between}", SEARCHES, too_high=above, too_low=below)
    assert above <= 0.05 * SEARCHES, answers
    assert below <= 0.05 * SEARCHES, answers
    assert all(each.finished and each.held_s >= 60 for each in found)


@pytest.mark.parametrize("case", ["M/M/1, 50 ms", "M/M/1, 1 s"])
def test_a_short_patience_is_spent_on_an_answer_that_a_minute_confirms(case: str) -> None:
    """Eight minutes for a server of 1,000 requests a second: too few for 2 %, and longer and longer
    trials left none for a minute.
    """
    kind, limit_s, even, truth = QUEUES[case]
    patience_s = 480.0

    def found(seed: int) -> Bounds:
        luck, spent_s = np.random.default_rng([seed, 9]), 0.0

        def measure(load: int, length_s: float) -> Reading:
            nonlocal spent_s
            if spent_s >= patience_s:
                raise OutOfPatience
            took_s = 2 + 1.5 * length_s
            spent_s += took_s
            reading = queues.trial(kind, load, luck, window_s=length_s, limit_s=limit_s, even=even)
            return replace(reading, took_s=took_s)

        goal = Goal(
            lowest=50, highest=4000, width=0.1, trials=3, least_s=10.0, most_s=20.0, hold_s=60.0,
            patience_s=patience_s, shift=luck.random(),
        )  # fmt: skip
        return search(measure, goal)

    answers = [found(seed) for seed in range(SEEDS // 2)]
    confirmed = sum(each.held_s >= 8 * 10 + 60 for each in answers)
    above = sum((each.lower or 0) > 1.01 * truth for each in answers)
    tell("capacity", f"{case}, in eight minutes", len(answers), confirmed_by_a_minute=confirmed, too_high=above)
    assert confirmed >= 0.7 * len(answers), confirmed
    assert above <= 0.05 * len(answers)


def test_the_capacity_of_the_server_that_pauses_is_that_of_an_exact_simulation() -> None:
    """Of hours, at one per cent below and above it."""
    kind, limit_s, even, truth = QUEUES["pauses, 300 ms"]

    def excess(factor: float) -> float:
        luck = np.random.default_rng([5, round(1000 * factor)])
        found = queues.trial(kind, round(truth * factor), luck, window_s=12_000.0, limit_s=limit_s, even=even).excess
        assert found is not None
        return found

    assert excess(0.99) < 0 < excess(1.01)


def test_a_server_that_pauses_is_judged_with_its_pauses() -> None:
    """It stops for 200 ms every 5 s: more than one request in a hundred is late by 50 ms at any
    load.
    """
    found = capacity_of(queues.Server(pauses=True), 0.05, np.random.default_rng(1), even=False)
    assert found.lower is None


def test_where_the_needed_trials_would_take_too_long_the_search_says_how_near_it_came() -> None:
    """M/M/1 carries 79/s under 5 ms; 2 % of that would take trials of days, for the p99 hardly
    moves with the load.
    """
    kind, truth, luck = queues.Server(), queues.p99_capacity(0.005, queues.m_m_1), np.random.default_rng(5)

    def measure(load: int, length_s: float) -> Reading:
        return queues.trial(kind, load, luck, window_s=length_s, limit_s=0.005)

    found = search(measure, Goal(lowest=10, highest=4000, width=0.02, trials=3, least_s=10.0, most_s=300.0))
    assert found.precision is not None
    assert found.precision > 0.1
    assert found.lower is not None
    assert truth * (1 - 2 * found.precision) <= found.lower <= truth * (1 + found.precision)


def backlog_of(load: int, seed: int, window_s: int) -> list[float]:
    """The mean backlog of each whole second of an M/M/1 that completes 1,000/s."""
    luck = np.random.default_rng(seed)
    arrivals, times, start_s = queues.responses(queues.Server(), load, luck, window_s=window_s, warm_up_s=5.0)
    done = arrivals + times - start_s
    kept = done < window_s
    sums = np.bincount(done[kept].astype(np.int64), weights=times[kept], minlength=window_s)
    return [float(each) for each in sums[1 : window_s - 1]]


def test_the_quantile_written_down_is_that_of_students_t() -> None:
    assert pytest.approx(special.stdtrit(BATCHES - 2, CONFIDENCE), rel=1e-12) == STUDENT


def test_a_backlog_that_grows_is_seen_and_one_that_does_not_is_not() -> None:
    grown = [batch_growth(backlog_of(1050, seed, 20), interval_s=1, offered_rate=1050) for seed in range(100)]
    steady = [batch_growth(backlog_of(800, seed, 20), interval_s=1, offered_rate=800) for seed in range(100)]
    assert sum(each.shown for each in grown) >= 70
    assert sum(each.refuted for each in grown) == 0
    assert sum(each.refuted for each in steady) >= 85
    assert sum(each.shown for each in steady) <= 5
    # A growth of 2 % in a short trial is seldom taken for none; mostly nothing can be told.
    short = [batch_growth(backlog_of(1020, seed, 12), interval_s=1, offered_rate=1020) for seed in range(100)]
    assert sum(each.refuted for each in short) <= 5
    assert not batch_growth([1.0] * 7, interval_s=1, offered_rate=100).refuted


def test_a_backlog_that_hardly_moves_does_not_grow_however_its_batches_are_correlated() -> None:
    """A slow wave of one request on a hundred told nothing in most trials, and a backlog as even as
    a double can be told nothing in any.
    """
    wave = [100 + math.sin(second / 4) for second in range(24)]
    even = [0.5 + 1e-12 * (-1) ** (second // 2) for second in range(16)]
    for backlog, rate in ((wave, 100_000.0), (even, 500.0)):
        assert batch_growth(backlog, interval_s=1, offered_rate=rate).refuted
    # What grows by a hundredth of the rate moves further.
    rising = [each + second / 100 * 20.0 for second, each in enumerate(wave)]
    assert not batch_growth(rising, interval_s=1, offered_rate=20.0).refuted
