"""Files that other load generators wrote themselves, held against what those programs say of them.

`foreign_files/` has what each one wrote in a run against `plimsoll serve http`, or of values drawn
from a seed: `wrk -t1 -c4 -d2s --latency`, and the same for a path that is not there (wrk 4.1.0);
`fortio load -c 4 -qps 400 -t 2s -json FILE`, 50 requests for such a path, and what it printed
beside (fortio 1.66.5); a log by HistogramLogWriter, and its percentiles by HistogramLogProcessor,
in microseconds (HdrHistogram 2.2.2, in Java).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from plimsoll_lab.foreign.read import read_result
from plimsoll_lab.foreign.result import Options, Result

FILES = Path(__file__).resolve().parent / "foreign_files"


def times(result: Result) -> Mapping[str, float]:
    found = result.summary["response_time_us"]
    assert isinstance(found, dict)
    return found


def said(name: str, pattern: str) -> list[float]:
    """The numbers in the line of a file that a pattern finds."""
    found = re.search(pattern, (FILES / name).read_text(), re.MULTILINE)
    assert found is not None, pattern
    return [float(each) for each in found.groups()]


def test_wrk_tells_what_it_printed() -> None:
    found = read_result(FILES / "wrk.txt", Options())
    percentiles = said("wrk.txt", r"^ +50% +([\d.]+)us\n +75% +([\d.]+)us\n +90% +([\d.]+)us\n +99% +([\d.]+)us")
    mean, stdev, most = said("wrk.txt", r"^ +Latency +([\d.]+)us +([\d.]+)us +([\d.]+)ms")
    assert times(found) == pytest.approx(
        {"count": 123_092, "mean": mean, "stdev": stdev, "max": 1000 * most}
        | dict(zip(("p50", "p75", "p90", "p99"), percentiles, strict=True))
    )
    (count,), (rate,) = said("wrk.txt", r"^ +(\d+) requests in"), said("wrk.txt", r"^Requests/sec: +([\d.]+)$")
    assert found.summary["requests"] == {"completed": count, "failed": 0, "timed_out": 0}
    assert found.summary["completed_rate"] == pytest.approx(rate)
    assert found.elapsed_s == pytest.approx(2.10, abs=0.005), "as it says: requests in 2.10s"
    assert (found.tool, found.load) == ("wrk", {"connections": 4, "duration": "2s"})


def test_answers_that_wrk_calls_failed_are_none_of_the_completed() -> None:
    found = read_result(FILES / "wrk-statuses.txt", Options())
    (failed,) = said("wrk-statuses.txt", r"^ +Non-2xx or 3xx responses: (\d+)$")
    assert found.summary["requests"] == {"completed": 0, "failed": failed, "timed_out": 0}
    assert (found.summary["failed_ratio"], found.summary["completed_rate"]) == (1.0, 0.0)
    assert "failures_included" in {each.code for each in found.warnings}


def test_fortio_tells_what_it_printed_beside_its_file() -> None:
    found = read_result(FILES / "fortio.json", Options())
    shares = {"p50": "50", "p75": "75", "p90": "90", "p99": "99", "p99_9": r"99\.9"}
    printed = {name: said("fortio.txt", rf"^# target {share}% ([\d.]+)$")[0] for name, share in shares.items()}
    count, mean, stdev, least, most = said(
        "fortio.txt", r"^Aggregated Function Time : count (\d+) avg (\S+) \+/- (\S+) min (\S+) max (\S+) "
    )
    printed |= {"mean": mean, "stdev": stdev, "min": least, "max": most}
    assert times(found) == pytest.approx({"count": count} | {name: 1e6 * each for name, each in printed.items()}, 1e-3)
    elapsed_s, calls, rate = said("fortio.txt", r"^Ended after ([\d.]+)s : (\d+) calls\. qps=([\d.]+)$")
    assert found.elapsed_s == pytest.approx(elapsed_s)
    assert found.summary["requests"] == {"completed": calls, "failed": 0}
    assert found.summary["completed_rate"] == pytest.approx(rate, rel=1e-4)
    assert (found.version, found.load) == ("1.66.5", {"connections": 4, "rate": 400, "duration": "2s"})
    assert found.target == "http://127.0.0.1:18911/bytes/600"


def test_answers_that_fortio_calls_errors_are_none_of_the_completed() -> None:
    found = read_result(FILES / "fortio-statuses.json", Options())
    (failed,) = said("fortio-statuses.txt", r"^Error cases : count (\d+) ")
    assert found.summary["requests"] == {"completed": 0, "failed": failed}
    assert (found.summary["failed_ratio"], found.load) == (1.0, {"connections": 2, "requests": 50})


def test_a_log_of_histograms_tells_what_its_own_program_reads_in_it() -> None:
    found = read_result(FILES / "hdrhistogram.hlog", Options(unit="ns"))
    names = ("count", "p50", "p90", "p99", "p99_9", "p99_99", "max")
    whole = said("hdrhistogram.txt", r"^3\.000:.* T:(\d+) \( " + " ".join([r"([\d.]+)"] * 6))
    assert {name: times(found)[name] for name in names} == pytest.approx(dict(zip(names, whole, strict=True)))
    assert (found.elapsed_s, found.summary["completed_rate"]) == (3.0, 500.0)
    assert found.started_unix_s == said("hdrhistogram.txt", r"StartTime: ([\d.]+) ")[0]
    for number, second in enumerate(found.seconds):
        each = said("hdrhistogram.txt", rf"^{number + 1}\.000: I:(\d+) \( ([\d.]+) ([\d.]+) ([\d.]+) \)")
        own = [second.completed, *(second.response_time_us[name] for name in ("p50", "p90", "max"))]
        assert own == pytest.approx(each)
    assert len(found.seconds) == 3


def test_a_distribution_tells_what_its_own_program_wrote_of_the_same_log() -> None:
    found = times(read_result(FILES / "hdrhistogram.hgrm", Options(unit="us")))
    whole = times(read_result(FILES / "hdrhistogram.hlog", Options(unit="ns")))
    assert found == pytest.approx({name: whole[name] for name in found}, rel=1e-3)
    for name, share in (("p50", r"0\.5"), ("p90", r"0\.9"), ("p75", r"0\.75"), ("p95", r"0\.95")):
        assert [found[name]] == said("hdrhistogram.hgrm", rf"^ +([\d.]+) {share}0* "), name
    mean, stdev = said("hdrhistogram.hgrm", r"^#\[Mean += +([\d.]+), StdDeviation += +([\d.]+)\]")
    most, count = said("hdrhistogram.hgrm", r"^#\[Max += +([\d.]+), Total count += +(\d+)\]")
    assert (found["mean"], found["stdev"], found["max"], found["count"]) == (mean, stdev, most, count)
