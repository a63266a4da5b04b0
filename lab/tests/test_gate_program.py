"""The gate as a command: each finding ends in its exit code, and in summaries that other programs
read.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from conftest import FAKE, Done, Lab, lab_environment, lab_here, run_lab, summary_of

from plimsoll_lab.analysis.summary import summarise_run
from plimsoll_lab.report.gate import junit
from plimsoll_lab.stats.gate import blocks_for
from plimsoll_lab.store.folder import RunFolder

SUITE = """
name = "api"
question = "Is the new build slower?"
[load]
duration = "20ms"
connections = 100
[run]
seed = 1
"""
SERVE = f"{FAKE} serve echo --json --port {{port}}"


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """A gate between two that are alike, and what it said."""
    folder = tmp_path_factory.mktemp("gate")
    (folder / "api.toml").write_text(SUITE)
    noise = ("--noise", "1%", "--set", "verdict.figures=['completed_rate']")
    command = f"{SERVE} --model epoll"
    done = run_lab(
        folder,
        "gate",
        "api.toml",
        "--base",
        command,
        "--new",
        command,
        "--json",
        "--summary",
        "md",
        "--summary",
        "junit",
        *noise,
    )
    return folder, done


def altered(folder: Path, name: str, change: Any) -> dict[str, Any]:  # noqa: ANN401 - a function on a record
    """The gate's summary after something in its records was changed, with the exit code."""
    target = folder / "runs" / name
    shutil.copytree(folder / "runs/0001", target)
    points = json.loads((target / "run.json").read_text())["points"]
    names = {point["number"]: point["setting"]["contender"] for point in points}
    for path in (target / "trials").glob("*.json"):
        record = json.loads(path.read_text())
        change(record, names[record["point"]])
        path.write_text(json.dumps(record))
    done = lab_here(folder, "report", f"runs/{name}", "--json")
    assert done.stdout, done.stderr
    return {**summary_of(done.stdout)["gate"], "exit": done.returncode}


def test_two_that_are_alike_pass_with_a_number_of_blocks_from_the_stated_noise(passed: tuple[Path, Done]) -> None:
    folder, done = passed
    assert done.returncode == 0, done.stderr
    summary = summary_of(done.stdout)
    gate = summary["gate"]
    assert (gate["outcome"], gate["baseline"], gate["tolerance"]) == ("pass", "base", 0.05)
    assert summary["trials"]["planned"] == 2 * 6
    assert summary["answer"][0] == "The gate passes."
    written = (folder / "runs/0001/summary.md").read_text()
    assert written.startswith("## api: pass\n")
    assert "| new | completed rate |" in written
    suite = ET.parse(folder / "runs/0001/junit.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors"), suite.get("skipped")) == (
        "2",
        "0",
        "0",
        "0",
    )


def test_the_xml_is_whole_whatever_a_suite_wrote(passed: tuple[Path, Done]) -> None:
    folder = RunFolder(path=passed[0] / "runs/0001")
    summary = summarise_run(folder)
    assert summary.gate is not None
    odd = summary.gate.model_copy(update={"outcome": "failed", "text": "a\x01b \ud800 <&> \u00e9"})
    case = ET.fromstring(junit(summary, odd, folder.read_run()).encode()).findall("testcase")[-1]
    assert [(each.tag, each.get("message")) for each in case] == [("error", "a\ufffdb \ufffd <&> \u00e9")]


def test_a_slower_build_exits_with_3(passed: tuple[Path, Done]) -> None:
    def slower(record: dict[str, Any], name: str) -> None:
        record["figures"]["completed_rate"] *= 0.85 if name == "new" else 1

    gate = altered(passed[0], "slower", slower)
    assert (gate["exit"], gate["outcome"]) == (3, "worse")
    assert gate["losses"][0]["at_least"] > 0.05
    assert "new's completed rate is at least" in gate["text"]


