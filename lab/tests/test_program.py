"""The program as a person uses it, against the fake binary."""

from __future__ import annotations

import base64
import csv
import hashlib
import html
import json
import re
import sys
import zlib
from pathlib import Path

import jsonschema
import pytest
from conftest import SUITE, Done, Lab, lab_here, run_lab, summary_of

from plimsoll_lab.analysis import formatting

SCHEMAS = Path(__file__).parent.parent / "plimsoll_lab" / "store"


def valid(record: object, schema: str) -> None:
    jsonschema.validate(record, json.loads((SCHEMAS / f"{schema}.schema.json").read_text()))


def test_a_run_ends_with_one_summary(finished: tuple[Path, Done]) -> None:
    _, done = finished
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["event"] for line in lines] == ["trial"] * 12 + ["summary"]
    summary = lines[-1]
    assert (summary["run"], summary["report"], summary["valid"]) == ("runs/0001", "runs/0001/report.html", True)
    point = summary["points"][0]
    assert point["point"] == {"server.model": "select", "load.connections": 100}
    assert (point["n"], point["valid_n"], point["outcome"]) == (2, 2, "ok")
    for figure in ("completed_rate", "response_time_us.p50", "server.cpu_us_per_request", "server.memory_bytes"):
        assert point["figures"][figure]["median"] > 0
    limit = summary["points"][1]
    assert (limit["outcome"], limit["valid_n"], limit["figures"]) == ("hard_limit", 0, {})
    assert "held 1000 connections at most" in limit["reason"]
    assert {verdict["call"] for verdict in summary["verdicts"]} == {"not shown"}
    severities = {warning["code"]: (warning["severity"], warning["trials"]) for warning in summary["warnings"]}
    assert severities["too_few_repetitions"] == ("voids", None)


def test_every_record_keeps_to_its_schema(finished: tuple[Path, Done]) -> None:
    folder, done = finished
    valid(summary_of(done.stdout), "summary")
    valid(json.loads((folder / "runs/0001/run.json").read_text()), "run")
    trials = sorted((folder / "runs/0001/trials").iterdir())
    assert [path.name for path in trials] == [f"{number:04d}.json" for number in range(1, 13)]
    for path in trials:
        valid(json.loads(path.read_text()), "trial")


@pytest.mark.parametrize("verb", ["", "run", "resume", "report", "compare", "capacity", "gate", "preflight"])
def test_help_says_what_each_exit_code_means(lab: Lab, verb: str) -> None:
    told = lab(*verb.split(), "--help").stdout.partition("\nexit codes:\n")[2]
    assert [line.split("  ")[1] for line in told.splitlines()] == ["0", "1", "2", "3", "4", "5", "130, 143"]


def test_terminal_page_and_json_say_the_same(finished: tuple[Path, Done]) -> None:
    folder, done = finished
    summary = summary_of(done.stdout)
    text = lab_here(folder, "report", "runs/0001").stdout
    page = html.unescape((folder / "runs/0001/report.html").read_text())
    assert summary["answer"]
    for sentence in summary["answer"]:
        assert sentence in text
        assert sentence in page
    measured = [point for point in summary["points"] if point["outcome"] == "ok"]
    assert measured
    for point in measured:
        rate = formatting.number(point["figures"]["completed_rate"]["median"], "per_s")
        assert rate in text
        assert rate in page
    assert summary["command"] in text
    assert summary["command"] in page


def packed_in(page: str, name: str) -> str:
    """What the page has for its scripts alone, unpacked."""
    found = re.search(rf'<script type="application/zlib" id="{name}">(.*?)</script>', page)
    assert found is not None
    return zlib.decompress(base64.b64decode(found[1])).decode()


