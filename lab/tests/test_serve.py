"""`lab serve` over plain HTTP: what it shows, whom it answers, how it follows a run to its end."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Done, lab_environment, run_lab

from plimsoll_lab.web.guard import allowed_hosts

HANGS_S = 300


@pytest.fixture(scope="module")
def folder(finished: tuple[Path, Done], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished run twice, the second with a question that is no plain text."""
    made = tmp_path_factory.mktemp("serve")
    shutil.copytree(finished[0] / "runs/0001", made / "runs/0001")
    shutil.copytree(finished[0] / "runs/0001", made / "runs/0002")
    record = made / "runs/0002/run.json"
    run = json.loads(record.read_text())
    run["suite"] |= {"name": "<i>odd</i>", "question": "<script>alert(1)</script>"}
    record.write_text(json.dumps(run))
    return made


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "plimsoll_lab", "serve", "--listen", "127.0.0.1:0", "--json"]
    with subprocess.Popen(command, cwd=folder, env=lab_environment(), stdout=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        yield json.loads(served.stdout.readline())["addresses"][0]
        served.send_signal(signal.SIGTERM)
        assert served.wait(timeout=HANGS_S) == 0


def get(address: str, path: str, method: str = "GET", **headers: str) -> tuple[http.client.HTTPResponse, str]:
    connection = http.client.HTTPConnection(address, timeout=HANGS_S)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, headers=named)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


