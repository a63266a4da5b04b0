"""The knee: found where it is known, and refused where nothing can be said."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_records import stored_run
from simulated import tell

from plimsoll_lab.analysis.knees import find_knees
from plimsoll_lab.report.encoding import MatrixLayout
from plimsoll_lab.report.knees import knee_charts
from plimsoll_lab.stats.knee import Load, find_knee, fit_usl, usl
from plimsoll_lab.stats.results import Bound
from plimsoll_lab.store.summary_record import KneeRecord
from plimsoll_lab.suite.spec import Axis

LOADS = (1, 2, 4, 8, 16, 32, 64, 128)
CURVES = int(os.environ.get("PLIMSOLL_FAMILIES", "60"))
"""Simulated curves of each shape; `make soak` asks for many more."""


def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def closed_loop(servers: int, service_s: float, think_s: float, loads: tuple[int, ...], noise: float) -> list[Load]:
    """The asymptotes themselves: as many requests at once as there are servers, and not one
    more.
    """
    draw = rng()
    found = []
    for n in loads:
        rate = min(n / (service_s + think_s), servers / service_s)
        rates = [rate * draw.normal(1, noise) for _ in range(5)]
        found.append(Load(load=n, rates=rates, responses_s=[n / each - think_s for each in rates]))
    return found


def scalable(a: float, s: float, k: float, noise: float, loads: tuple[int, ...] = LOADS) -> list[Load]:
    draw = rng()
    n = np.array(loads, dtype=float)
    rates = usl(n, np.array([a, s, k]))
    return [
        Load(load=at, rates=[x * draw.normal(1, noise) for _ in range(5)], responses_s=[at / x])
        for at, x in zip(loads, rates, strict=True)
    ]


def test_the_asymptotes_meet_at_xmax_times_r0_plus_z() -> None:
    # Two servers of 10 ms and 90 ms of think time: 200 a second at most, and 200 x 0.1 s = 20
    # connections.
    knee = find_knee(closed_loop(2, 0.010, 0.090, LOADS, 0.01), think_s=0.090, rng=rng())
    assert knee.bound is not None
    assert knee.bound.at == pytest.approx(20, rel=0.05)
    assert knee.bound.reached
    low, high = knee.bound.at_ci95 or (0, 0)
    assert low <= knee.bound.at <= high


PLATEAU = [11, 22, 44, 88, 160, 200, 200, 200, 200, 200]
SHORT_PLATEAU = PLATEAU[:7]
PEAK = [float(each) for each in usl(np.array(LOADS, dtype=float), np.array([100.0, 0.05, 0.0005]))]


@pytest.mark.parametrize(
    ("truth", "above"),
    [(PLATEAU, 0.02), (SHORT_PLATEAU, 0.005), (PEAK, 0.005)],
    ids=["a long plateau", "a short one", "a peak"],
)
def test_the_highest_rate_is_not_that_of_the_luckiest_load(truth: list[float], above: float) -> None:
    """Xmax was the highest median: `above` is by how much that lies above the truth at least."""
    draw, most = np.random.default_rng(len(truth)), max(truth)
    medians, estimates, held = [], [], 0
    for _ in range(CURVES):
        rates = [rate * draw.normal(1, 0.05, 5) for rate in truth]
        loads = [Load(load=n, rates=each.tolist(), responses_s=[1.0] * 5) for n, each in enumerate(rates, start=1)]
        bound = find_knee(loads[-5:], think_s=0, rng=draw).bound
        assert bound is not None
        assert bound.at_ci95 is not None
        medians.append(max(float(np.median(each)) for each in rates) / most - 1)
        estimates.append(bound.most_rate / most - 1)
        held += bound.at_ci95[0] <= most <= bound.at_ci95[1]
    bias = f"highest median {np.mean(medians):+.1%}, estimate {np.mean(estimates):+.1%}"
    tell("knee", f"{len(truth)} loads, {truth.count(most)} of them at the top: {bias}", CURVES, interval_held=held)
    assert np.mean(medians) > above
    assert abs(np.mean(estimates)) < 0.008 + 3 * np.std(estimates) / CURVES**0.5
    assert held >= 0.9 * CURVES - 3 * (0.9 * 0.1 * CURVES) ** 0.5


def test_one_trial_a_load_tells_the_highest_rate_and_no_interval() -> None:
    loads = [Load(load=n, rates=[rate], responses_s=[0.1]) for n, rate in ((1, 10.0), (4, 30.0), (8, 20.0))]
    bound = find_knee(loads, think_s=0, rng=rng()).bound
    assert bound is not None
    assert (bound.most_rate, bound.at_ci95, bound.reached) == (30.0, None, True)


def test_a_knee_beyond_every_load_is_said_not_to_be_reached() -> None:
    knee = find_knee(closed_loop(2, 0.010, 0.990, (1, 10, 50), 0), think_s=0.99, rng=rng())
    assert knee.bound is not None
    assert not knee.bound.reached


def test_the_law_finds_its_own_parameters() -> None:
    found = fit_usl(np.array(LOADS, dtype=float), usl(np.array(LOADS, dtype=float), np.array([100.0, 0.05, 0.0005])))
    assert found == pytest.approx([100.0, 0.05, 0.0005], rel=1e-6)


def test_noise_widens_the_intervals_and_keeps_the_truth_within() -> None:
    fit = find_knee(scalable(100, 0.05, 0.0005, 0.02), think_s=0, rng=rng()).fit
    assert fit is not None
    assert fit.contention_ci95[0] <= 0.05 <= fit.contention_ci95[1]
    assert fit.coherence_ci95[0] <= 0.0005 <= fit.coherence_ci95[1]
    assert fit.peak_at == pytest.approx((0.95 / 0.0005) ** 0.5, rel=0.1)
    assert all(low <= high for _, _, low, high in fit.curve)


def test_fewer_than_six_loads_are_refused() -> None:
    knee = find_knee(scalable(100, 0.05, 0.0005, 0.01, (1, 2, 4, 8, 16)), think_s=0, rng=rng())
    assert knee.fit is None
    assert knee.refused is not None
    assert "5 loads are too few" in knee.refused
    assert knee.bound is not None


def test_a_curve_with_a_corner_is_refused() -> None:
    loads = (1, 4, 8, 16, 20, 24, 64, 256)
    knee = find_knee(closed_loop(2, 0.010, 0.090, loads, 0.001), think_s=0.09, rng=rng())
    assert knee.fit is None
    assert knee.refused is not None
    assert "misses a median" in knee.refused


def test_one_load_bends_nowhere() -> None:
    knee = find_knee([Load(load=1, rates=[1.0], responses_s=[1.0])], think_s=0, rng=rng())
    assert (knee.bound, knee.fit) == (None, None)


def test_the_bound_of_a_curve_that_only_falls_is_level(tmp_path: Path) -> None:
    """By noise its corner may lie below the first load; the line rose there and fell again."""
    folder = stored_run(tmp_path / "0001", repeat=2)
    figures = {"completed_rate": 900.0, "response_time_us.mean": 1e3}
    trials = [
        replace(trial, setting={"load.connections": load}, figures=figures)
        for trial, load in zip(folder.read_trials(), (1, 2), strict=False)
    ]
    bound = Bound(most_rate=900.0, idle_response_s=1e-3, think_s=0.0, at=0.9, at_ci95=None, reached=True)
    knee = KneeRecord(point={}, bound=bound, fit=None, refused="two loads", text="")
    layout = MatrixLayout(compare=None, contenders=("all",), levels=())
    layers: Any = knee_charts([knee], trials, layout)["knee-0-rate"]["layer"]
    assert [(row["x"], row["y"]) for row in layers[1]["data"]["values"]] == [(1, 900.0), (2, 900.0)]


def test_loads_may_be_written_with_a_k(tmp_path: Path) -> None:
    folder = stored_run(tmp_path / "0001", repeat=2)
    run, loads = folder.read_run(), ("1k", "2k")
    run.axes = (Axis(path="load.connections", values=loads),)
    run.points = [
        run.points[0].model_copy(update={"number": number, "setting": {"load.connections": load}})
        for number, load in enumerate(loads)
    ]
    figures = {"completed_rate": 10_000.0, "response_time_us.mean": 50_000.0}
    trials = [
        replace(trial, point=number, setting={"load.connections": loads[number]}, figures=figures)
        for number, trial in enumerate(folder.read_trials())
    ]
    [knee] = find_knees(run, trials)
    assert knee.bound is not None
    assert knee.bound.at == pytest.approx(500)
    assert knee.bound.reached
