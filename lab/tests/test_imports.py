"""Results of other load generators: their figures in our units, what they lack, and what is
refused.
"""

from __future__ import annotations

import gc
import gzip
import json
import tracemalloc
import weakref
from pathlib import Path
from typing import Any

import pytest
from conftest import lab_here, run_lab
from hdrh.histogram import HdrHistogram
from made_records import stored_run
from made_results import HGRM, TREND, WRK, WRK2, fortio, hlog, k6_export, k6_handled, k6_lines, k6_readable, oha

from plimsoll_lab.foreign import hdr
from plimsoll_lab.foreign.make_run import ImportRequest, ImportSource, import_run
from plimsoll_lab.foreign.read import read_result
from plimsoll_lab.foreign.result import ForeignFileError, Options, Result
from plimsoll_lab.store.histograms import decode
from plimsoll_lab.store.timelines import read_timeline


def read(
    tmp_path: Path,
    content: object,
    unit: str | None = None,
    duration_s: float | None = None,
    tag: str | None = None,
) -> Result:
    path = tmp_path / "file"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_result(path, Options(unit=unit, duration_s=duration_s, tag=tag))


def times(result: Result) -> dict[str, float]:
    found = result.summary["response_time_us"]
    assert isinstance(found, dict)
    return found


def codes(result: Result) -> set[str]:
    return {each.code for each in result.warnings}


@pytest.mark.parametrize("document", [k6_export(), k6_handled(), k6_readable()], ids=["export", "handled", "readable"])
def test_every_summary_of_k6_tells_the_same(document: dict[str, Any], tmp_path: Path) -> None:
    found = read(tmp_path, document)
    assert found.tool == "k6"
    assert found.load == {"virtual_users": 20}
    assert found.elapsed_s == 10.0
    assert found.summary["completed_rate"] == pytest.approx(99.0)
    assert found.summary["failed_ratio"] == 0.01
    assert times(found)["count"] == 990
    assert times(found)["p99"] == 19_000, "of requests that were completed"
    assert codes(found) == {"imported", "coordinated_omission"}


def test_what_a_summary_of_k6_lacks_is_said(tmp_path: Path) -> None:
    document = k6_export(dropped_iterations={"count": 7, "rate": 0.7})
    del document["metrics"]["http_req_duration{expected_response:true}"]
    document["metrics"]["http_req_duration"] = {name: TREND[name] for name in ("avg", "min", "med", "max", "p(95)")}
    found = read(tmp_path, document)
    assert {"failures_included", "percentiles_missing", "dropped_iterations"} <= codes(found)
    assert "p99" not in times(found)
    del document["metrics"]["http_req_failed"]
    old = read(tmp_path, document)
    assert "failures_unknown" in codes(old)
    assert "failed_ratio" not in old.summary


def test_the_lines_of_k6_give_exact_percentiles_and_seconds(tmp_path: Path) -> None:
    found = read(tmp_path, k6_lines())
    assert found.load == {"virtual_users": 5}
    assert times(found)["count"] == 100
    assert times(found)["p50"] == pytest.approx(14_900)
    assert times(found)["p99"] == pytest.approx(19_800)
    assert found.started_unix_s == pytest.approx(1767268800.01, abs=1e-3), "the start of the first request"
    assert found.elapsed_s == pytest.approx(1.99, abs=1e-3)
    assert [(each.completed, each.failed) for each in found.seconds] == [(50, 0), (50, 1)]
    packed = tmp_path / "packed.gz"
    packed.write_bytes(gzip.compress(k6_lines().encode()))
    assert read_result(packed, Options()).summary == found.summary


def test_the_lines_of_k6_are_read_one_by_one(tmp_path: Path) -> None:
    """Of a million requests the file is a gigabyte, and was held in memory several times."""
    path = tmp_path / "lines.gz"
    line = k6_lines().splitlines()[1].replace('"200"', f'"200", "url": "{"x" * 5000}"')
    path.write_bytes(gzip.compress((f"\n \n{line}\n" * 2000).encode(), 1))
    tracemalloc.start()
    try:
        found = read_result(path, Options())
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert times(found)["count"] == 2000
    assert most < len(line) * 2000 / 4


