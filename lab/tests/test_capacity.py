"""Capacity, found of simulated servers whose capacity is known."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
from conftest import FAKE, Lab

from plimsoll_lab.stats.capacity import Bounds, Goal, Measure, OutOfPatience, Search, search

TRUTH = 8123
GOAL = Goal(lowest=100, highest=60_000, width=0.02, trial_s=1.0, trials=11)
SEEDS = int(os.environ.get("PLIMSOLL_CAPACITY_SEEDS", "40"))
"""`make soak` asks for 300."""


def server(seed: int, *, noise: float = 0.01, dips: float = 0.1) -> Measure:
    """A server of known capacity: 1 % noise, and one trial in ten at which it carries 30 % less."""
    luck = random.Random(seed)

    def measure(_duration_s: float, load: int) -> float:
        carried = TRUTH * luck.gauss(1, noise) * (0.7 if luck.random() < dips else 1)
        return max(0.0, 1 - carried / load)

    return measure


def test_a_known_capacity_is_found_in_spite_of_noise_and_dips() -> None:
    found = [search(server(seed), GOAL) for seed in range(SEEDS)]
    near = sum(each.lower is not None and abs(each.lower / TRUTH - 1) <= 0.02 for each in found)
    print(f"found within 2 %: {near} of {SEEDS}, {near / SEEDS:.1%}")
    assert near >= 0.9 * SEEDS
    assert all(each.lower is not None and each.upper is not None and each.lower < each.upper for each in found)


def test_a_quiet_server_is_held_between_its_bounds() -> None:
    found = search(server(1, noise=0, dips=0), GOAL)
    assert found.lower is not None
    assert found.upper is not None
    assert found.lower <= TRUTH < found.upper
    assert found.upper - found.lower <= 0.02 * found.upper + 1


def test_one_that_never_saturates_has_no_upper_bound() -> None:
    assert search(lambda _duration, _load: 0.0, GOAL) == Bounds(lower=60_000, upper=None)


def test_one_that_always_fails_has_no_lower_bound() -> None:
    assert search(lambda _duration, _load: 1.0, GOAL) == Bounds(lower=None, upper=100)


def test_a_search_that_is_given_up_keeps_the_bounds_it_has() -> None:
    quiet = server(1, noise=0, dips=0)
    made: list[int] = []

    def impatient(duration_s: float, load: int) -> float:
        if len(made) == 15:
            raise OutOfPatience
        made.append(load)
        return quiet(duration_s, load)

    hunt = Search(GOAL)
    assert hunt.bounds() == Bounds(lower=None, upper=None, finished=False)
    found = hunt.run(impatient)
    assert not found.finished
    assert found == hunt.bounds()
    # Fifteen trials have decided one of the two bounds; the sixteenth would have decided the other.
    assert found.lower is None
    assert found.upper is not None
    assert TRUTH < found.upper < 1.03 * TRUTH


def test_every_load_is_whole_and_within_the_range() -> None:
    seen = []

    def measure(_duration_s: float, load: int) -> float:
        seen.append(load)
        return 0.0 if load < TRUTH else 0.5

    search(measure, GOAL)
    assert all(isinstance(load, int) and 100 <= load <= 60_000 for load in seen)


SCHEMAS = Path(__file__).parent.parent / "plimsoll_lab" / "store"
QUICK = ("--range", "1:64", "--width", "20%", "--duration", "20ms", "--think", "50ms", "--trials", "1", "--json")


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