def test_a_faster_build_passes(passed: tuple[Path, Done]) -> None:
    def faster(record: dict[str, Any], name: str) -> None:
        record["figures"]["completed_rate"] *= 1.2 if name == "new" else 1

    assert altered(passed[0], "faster", faster)["exit"] == 0


def test_a_loss_near_the_tolerance_is_undecided_and_said_to_be_a_loss(passed: tuple[Path, Done]) -> None:
    def near(record: dict[str, Any], name: str) -> None:
        # Noise of its own: at the tolerance, chance decides now and then.
        wobble = 1 + (-1) ** record["block"] / 200
        record["figures"]["completed_rate"] = 950.0 * wobble if name == "new" else 1000.0

    gate = altered(passed[0], "near", near)
    assert (gate["exit"], gate["outcome"]) == (4, "undecided")
    assert "by how much cannot be told" in gate["text"]


def test_one_transient_limit_is_undecided_and_no_loss(passed: tuple[Path, Done]) -> None:
    def once(record: dict[str, Any], name: str) -> None:
        if name == "new" and record["block"] == 2:
            record.update(outcome="hard_limit", reason="it ran out of descriptors")

    gate = altered(passed[0], "transient", once)
    assert (gate["exit"], gate["outcome"]) == (4, "undecided")
    assert "new: 1 of 6 trials ended so: it ran out of descriptors" in gate["reasons"]


def test_a_limit_that_the_baseline_does_not_reach_is_a_loss(passed: tuple[Path, Done]) -> None:
    def limited(record: dict[str, Any], name: str) -> None:
        if name == "new":
            record.update(outcome="hard_limit", reason="it ran out of descriptors")

    gate = altered(passed[0], "limited", limited)
    assert (gate["exit"], gate["outcome"]) == (3, "worse")


@pytest.mark.parametrize("name", ["base", "new"])
def test_a_contender_that_fails_exits_with_1(passed: tuple[Path, Done], name: str) -> None:
    def failed(record: dict[str, Any], contender: str) -> None:
        if contender == name:
            record.update(outcome="failed", reason="it fell over")

    gate = altered(passed[0], f"failed-{name}", failed)
    assert (gate["exit"], gate["outcome"]) == (1, "failed")
    assert "it fell over" in gate["text"]