def test_the_seconds_of_k6_are_those_of_its_requests_in_any_order(tmp_path: Path) -> None:
    """Of several at once. In the second one nothing is completed."""
    moments = [(3.2, 30.0, False), (0.5, 100.0, False), (1.6, 20.0, True), (0.8, 50.0, False), (3.3, 10.0, False)]
    lines = ""
    for at_s, value, failed in moments:
        tags = {"expected_response": "false" if failed else "true"}
        data = {"time": f"2026-01-01T12:00:{at_s + 0.4:09.6f}Z", "value": value, "tags": tags}
        lines += json.dumps({"type": "Point", "metric": "http_req_duration", "data": data}) + "\n"
    found = read(tmp_path, lines)
    assert [(each.second, each.completed, each.failed) for each in found.seconds] == [
        (0, 2, 0),
        (1, 0, 1),
        (2, 2, 0),
    ]
    first, empty, last = (each.response_time_us for each in found.seconds)
    assert (first["min"], first["p50"], first["max"], first["mean"]) == (50_000, 50_000, 100_000, 75_000)
    assert (last["min"], last["p99"], last["stdev"], empty) == (10_000, 30_000, 10_000, {})


def test_oha_counts_statuses_of_failure_as_failures_and_the_deadline_as_none(tmp_path: Path) -> None:
    found = read(tmp_path, oha())
    assert found.summary["requests"] == {"completed": 990, "failed": 15, "in_flight": 5}
    assert found.summary["completed_rate"] == 495.0
    assert found.summary["failed_ratio"] == pytest.approx(15 / 1005)
    assert (times(found)["p50"], times(found)["p99_9"], times(found)["max"]) == (2000, 15_000, 20_000)
    assert codes(found) == {"imported", "coordinated_omission", "failures_included", "load_unknown"}
    apart = read(tmp_path, oha(latencyPercentilesSuccessful={"p50": 0.001, "p99": 0.002}))
    assert times(apart) == {"count": 990, "p50": 1000, "p99": 2000}
    assert "failures_included" not in codes(apart)


def test_fortio_tells_its_load_and_no_secret(tmp_path: Path) -> None:
    found = read(tmp_path, fortio())
    assert found.load == {"connections": 8, "rate": 400, "duration": "2s"}
    assert found.target == "http://127.0.0.1:8000/a"
    assert found.version == "1.60.3"
    assert found.summary["completed_rate"] == 396.0
    assert found.summary["failed_ratio"] == 0.01
    assert (times(found)["count"], times(found)["p50"], times(found)["p99"]) == (800, 2000, 10_000)
    old = fortio(RequestedQPS="max")
    del old["ErrorsDurationHistogram"]
    assert read(tmp_path, old).summary["failed_ratio"] == 0.01, "from the codes"
    assert "rate" not in read(tmp_path, old).load


def test_wrk2_is_read_in_microseconds(tmp_path: Path) -> None:
    found = read(tmp_path, WRK2)
    assert found.tool == "wrk2"
    assert found.load == {"connections": 100, "duration": "30s"}
    assert found.elapsed_s == 30.0
    assert found.summary["completed_rate"] == 1980.0, "without failing statuses"
    assert times(found)["count"] == 39_000, "without its calibration"
    assert times(found) | {"p50": 1100, "p99": 3000, "p99_9": 8000, "max": 10_000, "mean": 1201} == times(found)
    assert "coordinated_omission" not in codes(found)
    assert "calibration_left_out" in codes(found)


def test_wrk_has_other_units_and_no_correction(tmp_path: Path) -> None:
    found = read(tmp_path, WRK)
    assert found.tool == "wrk"
    assert times(found) == {"count": 35_996, "p50": 331, "p75": 336, "p90": 3400, "p99": 1_020_000}
    assert found.summary["requests"] == {"completed": 36_000, "failed": 5, "timed_out": 0}
    assert found.summary["errors"] == {"connect": 1, "read": 2, "write": 3, "timeout": 0, "status": 0}
    assert {"coordinated_omission", "slowest_missing"} <= codes(found)
    quick = read(tmp_path, WRK.replace("timeout 4", "timeout 0"))
    assert times(quick) | {"count": 36_000, "max": 1_050_000, "mean": 330} == times(quick)
    assert "slowest_missing" not in codes(quick)
    bare = "\n".join(line for line in WRK.splitlines() if "Distribution" not in line and "%  " not in line) + "\n"
    assert "percentiles_missing" in codes(read(tmp_path, bare))