def test_the_page_loads_nothing(finished: tuple[Path, Done]) -> None:
    folder, _ = finished
    page = (folder / "runs/0001/report.html").read_text()
    before_scripts = html.unescape(page[: page.index('<script type="application/zlib"')])
    # Links lead into the page or hold their file themselves; a picture refers to parts of itself.
    assert not re.search(r"""(src|href)\s*=\s*["']?(?!["']?(#|data:))|url\((?!#)|@import""", before_scripts)
    assert "default-src 'none'" in before_scripts
    # The policy names the scripts by their hashes: a script that was changed on its way would not
    # run.
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    scripts = (script, packed_in(page, "engine"))
    hashes = {base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in scripts}
    assert set(re.findall(r"'sha256-([^']+)'", before_scripts)) == hashes


def test_the_seed_tells_the_order_again(lab: Lab, suite_file: Path, tmp_path: Path) -> None:
    for _ in range(2):
        lab("run", str(suite_file), "--repeat", "1", "--only", "load.connections=100")
    first, second = (json.loads((tmp_path / f"runs/000{n}/run.json").read_text()) for n in (1, 2))
    assert first["trials"] == second["trials"]
    assert first["command"] == f"plimsoll lab run {suite_file} --repeat 1 --only load.connections=100 --seed 7"


