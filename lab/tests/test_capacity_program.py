"""`plimsoll lab capacity` as a command: what it answers, and what it refuses."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
from conftest import FAKE, Lab

from plimsoll_lab.cli.capacity import VERB
from plimsoll_lab.cli.capacity_question import read_capacity_question

SCHEMAS = Path(__file__).parent.parent / "plimsoll_lab" / "store"
QUICK = (
    "--range",
    "1:64",
    "--width",
    "20%",
    "--duration",
    "20ms",
    "--think",
    "50ms",
    "--trials",
    "3",
    "--hold",
    "0s",
    "--json",
)


@pytest.fixture
def address() -> Iterator[str]:
    """A server that somebody else runs."""
    with subprocess.Popen([sys.executable, str(FAKE), "serve", "echo"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield json.loads(server.stdout.readline())["addresses"][0]
        server.terminate()


ANSWERS = {
    "never saturated": ("response_time.p99 < 1s", 0, 64, None, "carries at least 64 connections"),
    "the floor fails": ("response_time.p99 < 1us", 4, None, 1, "it was not seen whether it carries 1 connection,"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_the_answer_says_what_was_found_and_no_more(lab: Lab, address: str, tmp_path: Path, case: str) -> None:
    limit, code, lower, upper, words = ANSWERS[case]
    done = lab("capacity", "echo", address, "--limit", limit, *QUICK)
    assert done.returncode == code, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["event"], summary["lower"], summary["upper"]) == ("summary", lower, upper)
    assert words in summary["answer"][0]
    # The fake generator is as slow against the null server, so a missed limit is laid at its door.
    assert summary["limited_by"] == (None if upper is None else "generator")
    trials = sorted((tmp_path / summary["run"] / "trials").iterdir())
    assert len(trials) == summary["trials"] == sum(each["trials"] for each in summary["searches"][0]["loads"])
    record = json.loads((tmp_path / summary["run"] / "run.json").read_text())
    jsonschema.validate(record, json.loads((SCHEMAS / "run.schema.json").read_text()))
    for trial in trials:
        jsonschema.validate(json.loads(trial.read_text()), json.loads((SCHEMAS / "trial.schema.json").read_text()))
    nulls = list((tmp_path / summary["run"] / "null").iterdir())
    assert len(nulls) >= 3, "the generator's own ceiling is measured first"
    assert words in (tmp_path / summary["report"]).read_text()


REFUSED = {
    "no limit": (("echo", "127.0.0.1:1"), "no limit"),
    "not a limit": (("echo", "127.0.0.1:1", "--limit", "fast"), "write a figure, an operator and a value"),
    "no such figure": (("echo", "127.0.0.1:1", "--limit", "speed > 1"), "no such figure"),
    "no URL": (("http", "127.0.0.1:1", "--limit", "response_time.p99 < 1s"), "is no URL"),
    "no port": (("http", "http://127.0.0.1:99999/", "--limit", "response_time.p99 < 1s"), "is no URL"),
    "no address": (("http", "http://[::1/", "--limit", "response_time.p99 < 1s"), "is no URL"),
    "TLS at a free port": (
        ("http", "https://127.0.0.1:{port}/", "--limit", "p50 < 1s", "--command", "x {port}", "--ready", "tcp:{port}"),
        "is asked over plain HTTP",
    ),
    "half a quote": (("echo", "127.0.0.1:1", "--limit", "p50 < 1s", "--command", "a 'b"), "no closing quotation"),
    "no command": (("echo", "127.0.0.1:1", "--limit", "p50 < 1s", "--command", " "), "--command: the command is empty"),
    "not ready": (("echo", "127.0.0.1:1", "--limit", "response_time.p99 < 1s", "--command", "x"), "say when it can be"),
    "a figure by its last word": (
        ("echo", "127.0.0.1:1", "--limit", "p99 < 1s"),
        "did you mean establishment_time.p99 or response_time.p99 or service_time.p99 or transmission_time.p99?",
    ),
    "ready without a command": (("echo", "127.0.0.1:1", "--limit", "p50 < 1s", "--ready", "tcp:1"), "of a command"),
    "no range": (("echo", "127.0.0.1:1", "--limit", "response_time.p99 < 1s", "--range", "5:2"), "below the high end"),
}


def test_a_query_is_a_part_of_what_is_asked_for() -> None:
    parser = argparse.ArgumentParser()
    VERB.arguments(parser)
    url = "http://127.0.0.1:{port}/find?q=1&n=20#top"
    words = ["http", url, "--command", "x {port}", "--limit", "response_time.p99 < 1s"]
    for ready in ([], ["--ready", "tcp:{port}"]):
        asked = tomllib.loads(read_capacity_question(parser.parse_args([*words, *ready])).text)
        assert asked["load"]["path"] == "/find?q=1&n=20"
        assert asked["server"] == {"command": ["x", "{port}"], **({"ready": ready[1]} if ready else {})}


@pytest.mark.parametrize("case", REFUSED)
def test_a_question_that_cannot_be_asked_is_refused_in_a_line(lab: Lab, case: str) -> None:
    arguments, words = REFUSED[case]
    done = lab("capacity", *arguments)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert words in done.stderr


def test_a_server_that_never_starts_ends_the_search_with_its_own_words(lab: Lab) -> None:
    dying = f"{sys.executable} -c 'import sys; sys.exit(\"cannot read the configuration\")' {{port}}"
    done = lab(
        "capacity", "echo", "127.0.0.1:{port}", "--command", dying, "--ready", "tcp:{port}",
        "--limit", "response_time.p99 < 1s", *QUICK,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["lower"], summary["limited_by"], summary["trials"]) == (None, None, 2)
    (answer,) = summary["answer"]
    assert "was not measured" in answer
    assert "cannot read the configuration" in answer