@pytest.mark.parametrize(
    ("late", "told"),
    [(4, ["p50", "p75", "p90", "p99"]), (18, ["p50", "p75", "p90", "p99"]), (19, ["p50", "p75", "p90"])],
)
def test_answers_that_wrk_counts_and_has_no_time_of_leave_no_tail(tmp_path: Path, late: int, told: list[str]) -> None:
    """An answer above wrk's --timeout counted twice, and has no time: of 10,000 answers 1,000 took
    longer than 2 s, and the 99th percentile was 1.98 s.
    """
    found = read(tmp_path, WRK.replace("timeout 4", f"timeout {late}"))
    assert sorted(times(found).keys() - {"count"}) == told
    many = read(tmp_path, WRK.replace("timeout 4", "timeout 3600"))
    assert times(many) == {"count": 32_400}
    assert found.summary["requests"] == {"completed": 36_000, "failed": 5, "timed_out": 0}
    assert many.summary["failed_ratio"] == pytest.approx(5 / 36_005), "they were answered"


def test_a_distribution_needs_its_unit_and_its_duration(tmp_path: Path) -> None:
    with pytest.raises(ForeignFileError, match="does not name its unit"):
        read(tmp_path, HGRM)
    found = read(tmp_path, HGRM, unit="ms")
    assert times(found) | {"count": 1000, "p50": 2000, "p90": 5000, "p99": 9000, "max": 20_000} == times(found)
    assert "rate_unknown" in codes(found)
    assert "completed_rate" not in found.summary
    assert read(tmp_path, HGRM, unit="ms", duration_s=10.0).summary["completed_rate"] == 100.0
    own = read(tmp_path, HGRM + "#[2,000 connections; response time in us]\n")
    assert times(own)["p50"] == 2, "our own export tells it"
    beside = read(tmp_path, HGRM + "#[2,000 connections; response time in us]\n", unit="ms")
    assert times(beside) == times(own), "--unit is of a file beside it"


def test_a_log_of_histograms_is_merged_and_drawn_by_the_second(tmp_path: Path) -> None:
    found = read(tmp_path, hlog(), unit="ns")
    assert found.summary["completed_rate"] == 100.0
    assert times(found)["count"] == 200
    assert times(found)["p50"] == pytest.approx(50_000, rel=0.002)
    assert times(found)["max"] == pytest.approx(100_000, rel=0.002)
    assert found.started_unix_s == 1767268800.0
    assert [each.completed for each in found.seconds] == [100, 100]
    assert read(tmp_path, hlog(), unit="us").summary["requests"] == {"completed": 200}
    with pytest.raises(ForeignFileError, match="longer than a day"):
        read(tmp_path, hlog(), unit="s")


