"""The program as a person uses it, against the fake binary."""

from __future__ import annotations

import base64
import csv
import hashlib
import html
import json
import re
import signal
import socket
import subprocess
import sys
import time
import zlib
from pathlib import Path

import jsonschema
import pytest
from conftest import SUITE, Done, Lab, lab_environment, run_lab, summary_of

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
    # Windows have the length that the machine gave them: on a busy one, some are long enough.
    severity, trials = severities["window_too_short"]
    assert severity == "widens"
    assert 1 <= trials <= 10


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
    text = run_lab(folder, "report", "runs/0001").stdout
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


MISFORTUNES = {
    "server_dies": ("failed", 1, "the server ended before it was ready: exit code 3, saying: something broke"),
    "no_summary": ("failed", 1, "the generator ended without a summary: exit code 1, saying: error: it fell over"),
    "generator_limited": ("generator_limited", 4, "its busiest thread used 1.00 cores"),
    "never_ready": ("failed", 1, "the server was not ready within 0.2 s; it said: nothing"),
    "hang": ("failed", 1, "the generator did not end within 2 s; it was killed"),
}


@pytest.mark.parametrize("fake", MISFORTUNES)
def test_a_misfortune_is_an_outcome_with_a_reason(lab: Lab, suite_file: Path, fake: str) -> None:
    outcome, code, reason = MISFORTUNES[fake]
    arguments = ("--only", "load.connections=100", "--only", "server.model=epoll", "--repeat", "1")
    timeouts = {
        "never_ready": ("--set", "run.ready_timeout=200ms"),
        "hang": ("--set", "run.trial_timeout=2s"),
    }
    done = lab("run", str(suite_file), "--json", *arguments, *timeouts.get(fake, ()), FAKE=fake)
    assert done.returncode == code, done.stderr
    [point] = summary_of(done.stdout)["points"]
    if fake == "generator_limited" and point["outcome"] == "invalid":
        # Others kept this machine busy meanwhile, and the judgement says so.
        assert point["reason"].endswith(f"cores during the window, and {reason}")
    else:
        assert (point["outcome"], point["reason"]) == (outcome, reason)


def test_a_server_that_starts_at_no_point_ends_the_run_after_a_block(lab: Lab, suite_file: Path) -> None:
    arguments = ("--only", "load.connections=100", "--only", "server.model=epoll,uring", "--repeat", "6")
    done = lab("run", str(suite_file), "--json", *arguments, FAKE="server_dies")
    told = summary_of(done.stdout)
    assert (done.returncode, told["trials"]["measured"], told["trials"]["planned"]) == (1, 2, 12)
    assert told["answer"] == [
        "There is no valid result.",
        f"epoll and uring fail at 100 connections: {MISFORTUNES['server_dies'][2]}.",
    ]
    (ended,) = (each["message"] for each in told["warnings"] if each["code"] == "incomplete")
    assert ended == "every point failed, so the run ended after 2 of 12 trials"
    resumed = lab("resume", "runs/0001", "--json")
    assert summary_of(resumed.stdout)["trials"]["measured"] == 12, "once the server starts, resume measures the rest"


def test_a_run_of_one_point_ends_after_three_failures(lab: Lab, suite_file: Path) -> None:
    arguments = ("--only", "load.connections=100", "--only", "server.model=epoll", "--repeat", "6")
    told = summary_of(lab("run", str(suite_file), "--json", *arguments, FAKE="server_dies").stdout)
    assert (told["trials"]["measured"], told["trials"]["planned"]) == (3, 6), "two in a row may pass"