def test_missing_points_are_undecided(passed: tuple[Path, Done]) -> None:
    def spoilt(record: dict[str, Any], name: str) -> None:
        if name == "new":
            record.update(outcome="generator_limited", reason="its busiest thread was at its limit")

    assert altered(passed[0], "spoilt", spoilt)["exit"] == 4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("--base", "a 'b"), "--base a 'b: no closing quotation"),
        (("--new", ""), "--new: the command is empty"),
        (("--build", "make 'it"), "--build make 'it: no closing quotation"),
        (("--noise", "0%"), "--noise: it has to be above 0"),
        (("--noise", "some"), "--noise: 'some' is not a number"),
        (("--noise", "1%", "--repeat", "9"), "--noise 1%: --repeat states the number of blocks too; leave one of them"),
        (("--noise", "1%", "--set", "run.repeat=9"), "--noise 1%: --repeat states the number of blocks too"),
        (("--noise", "1%", "--fast"), "--noise 1%: --fast states the number of blocks too"),
        (("--tolerance", "5"), "[verdict] tolerance: '5' would be 500%: write a percentage, such as 5%"),
    ],
)
def test_a_gate_that_cannot_be_asked_for_is_refused_in_a_line(
    lab: Lab, tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    (tmp_path / "api.toml").write_text(SUITE)
    done = lab("gate", "api.toml", "--base", SERVE, "--new", SERVE, *change)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert said in done.stderr


def test_a_gate_has_the_tolerance_of_its_suite_where_no_flag_gives_another(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "api.toml").write_text(SUITE + '[verdict]\ntolerance = "1%"\n')
    asked = ("gate", "api.toml", "--base", SERVE, "--new", SERVE, "--noise", "40%")
    assert "blocks for a tolerance of 1.0 %; use" in lab(*asked).stderr
    assert "blocks for a tolerance of 2.0 %; use" in lab(*asked, "--tolerance", "2%").stderr


@pytest.mark.parametrize(
    ("suite", "said"),
    [
        (
            SUITE + '[matrix]\n"load.think" = ["0", "1ms"]\n[verdict]\ncompare = "load.think"\n',
            "the suite compares the values of load.think (0, 1ms), and 'base' is a contender; compare contenders with",
        ),
        (SUITE + '[matrix]\n"server.model" = ["epoll", "poll"]\n', "a flag of our own servers, and this server is a"),
    ],
)
def test_a_gate_over_a_suite_of_another_comparison_says_what_that_compares(
    lab: Lab, tmp_path: Path, suite: str, said: str
) -> None:
    (tmp_path / "api.toml").write_text(suite)
    asked = ("gate", "api.toml", "--base", f"{SERVE} --model epoll", "--new", f"{SERVE} --model epoll", "--fast")
    done = lab(*asked)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert said in done.stderr
    if "verdict.compare=contender" in done.stderr:
        assert lab(*asked, "--set", "verdict.compare=contender", "--json").returncode in {0, 3, 4}


def test_a_server_that_never_starts_exits_with_1_and_its_own_words(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "api.toml").write_text(SUITE)
    dying = f"{sys.executable} -c 'import sys; sys.exit(\"no such option: {{port}}\")'"
    done = lab("gate", "api.toml", "--base", f"{SERVE} --model epoll", "--new", dying, "--json", "--repeat", "1")
    assert done.returncode == 1
    assert "no such option" in summary_of(done.stdout)["gate"]["text"]


def test_a_gate_says_each_cause_once_and_ends_after_a_block_that_failed(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "api.toml").write_text(SUITE)
    missing = "./no-such-server {port}"
    done = lab("gate", "api.toml", "--base", missing, "--new", missing, "--json", "--repeat", "6")
    told = summary_of(done.stdout)
    assert (done.returncode, told["gate"]["outcome"]) == (1, "failed")
    assert " ".join(told["answer"]).count("cannot start the server") == 1, told["answer"]
    assert told["answer"][0] == "The gate failed."
    assert told["answer"][1].startswith("base and new failed at ")
    assert told["trials"]["measured"] < told["trials"]["planned"]


def test_a_gate_says_that_it_makes_another_number_of_blocks_than_the_suite_asks_for(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "api.toml").write_text(SUITE + "repeat = 4\n")
    (tmp_path / "unsaid.toml").write_text(SUITE)
    missing = ("--base", "./no-such-server {port}", "--new", "./no-such-server {port}", "--json")
    done = lab("gate", "api.toml", *missing)
    said = r"the gate makes (\d+) blocks, for a noise of 3\.0 %, and not the 4 of the suite; --repeat 4 makes these\n"
    found = re.fullmatch(said, done.stderr)
    assert found is not None, done.stderr
    assert summary_of(done.stdout)["trials"]["planned"] == 2 * int(found[1])
    for silent in (("api.toml", "--quiet"), ("api.toml", "--repeat", found[1]), ("unsaid.toml",)):
        assert lab("gate", *silent, *missing).stderr == ""


def test_a_gate_is_between_the_two_that_it_names(lab: Lab, tmp_path: Path) -> None:
    """A contender of the suite took part in it, and the gate found its loss."""
    third = '[contender.third]\ncommand = ["./no-such-server", "{port}"]\n'
    (tmp_path / "api.toml").write_text(SUITE + third)
    missing = "./no-such-server {port}"
    done = lab("gate", "api.toml", "--base", missing, "--new", missing, "--json")
    blocks = blocks_for(noise=0.03, tolerance=0.05, comparisons=2)
    summary = summary_of(done.stdout)
    assert summary["trials"]["planned"] == 2 * (blocks or 0)
    assert {point["point"]["contender"] for point in summary["points"]} == {"base", "new"}
    refused = lab("gate", "api.toml", "--base", missing, "--new", missing, "--only", " contender=third")
    assert (refused.returncode, "a gate is between --base and --new alone" in refused.stderr) == (2, True)
    # What a document says is checked of the whole suite all the same.
    (tmp_path / "chart.toml").write_text(SUITE + '[[chart]]\nfigure = "completed_rate"\nover = "load.size"\n')
    undrawn = lab("gate", "chart.toml", "--base", missing, "--new", missing)
    assert (undrawn.returncode, "[[chart]] 1" in undrawn.stderr) == (2, True), undrawn.stderr
    again = json.loads((tmp_path / summary["run"] / "run.json").read_text())["command"]
    assert shlex.split(again).count("contender=base,new") == 1


def test_a_revision_is_checked_out_built_and_removed(lab: Lab, tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
            cwd=tmp_path,
            check=True,
            capture_output=True,
        )

    git("init", "--quiet")
    server = (
        f'command = ["{FAKE}", "serve", "echo", "--port", "{{port}}", "--model", "epoll", "--built", "{{dir}}/built"]\n'
    )
    (tmp_path / "api.toml").write_text(SUITE + "[server]\n" + server + 'ready = "tcp:{port}"\n')
    (tmp_path / "version").write_text("one")
    git("add", ".")
    git("commit", "--quiet", "-m", "one")
    done = lab(
        "gate", "api.toml", "--base", "git:HEAD", "--new", f"{SERVE} --model epoll", "--build",
        "env DEPLOY_TOKEN=s3cr3t-9 cp version built", "--repeat", "1", "--json",
    )  # fmt: skip
    gate = summary_of(done.stdout)["gate"]
    assert (done.returncode, gate["outcome"]) == (4, "undecided"), done.stderr
    record = json.loads((tmp_path / "runs/0001/run.json").read_text())
    built = record["points"][0]["server"]["command"][-1]
    assert built.endswith("/built")
    assert not Path(built).exists()
    files = [each for each in (tmp_path / "runs/0001").rglob("*") if each.is_file()]
    assert [each for each in files if b"s3cr3t-9" in each.read_bytes()] == [], "it was in run.json and on the page"
    command = shlex.split(record["command"])
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout.strip()
    assert command[:4] == ["plimsoll", "lab", "gate", "api.toml"]
    assert command[command.index("--base") + 1] == f"git:{head}", "a checkout is gone, and HEAD may move"
    assert str(Path(built).parent) not in record["command"]
    once_more = lab(*command[2:], "--json")
    assert once_more.returncode == 4, once_more.stderr
    assert json.loads((tmp_path / "runs/0002/run.json").read_text())["command"] == record["command"]
    (tmp_path / "runs/0001/trials/0001.json").unlink()
    resumed = lab("resume", "runs/0001", "--json")
    assert (resumed.returncode, resumed.stderr.count("\n")) == (1, 1), resumed.stderr
    assert "ended with the lab that made it; begin a new gate" in resumed.stderr
    unknown = lab("gate", "api.toml", "--base", "git:no-such-revision", "--new", "x")
    assert (unknown.returncode, "git cannot check out 'no-such-revision'" in unknown.stderr) == (2, True)
    broken = lab("gate", "api.toml", "--base", "git:HEAD", "--new", "x", "--build", "cp nothing built")
    assert (broken.returncode, broken.stderr.count("\n")) == (1, 1)
    assert "--build of HEAD ended with exit code 1" in broken.stderr


def test_one_revision_in_two_directories_passes(lab: Lab, tmp_path: Path) -> None:
    server = '["{dir}/built", "serve", "echo", "--port", "{port}", "--model", "epoll"]'
    (tmp_path / "api.toml").write_text(f'{SUITE}[server]\ncommand = {server}\nready = "tcp:{{port}}"\n')
    shutil.copy(FAKE, tmp_path / "source")
    make_repository(tmp_path)
    twice = ("--base", "git:HEAD", "--new", "git:HEAD", "--build", "cp source built")
    done = lab("gate", "api.toml", *twice, "--json", "--repeat", "6", "--set", "verdict.figures=['completed_rate']")
    told = summary_of(done.stdout)
    assert (done.returncode, told["gate"]["outcome"]) == (0, "pass"), (told["gate"], done.stderr)
    record = json.loads((tmp_path / "runs/0001/run.json").read_text())
    assert len({point["server"]["command"][0] for point in record["points"]}) == 2, "each in a directory of its own"


def make_repository(folder: Path) -> None:
    """A repository with one commit of what the folder holds."""
    for command in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "-m", "one")):
        told = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *command]
        subprocess.run(told, cwd=folder, check=True, capture_output=True)