def test_the_histograms_of_a_log_are_read_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a third of a megabyte, and a log of a day has 86,400."""
    held: weakref.WeakSet[HdrHistogram] = weakref.WeakSet()

    def decoded(text: str) -> HdrHistogram:
        gc.collect()  # each is part of a circle of references
        assert len(held) <= 1
        found = decode(text)
        held.add(found)
        return found

    monkeypatch.setattr(hdr, "decode", decoded)
    head, interval = hlog().rsplit("\n", 3)[0], hlog().splitlines()[-1].partition(",")[2]
    found = read(tmp_path, head + "".join(f"\n{number}.000,{interval}" for number in range(10)) + "\n", unit="ns")
    assert times(found)["count"] == 1000
    assert [each.completed for each in found.seconds] == [100] * 10


def test_a_log_of_several_tags_wants_one_of_them(tmp_path: Path) -> None:
    with pytest.raises(ForeignFileError, match="several tags: get, put; choose one with --tag"):
        read(tmp_path, hlog(("get", "put")), unit="ns")
    assert times(read(tmp_path, hlog(("get", "put")), unit="ns", tag="put"))["count"] == 200
    with pytest.raises(ForeignFileError, match="no interval with the tag post"):
        read(tmp_path, hlog(("get", "put")), unit="ns", tag="post")


CUT = hlog()[:-30] + "\n"
REFUSED = {
    "nothing": ("", "it is empty"),
    "a text": ("hello\n", "no known format"),
    "other JSON": ('{"a": 1}', "JSON of no known tool"),
    "half a document": (json.dumps(oha())[:200], "is not JSON"),
    "not a number": (json.dumps(oha()).replace("0.002,", "NaN,", 1), "NaN is no number"),
    "an infinite time": (json.dumps(oha()).replace("0.02,", "1e999,", 1), "finite"),
    "a negative count": (oha(statusCodeDistribution={"200": -5}), "greater than or equal to 0"),
    "a percentile that is none": (oha(latencyPercentiles={"best": 0.003}), "latencyPercentiles.best"),
    "an endless test": (k6_export(http_reqs={"count": 1e300, "rate": 1e-300}), "neither how long the test lasted"),
    "percentiles that fall": (oha(latencyPercentiles={"p50": 0.003, "p99": 0.001}), "p99 lies below p50"),
    "k6 without HTTP": (k6_export(http_reqs={}), "no metric http_reqs"),
    "more failures than requests": (k6_export(http_req_failed={"passes": 5000}), "5000 failed requests of 1000"),
    "lines that end early": (k6_lines()[:-20], "line 103 is not JSON"),
    "a time without a zone": (k6_lines().replace("789Z", "789", 1), "has no time zone"),
    "a time of another week": (k6_lines().replace("-01T14", "-11T14", 1), "lie 10 days apart"),
    "another time without a zone": (fortio(StartTime="2026-01-01T12:00:00"), "StartTime: Input should have timezone"),
    "fortio of the wrong kind": (fortio(ActualDuration="2s"), "ActualDuration"),
    "wrk that was stopped": (WRK.partition("  36000")[0], "ends before the totals"),
    "wrk twice": (WRK + WRK, "several runs"),
    "wrk with a percentile of two points": (WRK.replace("336.00us", "33.6.0us"), r"'33\.6\.0' is no number"),
    "wrk with a share of two points": (WRK.replace("75%", "7.5.%"), r"'7\.5\.' is no number"),
    "wrk with a rate of two points": (WRK.replace("600.00", "60.0.0"), r"'60\.0\.0' is no number"),
    "wrk with a mean of two points": (WRK.replace("330.00us", "33.0.0us"), r"'33\.0\.0' is no number"),
    "wrk2 with a mean of two points": (WRK2.replace("1.201", "1.2.01"), r"'1\.2\.01' is no number"),
    "a head of two lines": (HGRM.replace("Value ", "Value\n", 1), "it has no row"),
    "rows that fall": (HGRM.replace("9.000", "1.500", 1), "do not rise"),
    "rows that end early": (HGRM.partition("      20.000")[0], "ends before its last row"),
    "a row of two points": (HGRM.replace("9.000", "9.0.0", 1), "line 6 is no row"),
    "a cut histogram": (CUT, "line 5 cannot be decoded"),
    "a log of a year that no calendar has": (hlog().replace("1767268800.000", "1" + 30 * "0"), "which is no date"),
    "an interval of two points": (hlog().replace(",1.000,", ",1.0.0,", 1), "line 4 is no interval"),
    "a line that is none": (hlog() + "and so on\n", "line 6 is no interval"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_broken_file_is_refused_with_its_reason(case: str, tmp_path: Path) -> None:
    content, reason = REFUSED[case]
    with pytest.raises(ForeignFileError, match=reason) as refusal:
        read(tmp_path, content, unit="ms" if content == HGRM or "rows" in case else "ns")
    assert refusal.value.exit_code == 2
    assert str(tmp_path / "file") in str(refusal.value)


def test_binary_files_and_damaged_archives_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content, reason in ((b"\xff\xfe\x00", "no text in UTF-8"), (gzip.compress(b"{}")[:-6], "damaged")):
        path.write_bytes(content)
        with pytest.raises(ForeignFileError, match=reason):
            read_result(path, Options())
    with pytest.raises(ForeignFileError, match="cannot be read: No such file"):
        read_result(tmp_path / "none", Options())


def test_an_import_is_a_run_with_a_page_and_no_verdict(tmp_path: Path) -> None:
    for number in range(6):
        scaled = oha(summary={**oha()["summary"], "total": 2.0 + number / 100})
        (tmp_path / f"a{number}.json").write_text(json.dumps(scaled))
        (tmp_path / f"b{number}.json").write_text(json.dumps(oha(summary={**scaled["summary"], "total": 4.0 + number})))
    files = [f"{name}={name}{number}.json" for name in ("a", "b") for number in range(6)]
    done = run_lab(
        tmp_path, "import", *files, "--set", "load.connections=50", "--question", "Is <b>bold</b>?", "--json"
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["valid"] is False
    assert summary["verdicts"] == []
    assert "12 results of oha, imported" in summary["answer"][0]
    assert [each["point"] for each in summary["points"]] == [{"contender": "a"}, {"contender": "b"}]
    assert [each["valid_n"] for each in summary["points"]] == [6, 6]
    assert {each["code"] for each in summary["warnings"]} >= {"imported", "coordinated_omission", "load_unknown"}
    page = (tmp_path / "runs/0001/report.html").read_text()
    assert "Is &lt;b&gt;bold&lt;/b&gt;?" in page
    assert "<b>bold" not in page
    assert "no coordinated omission" not in page
    assert "not checked" in page
    assert "a0.json" in page
    again = lab_here(tmp_path, "resume", "runs/0001")
    assert again.returncode == 2
    assert "was imported" in again.stderr


def test_a_name_of_a_contender_is_escaped_on_the_page(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(oha()))
    (tmp_path / "b.json").write_text(json.dumps(oha(), indent=1))
    done = lab_here(tmp_path, "import", "<img src>=a.json", "b</script>=b.json")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "runs/0001/report.html").read_text()
    assert "<img src>" not in page
    assert "b</script>" not in page


def test_files_of_several_loads_are_points_of_one_axis(tmp_path: Path) -> None:
    for name, threads in (("8", 8), ("16", 16), ("8-again", 8)):
        (tmp_path / f"{name}.json").write_text(json.dumps(fortio(NumThreads=threads, Labels=name)))
    done = lab_here(tmp_path, "import", "8.json", "16.json", "8-again.json", "--json")
    assert done.returncode == 0, done.stderr
    points = json.loads(done.stdout)["points"]
    assert [(each["point"], each["n"]) for each in points] == [
        ({"load.connections": 8}, 2),
        ({"load.connections": 16}, 1),
    ]


def test_files_of_tools_that_tell_other_loads_make_one_run(tmp_path: Path) -> None:
    (tmp_path / "fortio.json").write_text(json.dumps(fortio()))
    (tmp_path / "oha.json").write_text(json.dumps(oha()))
    done = lab_here(tmp_path, "import", "fortio.json", "oha.json", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert [each["point"]["load.connections"] for each in summary["points"]] == [8, "not told"]
    assert summary["answer"][1].startswith("At connections not told, ")


def test_no_knee_is_seen_where_nobody_knows_whether_the_loop_was_closed(tmp_path: Path) -> None:
    files = []
    for threads in (1, 2, 4, 8, 16, 32):
        files.append(f"{threads}.txt")
        (tmp_path / files[-1]).write_text(WRK2.replace("100 connections", f"{threads} connections"))
    done = lab_here(tmp_path, "import", *files, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["knees"] == []


def test_one_measurement_is_not_two(tmp_path: Path) -> None:
    for name in ("a.json", "copy.json"):
        (tmp_path / name).write_text(json.dumps(oha()))
    twice = lab_here(tmp_path, "import", "a.json", "copy.json")
    assert twice.returncode == 2
    assert "copy.json: holds the same measurement as a.json" in twice.stderr
    assert not (tmp_path / "runs").exists()
    for name in ("a.json", "copy.json"):
        lab_here(tmp_path, "import", name)
    compared = lab_here(tmp_path, "compare", "runs/0001", "runs/0002")
    assert compared.returncode == 2
    assert "runs/0002 and runs/0001 hold the same measurement" in compared.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("x.json", "--set", "load.connections=50"), "x.json: it has load.connections = 8, and --set says 50"),
        (("=x.json",), "=x.json: a name is missing"),
        (("x.json", "--set", "load.=50"), "only settings of the load"),
    ],
)
def test_what_contradicts_a_file_is_refused_in_one_line(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    (tmp_path / "x.json").write_text(json.dumps(fortio()))
    done = lab_here(tmp_path, "import", *arguments)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert said in done.stderr
    agreed = lab_here(tmp_path, "import", "x.json", "--set", "load.connections=8")
    assert agreed.returncode == 0, agreed.stderr


def test_an_address_that_is_none_is_left_out(tmp_path: Path) -> None:
    assert read(tmp_path, json.dumps(fortio(URL="http://[::1/"))).target == ""


def test_a_timeline_of_an_import_is_drawn(tmp_path: Path) -> None:
    (tmp_path / "x.hlog").write_text(hlog())
    done = lab_here(tmp_path, "import", "x.hlog", "--unit", "ns")
    assert done.returncode == 0, done.stderr
    rows = [
        (at_s, value) for _, at_s, _, figure, value in read_timeline(tmp_path / "runs/0001", 1) if figure == "completed"
    ]
    assert rows == [(0.0, 100.0), (1.0, 100.0)]
    assert 'data-chart="timelines-0"' in (tmp_path / "runs/0001/report.html").read_text()


def test_a_refused_file_leaves_no_run(tmp_path: Path) -> None:
    (tmp_path / "good.json").write_text(json.dumps(oha()))
    (tmp_path / "bad.json").write_text("{")
    done = lab_here(tmp_path, "import", "good.json", "bad.json")
    assert done.returncode == 2
    assert done.stderr.startswith("error: bad.json: cannot be imported: it is not JSON")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "runs").exists()
    mixed = lab_here(tmp_path, "import", "a=good.json", "good.json")
    assert "name every file" in mixed.stderr


def test_a_measurement_without_a_completed_request_has_failed(tmp_path: Path) -> None:
    nothing = oha(statusCodeDistribution={}, latencyPercentiles={"p50": None}, errorDistribution={"refused": 9})
    nothing["summary"] |= {"slowest": None, "fastest": None, "average": None}
    (tmp_path / "x.json").write_text(json.dumps(nothing))
    done = lab_here(tmp_path, "import", "x.json", "--json")
    assert done.returncode == 1
    (point,) = json.loads(done.stdout)["points"]
    assert (point["outcome"], point["reason"]) == ("failed", "no request was completed")


def test_imported_runs_are_compared_with_five_a_side(tmp_path: Path) -> None:
    """Without the pages that the command draws of each."""
    asked = ImportRequest(
        options=Options(), load={"connections": 50}, suite=None, question=None, command="", now_unix_s=0.0
    )
    sides: dict[str, list[str]] = {"a": [], "b": []}
    for number in range(5):
        for side, factor in (("a", 1.0), ("b", 1.5)):
            seconds = 2.0 * factor * (1 + number / 1000)
            (tmp_path / "x.json").write_text(json.dumps(oha(summary={**oha()["summary"], "total": seconds})))
            folder = import_run(tmp_path / "runs", [ImportSource(path=tmp_path / "x.json", name=None)], asked)
            sides[side].append(str(folder.path))
    done = lab_here(tmp_path, "compare", *sides["a"], "--with", *sides["b"], "--json")
    compared = json.loads(done.stdout)
    assert done.returncode == 3, done.stdout
    rate = next(each for each in compared["verdicts"] if each["figure"] == "completed_rate")
    assert (rate["call"], rate["winner"]) == ("better", "A")
    assert "imported" in {each["code"] for each in compared["warnings"]}
    one = lab_here(tmp_path, "compare", sides["a"][0], sides["b"][0], "--json")
    assert one.returncode == 4, "one run a side tells no difference"


def test_no_file_of_an_import_holds_a_secret_of_the_load(tmp_path: Path) -> None:
    """The header was in the command, the load and the page."""
    (tmp_path / "x.json").write_text(json.dumps(oha()))
    done = lab_here(tmp_path, "import", "x.json", "--set", "load.header=Authorization: Bearer s3cr3t-9")
    assert done.returncode == 0, done.stderr
    files = [each for each in (tmp_path / "runs").rglob("*") if each.is_file()]
    assert files
    assert [each for each in files if b"s3cr3t-9" in each.read_bytes()] == []


def test_an_import_cannot_be_compared_with_a_run_of_ours(tmp_path: Path) -> None:
    stored_run(tmp_path / "runs/0001", ("epoll", "poll"))
    (tmp_path / "x.json").write_text(json.dumps(oha()))
    lab_here(tmp_path, "import", "x.json")
    done = lab_here(tmp_path, "compare", "runs/0001", "runs/0002", "--json")
    assert done.returncode == 4
    assert any("not known in B" in each for each in json.loads(done.stdout)["not_comparable"])
