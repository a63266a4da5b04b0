"""What the trials of a search took, and which of them say something of a length."""

from __future__ import annotations

import math

import pytest

from plimsoll_lab.stats.readings import Reading, Readings, load_noise

Near = tuple[int, float, float]


def reading_of(*told: Reading) -> Readings:
    """The readings of a search whose trials say this, one after another."""
    left = iter(told)
    return Readings(lambda _load, _length_s: next(left))


def test_what_a_trial_takes_beside_its_window_and_warm_up_is_without_its_repeats() -> None:
    """Of 10 s three were repeats, and 2 s of window have one of warm-up: four are left."""
    readings = reading_of(Reading(met=True, took_s=10.0, repeated_s=3.0), Reading(met=True, took_s=20.0))
    assert readings.read(7, 2.0) == Reading(met=True, took_s=10.0, repeated_s=3.0)
    assert (readings.spent_s, readings.last_s) == (10.0, 2.0)
    assert (readings.beside_s(), readings.takes_s(4.0)) == (4.0, 10.0)
    readings.read(8, 4.0)
    assert (readings.spent_s, readings.last_s) == (30.0, 4.0)
    # 20 s less six: on average of both nine.
    assert (readings.beside_s(), readings.takes_s(2.0)) == (9.0, 12.0)


def test_nothing_takes_less_than_its_window_and_warm_up() -> None:
    readings = reading_of(Reading(met=True))
    readings.read(7, 2.0)
    assert (readings.beside_s(), readings.takes_s(2.0)) == (0.0, 3.0)


def told(load: int, place: int) -> Reading:
    return Reading(met=None, excess=0.5 * math.log(load) - 0.3 + 0.01 * (-1) ** place)


LOADS = (1, 1, 2, 2, 4, 4)


@pytest.mark.parametrize(("length_s", "is_known"), [(0.5, True), (1.0, True), (16.0, True), (16.1, False)])
def test_trials_say_something_of_ones_that_are_sixteen_times_as_long(length_s: float, *, is_known: bool) -> None:
    readings = reading_of(*(told(load, place) for place, load in enumerate(LOADS)))
    for load in LOADS:
        readings.read(load, 1.0)
    near: list[Near] = [(load, 1.0, told(load, place).excess or 0.0) for place, load in enumerate(LOADS)]
    assert readings.noise(length_s) == (load_noise(near, length_s) if is_known else None)
    assert load_noise(near, length_s) is not None


@pytest.mark.parametrize(("excess", "is_near"), [(1.0, True), (-1.0, True), (1.001, False), (-1.001, False)])
def test_readings_far_from_the_limit_on_either_side_say_nothing(excess: float, *, is_near: bool) -> None:
    five = [told(load, place) for place, load in enumerate(LOADS[:5])]
    readings = reading_of(*five, Reading(met=True, excess=excess))
    for load in LOADS:
        readings.read(load, 1.0)
    assert (readings.noise(1.0) is not None) is is_near


def test_a_trial_without_an_excess_is_no_reading() -> None:
    five = [told(load, place) for place, load in enumerate(LOADS[:5])]
    readings = reading_of(*five, Reading(met=True))
    for load in LOADS:
        readings.read(load, 1.0)
    assert readings.noise(1.0) is None