def is_running(pid: int) -> bool:
    """Whether a process is there, and no zombie that waits for its parent."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(") ")[2][0] != "Z"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
def test_a_build_ends_with_all_that_it_has_started_where_the_gate_ends(tmp_path: Path, how: signal.Signals) -> None:
    """Of a lab that was killed the build went on, in a folder that the next one removed."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    (tmp_path / "api.toml").write_text(SUITE + '[server]\ncommand = ["x", "{port}"]\nready = "tcp:{port}"\n')
    make_repository(tmp_path)
    told = tmp_path / "compiler"
    building = (
        "import pathlib, subprocess; compiler = subprocess.Popen(['sleep', '600']); "
        f"pathlib.Path('{told}.half').write_text(str(compiler.pid)); "
        f"pathlib.Path('{told}.half').rename('{told}'); compiler.wait()"
    )
    build = shlex.join([sys.executable, "-c", building])
    gate = [sys.executable, "-m", "plimsoll_lab", "gate", "api.toml", "--base", "git:HEAD", "--new", "x"]
    with subprocess.Popen(
        [*gate, "--build", build],
        cwd=tmp_path,
        env=lab_environment(TMPDIR=str(temporary)),
        stderr=subprocess.PIPE,
    ) as lab:
        try:
            while not told.exists():
                assert lab.poll() is None
                time.sleep(0.01)
            compiler = int(told.read_text())
            lab.send_signal(how)
            lab.communicate(timeout=300)
            deadline = time.monotonic() + 60
            while (is_running(compiler) or list(temporary.iterdir())) and time.monotonic() < deadline:
                time.sleep(0.01)
            assert not is_running(compiler)
            assert not list(temporary.iterdir())
        finally:
            lab.kill()
            if told.exists():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(told.read_text()), signal.SIGKILL)
    if how == signal.SIGKILL:
        run_lab(tmp_path, *gate[3:], "--build", "false")
    assert not list(tmp_path.glob(".git/worktrees/*"))


def test_a_build_may_say_why_it_failed_in_bytes_that_are_no_text(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "api.toml").write_text(SUITE + '[server]\ncommand = ["x", "{port}"]\nready = "tcp:{port}"\n')
    make_repository(tmp_path)
    failing = "import sys; sys.stderr.buffer.write(bytes([110, 239]) + b've.c: no'); sys.exit(1)"
    build = shlex.join([sys.executable, "-c", failing])
    done = lab("gate", "api.toml", "--base", "git:HEAD", "--new", "x", "--build", build)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "ve.c: no" in done.stderr


def test_a_build_has_nobody_to_ask(tmp_path: Path) -> None:
    """It had the lab's own input, and could wait there for an answer."""
    for arguments in (("init", "--quiet"), ("commit", "--quiet", "--allow-empty", "-m", "one")):
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    code = (
        "import sys; from pathlib import Path; from plimsoll_lab.experiment.revision import checked_out\n"
        "with checked_out('HEAD', sys.argv[1], Path.cwd()) as built: print((built.folder / 'answer').read_text())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "sh -c 'cat > answer; tty >> answer || true'"],
        cwd=tmp_path,
        env=lab_environment(),
        input="yes\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split("\n")[0] == "not a tty"
