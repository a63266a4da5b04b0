"""Capacity, found of simulated servers whose capacity is known."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from conftest import FAKE, Lab

from plimsoll_lab.stats.capacity import (
    GROWTH_TOLERATED,
    Bounds,
    Goal,
    Measure,
    OutOfPatience,
    Search,
    backlog_growth,
    search,
)

TRUTH = 8123
GOAL = Goal(lowest=100, highest=60_000, width=0.02, trials=5)
SEEDS = int(os.environ.get("PLIMSOLL_CAPACITY_SEEDS", "40"))
"""`make soak` asks for 300."""


def server(seed: int, *, noise: float = 0.01, dips: float = 0.1) -> Measure:
    """A server of known capacity: 1 % noise, and one trial in ten at which it carries 30 % less."""
    luck = random.Random(seed)

    def measure(load: int, _confirming: bool) -> bool:  # noqa: FBT001
        return load <= TRUTH * luck.gauss(1, noise) * (0.7 if luck.random() < dips else 1)

    return measure


def test_a_known_capacity_is_found_in_spite_of_noise_and_dips() -> None:
    found = [search(server(seed), GOAL) for seed in range(SEEDS)]
    lowers = [each.lower or 0 for each in found]
    assert sum(lower >= 0.95 * TRUTH for lower in lowers) >= 0.9 * SEEDS
    assert sum(lower > 1.01 * TRUTH for lower in lowers) <= 0.05 * SEEDS
    assert all(each.confirmed >= 7 for each in found)
    assert all(each.lower is not None and each.upper is not None and each.lower < each.upper for each in found)


def test_a_quiet_server_is_held_between_its_bounds() -> None:
    found = search(server(1, noise=0, dips=0), GOAL)
    assert found.lower is not None
    assert found.upper is not None
    assert found.lower <= TRUTH < found.upper
    assert found.upper - found.lower <= 0.02 * found.upper + 1
    assert (found.confirmed, found.unconfirmed) == (8, ())


def test_one_that_never_saturates_has_no_upper_bound() -> None:
    found = search(lambda _load, _confirming: True, GOAL)
    assert (found.lower, found.upper, found.finished) == (60_000, None, True)


def test_one_that_always_fails_has_no_lower_bound_and_is_tried_at_the_gentlest_load_only() -> None:
    seen: list[int] = []

    def measure(load: int, _confirming: bool) -> bool:  # noqa: FBT001
        seen.append(load)
        return False

    assert search(measure, GOAL) == Bounds(lower=None, upper=100)
    assert set(seen) == {100}


def test_no_load_is_beyond_four_times_what_was_carried_and_every_one_is_within_the_range() -> None:
    carried = [GOAL.lowest]
    quiet = server(1, noise=0, dips=0)

    def measure(load: int, confirming: bool) -> bool:  # noqa: FBT001
        assert isinstance(load, int)
        assert GOAL.lowest <= load <= min(GOAL.highest, 4 * max(carried))
        met = quiet(load, confirming)
        carried.append(load if met else 0)
        return met

    search(measure, GOAL)


def test_a_load_that_holds_for_a_short_trial_only_is_not_confirmed() -> None:
    """A queue that grows stays under the limit of a short trial up to 1.1 times the truth."""
    found = search(lambda load, confirming: load <= (TRUTH if confirming else 1.1 * TRUTH), GOAL)
    assert found.lower is not None
    assert 0.97 * TRUTH <= found.lower <= TRUTH
    assert found.unconfirmed
    assert found.upper == min(found.unconfirmed)


def test_a_search_that_is_given_up_keeps_the_bounds_it_has() -> None:
    quiet = server(1, noise=0, dips=0)
    hunt = Search(GOAL)
    assert hunt.bounds() == Bounds(lower=None, upper=None, finished=False)
    assert hunt.trials_left() is None
    made: list[int] = []

    def impatient(load: int, confirming: bool) -> bool:  # noqa: FBT001
        if len(made) == 15:
            raise OutOfPatience
        made.append(load)
        return quiet(load, confirming)

    found = hunt.run(impatient)
    assert not found.finished
    assert found == hunt.bounds()
    # Five loads were decided by three trials each: 100, 400, 1,600, 6,400 and 25,600.
    assert (found.lower, found.upper) == (6400, 25_600)
    assert (hunt.trials_left() or 0) > 8


def queue(load: int, seed: int, *, window_s: float) -> tuple[float, float, float]:
    """One worker that takes 1 ms on average (M/M/1), after five seconds of warm-up: p99 and mean in
    seconds, growth.
    """
    rng = np.random.default_rng(seed)
    warm_up_s = 5.0
    arrivals = np.cumsum(rng.exponential(1 / load, int(load * (warm_up_s + window_s) * 1.2)))
    services = rng.exponential(0.001, len(arrivals))
    # Lindley: a departure is the later of the arrival and the last departure, and the service.
    busy = np.cumsum(services)
    departures = busy + np.maximum.accumulate(arrivals - (busy - services))
    inside = (arrivals >= warm_up_s) & (arrivals < warm_up_s + window_s)
    done = inside & (departures < warm_up_s + window_s)
    times = (departures - arrivals)[inside]
    completed = (departures >= warm_up_s) & (departures < warm_up_s + window_s)
    growth = backlog_growth(
        in_flight=float(inside.sum() - done.sum()),
        completed_rate=float(completed.sum()) / window_s,
        mean_response_s=float((departures - arrivals)[completed].mean()),
        scheduled=float(inside.sum()),
    )
    return float(np.quantile(times, 0.99)), float(times.mean()), growth


@pytest.mark.parametrize("limit_s", [0.05, 0.2, 1.0])
def test_a_queue_of_known_theory_is_not_overstated(limit_s: float) -> None:
    """M/M/1 at 1,000/s: the 99th percentile of its response time is ln(100) / (1,000 - load)."""
    truth = 1000 - math.log(100) / limit_s
    answers = []
    for number in range(max(6, SEEDS // 8)):
        luck = iter(range(number * 100_000, (number + 1) * 100_000))

        def measure(load: int, confirming: bool, luck: Iterator[int] = luck) -> bool:  # noqa: FBT001
            p99, _, growth = queue(load, next(luck), window_s=50.0 if confirming else 10.0)
            return p99 < limit_s and growth <= GROWTH_TOLERATED

        found = search(measure, Goal(lowest=50, highest=4000, width=0.02, trials=5))
        answers.append((found.lower or 0) / truth)
    assert max(answers) <= 1.01, answers
    assert min(answers) >= 0.85, answers


def test_a_backlog_that_grows_is_seen_and_one_that_does_not_is_not() -> None:
    grown = [queue(1050, seed, window_s=10.0)[2] for seed in range(20)]
    steady = [queue(800, seed, window_s=10.0)[2] for seed in range(20)]
    assert sum(each > GROWTH_TOLERATED for each in grown) >= 18
    assert sum(each > GROWTH_TOLERATED for each in steady) <= 1


SCHEMAS = Path(__file__).parent.parent / "plimsoll_lab" / "store"
QUICK = ("--range", "1:64", "--width", "20%", "--duration", "20ms", "--think", "50ms", "--trials", "3", "--json")


@pytest.fixture
def address() -> Iterator[str]:
    """A server that somebody else runs."""
    with subprocess.Popen([sys.executable, str(FAKE), "serve", "echo"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield json.loads(server.stdout.readline())["addresses"][0]
        server.terminate()


ANSWERS = {
    "never saturated": ("response_time.p99 < 1s", 0, 64, None, "carries at least 64 connections"),
    "the floor fails": ("response_time.p99 < 1us", 4, None, 1, "carries less than 1 connections"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_the_answer_says_what_was_found_and_no_more(lab: Lab, address: str, tmp_path: Path, case: str) -> None:
    limit, code, lower, upper, words = ANSWERS[case]
    done = lab("capacity", "echo", address, "--limit", limit, *QUICK)
    assert done.returncode == code, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["event"], summary["lower"], summary["upper"]) == ("summary", lower, upper)
    assert words in summary["answer"]
    # The fake generator is as slow against the null server, so a missed limit is laid at its door.
    assert summary["limited_by"] == (None if upper is None else "generator")
    trials = sorted((tmp_path / summary["run"] / "trials").iterdir())
    assert len(trials) == summary["trials"] == sum(each["trials"] for each in summary["searches"][0]["loads"])
    record = json.loads((tmp_path / summary["run"] / "run.json").read_text())
    jsonschema.validate(record, json.loads((SCHEMAS / "run.schema.json").read_text()))
    for trial in trials:
        jsonschema.validate(json.loads(trial.read_text()), json.loads((SCHEMAS / "trial.schema.json").read_text()))
    nulls = list((tmp_path / summary["run"] / "null").iterdir())
    assert len(nulls) >= 3, "the generator's own ceiling is measured first"
    assert words in (tmp_path / summary["report"]).read_text()


REFUSED = {
    "no limit": (("echo", "127.0.0.1:1"), "no limit"),
    "not a limit": (("echo", "127.0.0.1:1", "--limit", "fast"), "write a figure, an operator and a value"),
    "no such figure": (("echo", "127.0.0.1:1", "--limit", "speed > 1"), "no such figure"),
    "no URL": (("http", "127.0.0.1:1", "--limit", "response_time.p99 < 1s"), "is no URL"),
    "not ready": (("echo", "127.0.0.1:1", "--limit", "response_time.p99 < 1s", "--command", "x"), "go together"),
    "no range": (("echo", "127.0.0.1:1", "--limit", "response_time.p99 < 1s", "--range", "5:2"), "below the high end"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_question_that_cannot_be_asked_is_refused_in_a_line(lab: Lab, case: str) -> None:
    arguments, words = REFUSED[case]
    done = lab("capacity", *arguments)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert words in done.stderr


def test_a_server_that_never_starts_ends_the_search_with_its_own_words(lab: Lab) -> None:
    dying = f"{sys.executable} -c 'import sys; sys.exit(\"cannot read the configuration\")' {{port}}"
    done = lab(
        "capacity", "echo", "127.0.0.1:{port}", "--command", dying, "--ready", "tcp:{port}",
        "--limit", "response_time.p99 < 1s", *QUICK,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["lower"], summary["limited_by"], summary["trials"]) == (None, None, 2)
    assert "was not measured" in summary["answer"]
    assert "cannot read the configuration" in summary["answer"]
