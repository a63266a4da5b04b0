"""How much the readings of one load vary, and how long that makes a search's trials."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from plimsoll_lab.stats.capacity import search
from plimsoll_lab.stats.finding import NOISE_TOLERATED
from plimsoll_lab.stats.goal import Goal
from plimsoll_lab.stats.readings import Measure, Reading, load_noise


def noisy(seed: int, noise: float) -> Measure:
    luck = random.Random(seed)

    def measure(load: int, length_s: float) -> Reading:
        excess = math.log(load / 321) + luck.gauss(0, noise / math.sqrt(length_s))
        return Reading(met=excess < 0, excess=excess)

    return measure


@pytest.mark.parametrize("noise", [0.08, 0.2, 0.5])
def test_trials_are_lengthened_by_what_their_noise_asks_for_within_limits(noise: float) -> None:
    """The error of a mean falls with the root of its length: trials are lengthened by the square of
    how much too large their noise is, by 1.5 at least and 4 at most.
    """
    goal = Goal(lowest=10, highest=10_000, width=0.1, trials=3, least_s=0.1, most_s=40)
    seen: list[tuple[int, float, float]] = []
    factors = []
    measure = noisy(3, noise)

    def told(load: int, length_s: float) -> Reading:
        if seen and length_s > seen[-1][1]:
            before_s = seen[-1][1]
            near = [each for each in seen if abs(each[2]) <= 1 and each[1] * 16 >= before_s]
            found = load_noise(near, before_s)
            assert found is not None
            wanted = 2.0 if math.isinf(found) else min(4, max(1.5, (found / (0.4 * 0.1)) ** 2))
            assert length_s == pytest.approx(min(40, before_s * wanted))
            factors.append(wanted)
        reading = measure(load, length_s)
        seen.append((load, length_s, reading.excess or 0.0))
        return reading

    found = search(told, goal)
    assert factors, "none was too short"
    final_s = seen[-1][1]
    near = [each for each in seen if abs(each[2]) <= 1 and each[1] * 16 >= final_s]
    assert found.precision == pytest.approx((load_noise(near, final_s) or 0) / NOISE_TOLERATED)
    assert found.trial_s == final_s


POINTS = [1, 1, 2, 2, 4, 4]


def readings(slope: float, residual: float, length_s: float = 1.0) -> list[tuple[int, float, float]]:
    """On a line over the logarithm of the load, but for a residual to either side at each load."""
    return [
        (load, length_s, 3 + slope * math.log(load) + residual * (-1) ** place) for place, load in enumerate(POINTS)
    ]


def test_the_noise_of_a_load_in_figures() -> None:
    """Six squares of 0.1 over four degrees of freedom: a deviation of 0.1 x sqrt(1.5), by a slope
    of 2. Trials that are four times as long as those asked for have half of their noise.
    """
    deviation = 0.1 * math.sqrt(1.5)
    assert load_noise(readings(2, 0.1), 1.0) == pytest.approx(deviation / 2)
    assert load_noise(readings(2, 0.1, 4.0), 1.0) == pytest.approx(deviation)
    assert load_noise(readings(2, 0.1, 4.0), 4.0) == pytest.approx(deviation / 2)
    assert load_noise(readings(2, 0.0), 1.0) == pytest.approx(0, abs=1e-12)


def test_a_slope_within_two_standard_errors_of_zero_is_none() -> None:
    """The squares of the logarithms' distances sum to 4 log(2)^2: two errors are 0.1 x sqrt(1.5) /
    log 2 = 0.1767.
    """
    assert load_noise(readings(0.176, 0.1), 1.0) == math.inf
    assert load_noise(readings(0.178, 0.1), 1.0) == pytest.approx(0.1 * math.sqrt(1.5) / 0.178)
    assert load_noise(readings(-2, 0.1), 1.0) == math.inf
    assert load_noise(readings(0, 0.0), 1.0) == math.inf


def test_six_readings_at_two_loads_show_a_noise() -> None:
    assert load_noise(readings(2, 0.1)[:5], 1.0) is None
    assert load_noise([(7, 1.0, 0.1 * place) for place in range(9)], 1.0) is None
    assert load_noise([(7 + place % 2, 1.0, float(place % 2)) for place in range(6)], 1.0) is not None


def test_a_reading_weighs_as_much_as_its_trial_is_long() -> None:
    """As numpy fits a line with the roots of these weights."""
    luck = np.random.default_rng(2)
    loads, lengths_s = luck.integers(100, 200, 12), luck.uniform(1, 9, 12)
    excess = 1.5 * np.log(loads) + luck.normal(0, 0.05, 12)
    weights = lengths_s / 3
    slope, height = np.polyfit(np.log(loads), excess, 1, w=np.sqrt(weights))
    deviation = math.sqrt(float(weights @ (excess - height - slope * np.log(loads)) ** 2) / 10)
    given = list(zip(loads.tolist(), lengths_s.tolist(), excess.tolist(), strict=True))
    assert load_noise(given, 3.0) == pytest.approx(deviation / slope)
