"""TCP beside theory: the formulas against figures worked out by hand, the chapter from kept
figures, and one transfer of Reno.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from laboratory import Done, bench_module, needs_networks, run_bench


def run(folder: Path, *arguments: str) -> Done:
    return run_bench(folder, "link_theory.py", *arguments)


def test_mathis_halves_with_twice_the_round_trip_and_four_times_the_loss() -> None:
    of = bench_module("tcp_theory").mathis_bits_per_s
    # 1448 x 8 bits / 20 ms x 1.2247 / 0.1
    assert of(0.02, 0.01) == pytest.approx(7.094e6, rel=1e-3)
    assert of(0.04, 0.01) == pytest.approx(of(0.02, 0.01) / 2)
    assert of(0.02, 0.04) == pytest.approx(of(0.02, 0.01) / 2)


def test_the_lower_of_loss_and_link_bounds_reno() -> None:
    of = bench_module("tcp_theory").reno_bits_per_s
    assert of(100e6, 0.02, 0.01) == pytest.approx(7.094e6, rel=1e-3)
    assert of(5e6, 0.02, 0.01) == of(5e6, 0.02, 0.0) == pytest.approx(5e6 * 1448 / 1514)


def test_a_queue_of_the_bandwidth_delay_fills_the_link_and_none_three_quarters_of_it() -> None:
    module = bench_module("tcp_theory")
    assert module.bandwidth_delay_packets(20e6, 0.04) == pytest.approx(66.05, abs=0.01)
    assert module.reno_utilisation(0, 66) == 0.75
    assert module.reno_utilisation(33, 66) == pytest.approx(0.75 * 2.25 / 1.75)
    assert module.reno_utilisation(66, 66) == pytest.approx(1.0)
    assert module.reno_utilisation(660, 66) == pytest.approx(1.0)


def test_the_utilisation_is_that_of_a_window_stepped_through_a_cycle() -> None:
    # A hundred round trips hold 1000 packets; of each, the packets and the time.
    full, queue = 1000, 300
    packets, time = 0.0, 0.0
    for window in range((full + queue) // 2, full + queue):
        packets += window
        time += max(1.0, window / full)
    assert bench_module("tcp_theory").reno_utilisation(queue, full) == pytest.approx(packets / full / time, rel=1e-3)


def row(**told: Any) -> dict[str, Any]:  # noqa: ANN401 - as JSON has it
    usual = {"from": "h1", "to": "h4", "round_trip_s": 0.02, "goodput_bits_per_s": 8e6, "window_most_bytes": 50_000}
    return usual | {"theory_bits_per_s": 7.1e6, "lost_by_fault": 0} | told


def kept(reno: float) -> dict[str, Any]:
    return {
        "command": "it",
        "loss": [row(loss="1%", control="reno", goodput_bits_per_s=reno), row(loss="1%", control="bbr")],
        "queue": [row(queue=33, control="reno"), row(queue=33, control="cubic")],
        "window": [
            row(rate="10Mbit", delay="5ms", control="cubic", bandwidth_delay_bytes=12_500.0, under_way_bytes=20_000.0)
        ],
        "path": [row(loss="0%", control="reno"), row(loss="0%", control="reno", **{"from": "h4", "to": "h1"})],
    }


@pytest.mark.parametrize(("reno", "said"), [(8e6, "lies within"), (4e6, "does not lie within"), (12e6, "does not lie")])
def test_the_chapter_says_whether_reno_is_as_near_as_it_has_to_be(tmp_path: Path, reno: float, said: str) -> None:
    results = tmp_path / "docs" / "results"
    results.mkdir(parents=True)
    (results / "link-theory.json").write_text(json.dumps(kept(reno)))
    done = run(tmp_path, "--write")
    assert done.returncode == 0, done.stderr
    chapter = (tmp_path / "docs" / "link-theory.md").read_text()
    assert f"Reno {said}" in chapter
    assert f"| 1% | 7.1 | {reno / 1e6:.1f} | - | 8.0 | {reno / 7.1e6:.2f} |" in chapter
    assert "| 33 | 7.1 | 8.0 | 8.0 | - | 1.13 |" in chapter
    assert "| 10Mbit, 5ms each way | 12 | 20 | 1.60 | 50 |" in chapter
    assert "| h4 to h1 | 0% | 7.1 | 8.0 | - | - | 1.13 |" in chapter
    for name in ("link-theory-loss.svg", "link-theory-queue.svg"):
        assert (results / name).read_text().startswith("<svg")


@pytest.mark.measures
@needs_networks
@pytest.mark.skipif(shutil.which("iperf3") is None, reason="iperf3 is not installed")
def test_reno_at_one_percent_of_loss_is_near_mathis(tmp_path: Path) -> None:
    done = run(tmp_path, "--quick")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert 1 / 1.5 <= found["goodput_bits_per_s"] / found["theory_bits_per_s"] <= 1.5, found
    assert found["packets_lost"] > 0