def stream(text: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


def test_the_list_names_every_run_and_escapes_what_suites_wrote(address: str) -> None:
    answer, text = get(address, "/")
    assert answer.status == 200
    assert "2 of 2 runs" in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "<script>alert" not in text
    assert "default-src 'none'" in str(answer.getheader("Content-Security-Policy"))


def test_the_list_is_filtered_by_suite_status_and_words(address: str) -> None:
    assert "1 of 2 runs" in get(address, "/?suite=small")[1]
    assert "1 of 2 runs" in get(address, "/?q=which")[1]
    assert "0 of 2 runs" in get(address, "/?status=running")[1]


def test_a_run_that_has_ended_opens_its_report(address: str, folder: Path) -> None:
    answer, text = get(address, "/runs/1")
    assert answer.status == 200
    assert text == (folder / "runs/0001/report.html").read_text()


def test_the_scripts_of_a_report_have_no_origin_and_ask_for_nothing(address: str) -> None:
    """A report that was copied from somebody else could read every run, and send it away."""
    policy = str(get(address, "/runs/1")[0].getheader("Content-Security-Policy"))
    rules = {name: words for name, *words in (each.split() for each in policy.split(";"))}
    assert rules["sandbox"] == ["allow-scripts", "allow-downloads"]
    assert rules["default-src"] == rules["form-action"] == ["'none'"]
    assert "connect-src" not in rules, "it would take the place of default-src"


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_a_report_that_is_no_plain_file_is_not_shown(address: str, folder: Path, tmp_path: Path, kind: str) -> None:
    """By a link in a run, which may be a copy, any file of the machine was shown."""
    secret, report = tmp_path / "credentials", folder / "runs/0002/report.html"
    secret.write_text("the key")
    whole = report.with_name("kept")
    report.rename(whole)
    try:
        if kind == "link":
            report.symlink_to(secret)
        elif kind == "folder":
            report.mkdir()
        else:
            os.mkfifo(report)
        answer, text = get(address, "/runs/2")
        assert (answer.status, "the key" in text) == (404, False)
        assert "plimsoll lab report runs/0002" in text
    finally:
        (report.rmdir if kind == "folder" else report.unlink)()
        whole.rename(report)


def test_the_events_of_an_ended_run_end_with_how_it_ended(address: str) -> None:
    answer, text = get(address, "/runs/1/events")
    assert str(answer.getheader("Content-Type")).startswith("text/event-stream")
    events = stream(text)
    assert [each["number"] for each in events if each["event"] == "trial"] == list(range(1, 13))
    assert events[-1] == {"event": "closed", "status": "complete"}


def test_without_scripts_the_trials_of_a_run_have_their_settings_in_words(address: str) -> None:
    text = get(address, "/runs/1/live")[1]
    assert text.count("<td>model uring, 2,000 connections</td><td>ok</td>") == 2


def test_a_browser_that_was_cut_off_gets_only_what_it_has_not_seen(address: str) -> None:
    whole = get(address, "/runs/1/events")[1]
    ids = [line.removeprefix("id: ") for line in whole.splitlines() if line.startswith("id: ")]
    rest = get(address, "/runs/1/events", Last_Event_ID=ids[4])[1]
    assert stream(rest) == stream(whole)[5:]


@pytest.mark.parametrize("seen", ["1", "-1", "\u0663", "9" * 18, "9" * 30, "9" * 5000])
def test_a_browser_that_has_seen_what_never_was_gets_the_whole(address: str, seen: str) -> None:
    whole = get(address, "/runs/1/events")[1]
    assert get(address, "/runs/1/events", Last_Event_ID=seen.encode("utf-8").decode("latin-1"))[1] == whole


def test_half_a_line_of_a_killed_lab_hides_no_other_event(address: str, folder: Path) -> None:
    events = folder / "runs/0002/events.jsonl"
    lines = events.read_text().splitlines(keepends=True)
    events.write_text("".join([*lines[:2], lines[2][:20] + lines[3], *lines[4:]]))
    assert len(stream(get(address, "/runs/2/events")[1])) == len(lines) - 2 + 1
    assert get(address, "/runs/2/live")[0].status == 200


def test_comparison_and_history_are_pages(address: str) -> None:
    text = get(address, "/compare?a=1&b=2")[1]
    places = [
        text.index(each) for each in ("What differs in the environment", "Every figure", 'aria-label="The change')
    ]
    assert places == sorted(places), "the environment comes first"
    text = get(address, "/history?suite=small")[1]
    assert "Change points need 10 runs with a result; there are 1." in text
    assert text.count("<svg role=") >= 3


@pytest.mark.parametrize(
    "path",
    [
        *("/runs/9", "/compare?a=1", "/compare?a=../1&b=2", "/static/pages.py", "/history/x", "/runs/1/../../x"),
        *("/runs/x", "/runs/%D9%A1", f"/runs/{'9' * 5000}", f"/runs/{'9' * 5000}/live", f"/compare?a={'9' * 5000}&b=2"),
    ],
)
def test_what_is_not_there_is_not_shown(address: str, path: str) -> None:
    assert get(address, path)[0].status == 404


@pytest.mark.parametrize(
    ("status", "method", "headers"),
    [
        (421, "GET", {"Host": "attacker.example"}),
        (421, "GET", {"Host": "attacker.example:80"}),
        (403, "GET", {"Origin": "http://attacker.example"}),
        (403, "GET", {"Origin": "null"}),
        (403, "GET", {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"}),
        (405, "POST", {}),
        (405, "DELETE", {}),
    ],
)
def test_whoever_is_not_at_this_machine_is_refused(
    address: str, status: int, method: str, headers: dict[str, str]
) -> None:
    for path in ("/", "/runs/1", "/runs/1/events"):
        answer, text = get(address, path, method, **headers)
        assert answer.status == status
        assert "Which one" not in text


def test_at_the_usual_port_browsers_leave_it_out() -> None:
    assert {"127.0.0.1", "127.0.0.1:80", "lab.example"} <= allowed_hosts(["Lab.Example"], 80)
    assert "127.0.0.1" not in allowed_hosts([], 8090)


def test_a_link_from_elsewhere_opens_and_our_own_pages_may_ask(address: str) -> None:
    assert get(address, "/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")[0].status == 200
    assert get(address, "/", Origin=f"http://{address}")[0].status == 200


def test_an_address_beyond_loopback_needs_a_host_name(folder: Path) -> None:
    done = run_lab(folder, "serve", "--listen", "0.0.0.0:0")
    assert done.returncode == 2
    assert "--allow-host" in done.stderr


def test_a_run_that_is_killed_says_so(address: str, folder: Path) -> None:
    """A run without an end is followed and killed with SIGKILL: the stream ends with `killed`."""
    (folder / "long.toml").write_text(LONG)
    with subprocess.Popen(
        [sys.executable, "-m", "plimsoll_lab", "run", "long.toml", "--quiet"],
        cwd=folder,
        env=lab_environment(),
        stdout=subprocess.DEVNULL,
    ) as run:
        while not (folder / "runs/0003/trials/0001.json").is_file():
            assert run.poll() is None
        assert get(address, "/runs/3")[0].getheader("Location") == "/runs/3/live"
        connection = http.client.HTTPConnection(address, timeout=HANGS_S)
        connection.request("GET", "/runs/3/events")
        answer = connection.getresponse()
        first = answer.readline() + answer.readline()
        assert b'"event": "run"' in first
        run.kill()
    events = stream(answer.read().decode())
    connection.close()
    assert events[-1] == {"event": "closed", "status": "killed"}
    assert "badge killed" in get(address, "/?suite=long")[1]


LONG = """
name = "long"
question = "When does it end?"
[server]
[load]
duration = "20ms"
[run]
repeat = 100000
seed = 1
"""


@pytest.mark.parametrize("listen", ["foo", "127.0.0.1:99999", "127.0.0.1:-1"])
def test_an_address_that_is_none_is_refused_with_one_that_is(folder: Path, listen: str) -> None:
    done = run_lab(folder, "serve", "--listen", listen)
    said = f"error: --listen {listen}: write an address and a port from 0 to 65535, such as 127.0.0.1:8090\n"
    assert (done.returncode, done.stderr) == (2, said)
