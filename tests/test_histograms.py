"""The generator's histograms, read by another library of the format: nothing is lost on the way,
nor by merging.
"""

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
LONGEST_NS = 3_600_000_000_000
"""An hour: far more than any answer here takes."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    command = [str(BINARY), "serve", "echo", "--listen", "127.0.0.1:0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["addresses"][0]
        process.terminate()


def load(server: str, folder: Path, **runs: str) -> list[dict[str, Any]]:
    """Runs a generator for each name with its arguments, all at one time; keeps each record and log
    of requests.

    Returns the records in the order of the names.
    """
    processes = []
    for name, arguments in runs.items():
        log = ("--request-log", str(folder / f"{name}.csv"))
        command = [str(BINARY), "load", "echo", server, *arguments.split(), *log, "--json", "--quiet"]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    records = []
    for name, process in zip(runs, processes, strict=True):
        said, complaint = process.communicate(timeout=600)
        assert process.returncode in (0, 4), complaint
        (folder / f"{name}.json").write_text(said)
        records.append(dict(json.loads(said.splitlines()[-1])))
    return records


def counts(histogram: HdrHistogram) -> dict[int, int]:
    """How many values lie in each bucket, by its highest value."""
    return {item.value_iterated_to: item.count_added_in_this_iter_step for item in histogram.get_recorded_iterator()}


def logged(folder: Path, *names: str) -> HdrHistogram:
    """The other library's own histogram of the response times that the logs of requests hold, in
    nanoseconds.
    """
    histogram = HdrHistogram(1, LONGEST_NS, 3)
    for name in names:
        for row in (folder / f"{name}.csv").read_text().splitlines()[1:]:
            *_, microseconds, phase, outcome = row.split(",")
            assert (phase, outcome) == ("window", "ok")
            histogram.record_value(round(float(microseconds) * 1000))
    return histogram


def test_another_library_reads_the_counts_that_were_recorded(server: str, tmp_path: Path) -> None:
    [summary] = load(server, tmp_path, a="-n 5000 -c 16")
    told = summary["response_time_us"]
    decoded = HdrHistogram.decode(summary["histograms"]["response_time_ns"])
    assert told["count"] == 5000
    assert counts(decoded) == counts(logged(tmp_path, "a"))
    assert decoded.get_total_count() == 5000
    assert decoded.significant_figures == 3
    for name, percentile in {"p50": 50, "p75": 75, "p90": 90, "p99": 99, "p99_9": 99.9}.items():
        assert decoded.values_are_equivalent(decoded.get_value_at_percentile(percentile), round(told[name] * 1000)), (
            name
        )


def test_merging_loses_no_count_either(server: str, tmp_path: Path) -> None:
    # Half a second and more each, so that they measure at one time however slowly they start.
    parts = load(server, tmp_path, a="-n 400 -c 2 --think 5ms", b="-n 4000 -c 40 --think 10ms")
    records = [tmp_path / "a.json", tmp_path / "b.json"]
    merged = json.loads(subprocess.run([BINARY, "merge", *records], capture_output=True, text=True, check=False).stdout)
    for name in ("response_time_ns", "service_time_ns", "establishment_time_ns"):
        total: Counter[int] = Counter()
        for part in parts:
            total.update(counts(HdrHistogram.decode(part["histograms"][name])))
        assert counts(HdrHistogram.decode(merged["histograms"][name])) == dict(total), name
    assert counts(HdrHistogram.decode(merged["histograms"]["response_time_ns"])) == counts(logged(tmp_path, "a", "b"))
