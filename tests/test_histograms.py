"""The generator's histograms, read by another library of the format: nothing is lost on the way, nor by merging."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hdrh.histogram import HdrHistogram

ROOT = Path(__file__).resolve().parent.parent
BINARY = Path(os.environ.get("PLIMSOLL_BIN") or ROOT / "target" / "release" / "plimsoll")
LONGEST_US = 3_600_000_000
"""An hour: far more than any answer here takes."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    command = [str(BINARY), "serve", "echo", "--listen", "127.0.0.1:0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["addresses"][0]
        process.terminate()


def load(server: str, folder: Path, name: str, *arguments: str) -> dict[str, Any]:
    """Runs the generator, keeps its record and its log of requests, and returns the record."""
    log = folder / f"{name}.csv"
    command = [str(BINARY), "load", "echo", server, *arguments, "--request-log", str(log), "--json", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode in (0, 4), done.stderr
    (folder / f"{name}.json").write_text(done.stdout)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def counts(histogram: HdrHistogram) -> dict[int, int]:
    """How many values lie in each bucket, by its highest value."""
    return {item.value_iterated_to: item.count_added_in_this_iter_step for item in histogram.get_recorded_iterator()}


def logged(folder: Path, *names: str) -> HdrHistogram:
    """The other library's own histogram of the response times that the logs of requests hold, in whole microseconds."""
    histogram = HdrHistogram(1, LONGEST_US, 3)
    for name in names:
        for row in (folder / f"{name}.csv").read_text().splitlines()[1:]:
            nanoseconds = round(float(row.split(",")[4]) * 1000)
            histogram.record_value((nanoseconds + 500) // 1000)
    return histogram


def test_another_library_reads_the_counts_that_were_recorded(server: str, tmp_path: Path) -> None:
    summary = load(server, tmp_path, "a", "-n", "5000", "-c", "16")
    told = summary["response_time_us"]
    decoded = HdrHistogram.decode(summary["histograms"]["response_time_us"])
    assert told["count"] == 5000
    assert counts(decoded) == counts(logged(tmp_path, "a"))
    assert decoded.get_total_count() == 5000
    assert decoded.significant_figures == 3
    for name, percentile in {"p50": 50, "p75": 75, "p90": 90, "p99": 99, "p99_9": 99.9}.items():
        assert decoded.values_are_equivalent(decoded.get_value_at_percentile(percentile), int(told[name])), name


def test_merging_loses_no_count_either(server: str, tmp_path: Path) -> None:
    parts = [load(server, tmp_path, name, "-n", "2000", "-c", clients) for name, clients in (("a", "2"), ("b", "40"))]
    records = [tmp_path / "a.json", tmp_path / "b.json"]
    merged = json.loads(subprocess.run([BINARY, "merge", *records], capture_output=True, text=True, check=False).stdout)
    for name in ("response_time_us", "service_time_us", "establishment_time_us"):
        total: Counter[int] = Counter()
        for part in parts:
            total.update(counts(HdrHistogram.decode(part["histograms"][name])))
        assert counts(HdrHistogram.decode(merged["histograms"][name])) == dict(total), name
    assert counts(HdrHistogram.decode(merged["histograms"]["response_time_us"])) == counts(logged(tmp_path, "a", "b"))