def test_any_command_can_be_the_server(lab: Lab, tmp_path: Path) -> None:
    server = (
        "import socket, sys\n"
        "listener = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
        "while True:\n"
        "    connection, _ = listener.accept()\n"
        "    if connection.recv(64): connection.sendall(b'epoll 100\\n')\n"
        "    connection.close()\n"
    )
    (tmp_path / "server.py").write_text(server)
    (tmp_path / "foreign.toml").write_text(
        'name = "foreign"\nquestion = "Does it work?"\n[server]\n'
        f'command = ["{sys.executable}", "{{dir}}/server.py", "{{port}}"]\nready = "tcp:{{port}}"\n'
        '[load]\nduration = "1s"\nconnections = 100\n[run]\nrepeat = 2\n'
    )
    done = lab("run", "foreign.toml", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    [point] = summary_of(done.stdout)["points"]
    assert (point["outcome"], point["valid_n"]) == ("ok", 2)
    assert point["figures"]["server.memory_bytes"]["median"] > 1e6


def test_a_missed_limit_is_exit_3(lab: Lab, suite_file: Path) -> None:
    suite_file.write_text(suite_file.read_text() + '[limits]\n"response_time.p99" = "<1us"\ncompleted_rate = ">1"\n')
    done = lab("run", str(suite_file), "--json", "--repeat", "1", "--only", "load.connections=100")
    assert done.returncode == 3
    summary = summary_of(done.stdout)
    assert [each["met"] for each in summary["limits_missed"]] == [False] * 3
    assert [each["met"] for each in summary["points"][0]["limits"]] == [False, True]


def test_plan_runs_nothing_and_warns_of_a_verdict_out_of_reach(lab: Lab, suite_file: Path, tmp_path: Path) -> None:
    plan = summary_of(lab("plan", str(suite_file), "--json").stdout)
    assert (len(plan["points"]), len(plan["trials"]), plan["family"]["comparisons"]) == (6, 12, 8)
    assert [warning["code"] for warning in plan["warnings"]] == ["too_few_repetitions"]
    assert plan["family"]["repetitions_needed"] == 6
    assert summary_of(lab("plan", str(suite_file), "--json", "--repeat", "9").stdout)["warnings"] == []
    assert not (tmp_path / "runs").exists()


def test_exports_agree_with_the_summary(finished: tuple[Path, Done]) -> None:
    folder, _ = finished
    done = lab_here(folder, "report", "runs/0001", "--export", "csv,svg", "--json")
    rows = zip(table(folder / "runs/0001/points.csv"), summary_of(done.stdout)["points"], strict=True)
    measured = [(row, point) for row, point in rows if point["outcome"] == "ok"]
    assert measured
    for row, point in measured:
        assert float(row["completed_rate.median"]) == point["figures"]["completed_rate"]["median"]
    assert len(table(folder / "runs/0001/trials.csv")) == 12
    page = (folder / "runs/0001/report.html").read_text()
    drawn = {chart["name"] for chart in json.loads(packed_in(page, "data"))["charts"]}
    assert len(drawn) >= 10
    assert {path.stem for path in (folder / "runs/0001/charts").glob("*.svg")} == drawn


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_help_shows_examples_for_every_verb(lab: Lab) -> None:
    for verb in ("run", "plan", "resume", "report", "suites", "list"):
        shown = lab(verb, "--help")
        assert shown.returncode == 0
        assert "examples:" in shown.stdout
    assert lab("--version").stdout.startswith("plimsoll-lab ")


def test_a_point_beside_the_matrix_that_lacks_its_axis_has_a_page_and_its_settings_in_tables(
    lab: Lab, tmp_path: Path
) -> None:
    matrix = '[matrix]\n"load.connections" = [100, 200]\n'
    suite = SUITE[: SUITE.index("[matrix]")] + matrix + '[[point]]\n"load.think" = "1ms"\n[run]\nrepeat = 2\n'
    (tmp_path / "beside.toml").write_text(suite)
    done = lab("run", "beside.toml")
    assert (done.returncode, "error" in done.stderr) == (0, False), done.stderr
    assert (tmp_path / "runs/0001/report.html").exists()
    done = lab_here(tmp_path, "report", "runs/0001", "--export", "csv")
    assert done.returncode == 0, done.stderr
    for name, rows in (("points", 3), ("trials", 6)):
        found = [(row["load.connections"], row["load.think"]) for row in table(tmp_path / f"runs/0001/{name}.csv")]
        assert len(found) == rows
        assert set(found) == {("100", ""), ("200", ""), ("", "1ms")}


def test_no_colour_without_a_terminal(finished: tuple[Path, Done]) -> None:
    folder, _ = finished
    assert "\x1b" not in run_lab(folder, "report", "runs/0001").stdout
    assert "\x1b[" in lab_here(folder, "report", "runs/0001", "--color", "always").stdout


def test_a_control_is_measured_in_every_block_and_stands_beside_the_verdicts(lab: Lab, tmp_path: Path) -> None:
    text = SUITE.replace("repeat = 2", "repeat = 6") + "[verdict]\ncontrol = true\nfigures = ['completed_rate']\n"
    (tmp_path / "small.toml").write_text(text)
    done = lab("run", "small.toml", "--json", "--only", "load.connections=100", "--only", "server.model=epoll,uring")
    summary = summary_of(done.stdout)
    valid(summary, "summary")
    valid(json.loads((tmp_path / summary["run"] / "run.json").read_text()), "run")
    assert summary["trials"]["measured"] == 18
    assert len(summary["points"]) == 2
    (control,) = summary["controls"]
    assert (control["blocks"], control["at"]) == (6, {"load.connections": 100})
    (verdict,) = summary["verdicts"]
    assert verdict["noise_floor"] >= control["floor"]
    assert "The A/A control" in (tmp_path / summary["report"]).read_text()


NAMED = """
name = "named"
question = "Which?"
[load]
duration = "20ms"
connections = 100
[contender.mine]
model = "epoll"
[contender.yours]
model = "poll"
[run]
repeat = 6
seed = 1
[verdict]
figures = ["completed_rate"]
[expect]
"connections.established" = "== load.connections"
"""


def test_contenders_are_called_by_their_names_everywhere(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "named.toml").write_text(NAMED)
    done = lab("run", "named.toml", "--json")
    assert done.returncode == 0, done.stderr
    summary = summary_of(done.stdout)
    valid(summary, "summary")
    valid(json.loads((tmp_path / summary["run"] / "run.json").read_text()), "run")
    assert [point["point"] for point in summary["points"]] == [{"contender": "mine"}, {"contender": "yours"}]
    assert set(summary["verdicts"][0]["contenders"]) == {"mine", "yours"}
    assert "mine" in " ".join(summary["answer"])


def test_a_trial_that_is_not_what_was_expected_has_failed_with_both_values(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "named.toml").write_text(NAMED.replace("== load.connections", "== load.connections + 1"))
    done = lab("run", "named.toml", "--json", "--fast")
    point = summary_of(done.stdout)["points"][0]
    assert (done.returncode, point["outcome"]) == (1, "failed")
    assert point["reason"].endswith("it is 100, and the expression is 101")


def test_a_status_without_answers_is_a_count_of_0_to_an_expectation(lab: Lab, tmp_path: Path) -> None:
    web = NAMED.replace("[load]", '[server]\nprotocol = "http"\n[load]\nprotocol = "http"\npath = "/"')
    (tmp_path / "named.toml").write_text(web.replace("[expect]\n", '[expect]\n"statuses.404" = "== 0"\n'))
    told = summary_of(lab("run", "named.toml", "--json", "--fast").stdout)
    assert [(point["outcome"], point["reason"]) for point in told["points"]] == [("ok", None)] * 2
    assert told["points"][0]["figures"]["statuses.404"]["median"] == 0


def test_a_status_that_is_compared_is_counted_and_has_a_verdict(lab: Lab, tmp_path: Path) -> None:
    """Once all trials were made, the answer was an internal error."""
    web = NAMED.replace("[load]", '[server]\nprotocol = "http"\n[load]\nprotocol = "http"\npath = "/"')
    (tmp_path / "named.toml").write_text(web.replace("figures = [", 'figures = ["statuses.404", '))
    done = lab("run", "named.toml", "--json", "--fast")
    assert done.returncode == 0, done.stderr
    told = summary_of(done.stdout)
    assert [point["figures"]["statuses.404"]["median"] for point in told["points"]] == [0, 0]
    assert "statuses.404" in [verdict["figure"] for verdict in told["verdicts"]]


def test_an_expectation_of_a_doubtful_figure_is_not_judged_and_says_so(lab: Lab, tmp_path: Path) -> None:
    expected = "[expect]\n" + '"response_time_us.p99_99" = "< 1us"\n'
    (tmp_path / "named.toml").write_text(NAMED.replace("[expect]\n", expected))
    failed = summary_of(lab("run", "named.toml", "--json", "--fast").stdout)
    assert [point["outcome"] for point in failed["points"]] == ["failed", "failed"]
    told = summary_of(lab("run", "named.toml", "--json", "--fast", FAKE="doubtful_figure").stdout)
    assert [point["outcome"] for point in told["points"]] == ["ok", "ok"]
    (said,) = (each for each in told["warnings"] if each["code"] == "expectation_not_judged")
    assert (said["trials"], said["severity"]) == (4, "widens")
    assert "lacks response_time_us.p99_99, so it is unknown whether it is < 1us" in said["message"]


def test_what_the_binary_refuses_is_refused_before_the_first_trial(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "named.toml").write_text(
        NAMED.replace('duration = "20ms"', 'duration = "20ms"\nrate = 100\nthink = "1s"')
    )
    for verb in ("plan", "run"):
        done = lab(verb, "named.toml")
        assert done.returncode == 2
        assert "[load]: plimsoll refuses this: --rate cannot be used with --think" in done.stderr


def test_what_the_binary_refuses_of_a_further_part_is_refused_too(lab: Lab, tmp_path: Path) -> None:
    role = '[[role]]\nname = "beside"\nkind = "load"\nduration = "1s"\nrate = 100\nthink = "1s"\n'
    (tmp_path / "named.toml").write_text(f"{NAMED}\n{role}")
    done = lab("plan", "named.toml")
    assert done.returncode == 2, done.stdout
    assert "[role beside]: plimsoll refuses this: --rate cannot be used with --think" in done.stderr