def test_an_interrupted_run_keeps_what_it_has_and_resumes(suite_file: Path, tmp_path: Path, lab: Lab) -> None:
    run = subprocess.Popen(
        [sys.executable, "-m", "plimsoll_lab", "run", str(suite_file), "--json"],
        cwd=tmp_path, env=lab_environment(FAKE="hangs_when_marked", MARK=str(tmp_path / "mark")),
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert run.stdout is not None
    for _ in range(3):
        assert json.loads(run.stdout.readline())["event"] == "trial"
    # A busy machine repeats trials, so which load is under way now depends on the machine.
    (tmp_path / "mark").touch()
    run.send_signal(signal.SIGINT)
    *told, final = run.communicate(timeout=300)[0].splitlines()
    summary = json.loads(final)
    assert run.returncode == 130
    assert summary["status"] == "interrupted"
    measured = summary["trials"]["measured"]
    assert measured == 3 + len(told)
    assert measured < 12
    assert (tmp_path / "runs/0001/report.html").exists()
    assert "interrupted" in lab("list").stdout
    resumed = lab("resume", "runs/0001", "--json")
    assert resumed.returncode == 0, resumed.stderr
    assert len(resumed.stdout.splitlines()) == 12 - measured + 1
    assert summary_of(resumed.stdout)["status"] == "complete"


def test_nothing_outlives_a_killed_lab(suite_file: Path, tmp_path: Path) -> None:
    run = subprocess.Popen(
        [sys.executable, "-m", "plimsoll_lab", "run", str(suite_file), "--json"],
        cwd=tmp_path, env=lab_environment(FAKE="hang", MARK=str(tmp_path)), stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 120
        while len(marked(tmp_path)) < 4:  # lab, guard, server, generator
            assert time.monotonic() < deadline, marked(tmp_path)
            time.sleep(0.02)
    finally:
        run.kill()
        run.wait()
    deadline = time.monotonic() + 120
    while marked(tmp_path):
        assert time.monotonic() < deadline, marked(tmp_path)
        time.sleep(0.02)
    left = [path for path in Path("/sys/fs/cgroup").glob(f"*/**/plimsoll-{run.pid}-*") if path.is_dir()]
    assert left == []


def marked(mark: Path) -> list[str]:
    """Processes whose environment carries the mark of this test."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                if f"MARK={mark}".encode() in (process / "environ").read_bytes().split(b"\0"):
                    found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
    return found


def test_labs_at_once_do_not_share_a_run(suite_file: Path, tmp_path: Path) -> None:
    """What a trial comes to is not the question here: three labs at once make each other slow."""
    labs = [
        subprocess.Popen(
            [sys.executable, "-m", "plimsoll_lab", "run", str(suite_file), "--json", "--repeat", "1"],
            cwd=tmp_path,
            env=lab_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    told = [each.communicate(timeout=600) for each in labs]
    summaries = [summary_of(stdout) if stdout else pytest.fail(stderr) for stdout, stderr in told]
    assert sorted(each["run"] for each in summaries) == ["runs/0001", "runs/0002", "runs/0003"]
    for stdout, _ in told:
        lines = [json.loads(line) for line in stdout.splitlines()]
        trials = [line for line in lines if line["event"] == "trial"]
        stored = sorted((tmp_path / lines[-1]["run"] / "trials").glob("*.json"))
        assert len(stored) == len(trials) >= 6, stdout


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
    assert len(summary_of(done.stdout)["limits_missed"]) == 3


def test_plan_runs_nothing_and_warns_of_a_verdict_out_of_reach(lab: Lab, suite_file: Path, tmp_path: Path) -> None:
    plan = summary_of(lab("plan", str(suite_file), "--json").stdout)
    assert (len(plan["points"]), len(plan["trials"]), plan["family"]["comparisons"]) == (6, 12, 8)
    assert [warning["code"] for warning in plan["warnings"]] == ["too_few_repetitions"]
    assert plan["family"]["repetitions_needed"] == 6
    assert summary_of(lab("plan", str(suite_file), "--json", "--repeat", "9").stdout)["warnings"] == []
    assert not (tmp_path / "runs").exists()


def test_exports_agree_with_the_summary(finished: tuple[Path, Done]) -> None:
    folder, _ = finished
    done = run_lab(folder, "report", "runs/0001", "--export", "csv,svg", "--json")
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


BAD_INPUT = {
    "no suite": (("run", "dmo"), 2, "dmo: no such suite; did you mean 'demo'?"),
    "no file": (("run", "x/y.toml"), 2, "there is no such file"),
    "no run": (("report", "runs/9"), 2, "is no run"),
    "no verb": (("rn", "demo"), 2, "invalid choice"),
    "no flag": (("run", "demo", "--repeats", "3"), 2, "unrecognized arguments"),
    "bad set": (("plan", "demo", "--set", "load"), 2, "write --set PATH=VALUE"),
    "unknown setting": (("plan", "demo", "--set", "load.conections=3"), 2, "did you mean 'connections'"),
    "bad model": (
        ("plan", "demo", "--set", "server.model=epol"),
        2,
        "'epol' is not one of them; did you mean 'epoll'?",
    ),
    "bad export": (("report", "runs/0001", "--export", "pdf"), 2, "no such kind"),
    "bad repeat": (("plan", "demo", "--repeat", "0"), 2, "is not a whole number of at least 1"),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_one_line_and_exit_2(finished: tuple[Path, Done], name: str) -> None:
    arguments, code, said = BAD_INPUT[name]
    done = run_lab(finished[0], *arguments)
    assert done.returncode == code
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_a_missing_binary_is_said(lab: Lab, suite_file: Path) -> None:
    done = lab("run", str(suite_file), PLIMSOLL_BIN="/nowhere/plimsoll")
    assert done.returncode == 1
    assert "PLIMSOLL_BIN is /nowhere/plimsoll" in done.stderr


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
    done = lab("report", "runs/0001", "--export", "csv")
    assert done.returncode == 0, done.stderr
    for name, rows in (("points", 3), ("trials", 6)):
        found = [(row["load.connections"], row["load.think"]) for row in table(tmp_path / f"runs/0001/{name}.csv")]
        assert len(found) == rows
        assert set(found) == {("100", ""), ("200", ""), ("", "1ms")}


def test_no_colour_without_a_terminal(finished: tuple[Path, Done]) -> None:
    folder, _ = finished
    assert "\x1b" not in run_lab(folder, "report", "runs/0001").stdout
    assert "\x1b[" in run_lab(folder, "report", "runs/0001", "--color", "always").stdout


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


def test_an_expectation_of_what_the_generator_doubts_is_not_judged_and_says_so(lab: Lab, tmp_path: Path) -> None:
    expected = "[expect]\n" + '"response_time_us.p99_99" = "< 1us"\n'
    (tmp_path / "named.toml").write_text(NAMED.replace("[expect]\n", expected))
    failed = summary_of(lab("run", "named.toml", "--json", "--fast").stdout)
    assert [point["outcome"] for point in failed["points"]] == ["failed", "failed"]
    told = summary_of(lab("run", "named.toml", "--json", "--fast", FAKE="doubts").stdout)
    assert [point["outcome"] for point in told["points"]] == ["ok", "ok"]
    (said,) = (each for each in told["warnings"] if each["code"] == "expectation_not_judged")
    assert (said["trials"], said["severity"]) == (4, "widens")
    assert "does not tell response_time_us.p99_99, so nobody knows whether it is < 1us" in said["message"]


def test_what_the_binary_refuses_is_refused_before_the_first_trial(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "named.toml").write_text(
        NAMED.replace('duration = "20ms"', 'duration = "20ms"\nrate = 100\nthink = "1s"')
    )
    for verb in ("plan", "run"):
        done = lab(verb, "named.toml")
        assert done.returncode == 2
        assert "[load]: plimsoll refuses this: --rate cannot be used with --think" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("attached", [True, False])
def test_a_server_that_does_not_listen_is_told_with_the_address_that_was_tried(
    lab: Lab, tmp_path: Path, *, attached: bool
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # without listen(2): connections are refused
        port = taken.getsockname()[1]
        quiet = f'command = ["sleep", "60"]\nready = "tcp:{port}"'
        server = f'address = "127.0.0.1:{port}"' if attached else quiet
        (tmp_path / "it.toml").write_text(
            f'name = "it"\nquestion = "?"\n[server]\n{server}\n[load]\nduration = "20ms"\n'
            '[run]\nrepeat = 1\nready_timeout = "200ms"\n'
        )
        (point,) = summary_of(lab("run", "it.toml", "--json").stdout)["points"]
    late = f"the server was not ready within 0.2 s: nothing accepts connections at 127.0.0.1:{port}; "
    mend = "start the server there, or correct its address" if attached else "it said: nothing"
    assert (point["outcome"], point["reason"]) == ("failed", late + mend)
