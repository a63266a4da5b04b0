"""No file of a run holds a secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import SUITE, Lab

from plimsoll_lab.experiment.plan import RunRequest, reproducing_command
from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.read import read_text
from plimsoll_lab.suite.secrets import redact, secrets_in, secrets_of
from plimsoll_lab.suite.spec import Plan

HTTP = """
name = "one"
question = "How fast?"
[server]
command = {command}
ready = "tcp:{{port}}"
[load]
protocol = "http"
duration = "20ms"
header = {header}
{target}
"""


def plan(*, command: str = '["server"]', header: str = "[]", target: str = "") -> Plan:
    return expand(
        read_text(HTTP.format(command=command, header=header, target=target), source="one.toml", directory="."), seed=1
    )


@pytest.mark.parametrize(
    ("header", "secret"),
    [
        ("Authorization: Bearer abc.def-123", "abc.def-123"),
        ("authorization:Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ("Cookie: session=12345; theme=dark", "session=12345; theme=dark"),
        ("X-Api-Key: 0123456789", "0123456789"),
        ("X-Auth: 0123456789", "0123456789"),
        ("X-Amz-Security-Token: 0123456789", "0123456789"),
    ],
)
def test_the_value_of_a_header_that_opens_doors_is_a_secret(header: str, secret: str) -> None:
    assert secrets_of(plan(header=json.dumps([header]))) == (secret,)


@pytest.mark.parametrize(
    "header", ["Accept: text/html", "Accept-Encoding: gzip", "X-Author: somebody", "Host: example"]
)
def test_the_value_of_any_other_header_is_none(header: str) -> None:
    assert secrets_of(plan(header=json.dumps([header]))) == ()


@pytest.mark.parametrize(
    ("command", "secret"),
    [
        (["server", "--password", "hunter22"], "hunter22"),
        (["server", "--db-password=hunter22", "--verbose"], "hunter22"),
        (["env", "API_TOKEN=hunter22", "server"], "hunter22"),
        (["server", "postgres://user:hunter22@127.0.0.1/db"], "hunter22"),
        (["server", "--callback", "http://127.0.0.1/?access_token=hunter22&x=1"], "hunter22"),
        (["curl", "-HAuthorization: Bearer hunter22", "http://127.0.0.1/"], "hunter22"),
        (["curl", "--header=X-Api-Key: hunter22", "http://127.0.0.1/"], "hunter22"),
        (["env", "DB_PASSWORD=correct", "server"], "correct"),
        (["env", "DB_PASS=hunter22", "server"], "hunter22"),
        (["env", "MYSQL_PWD=hunter22", "server"], "hunter22"),
        (["env", "BASIC_AUTH=user:hunter22", "server"], "user:hunter22"),
        (["env", "AWS_ACCESS_KEY=hunter22", "server"], "hunter22"),
        (["env", "JWT=hunter22", "server"], "hunter22"),
        (["server", "--pass", "hunter22"], "hunter22"),
        (["server", "http://127.0.0.1/?X-Amz-Signature=hunter22"], "hunter22"),
        (["sh", "-c", "API_TOKEN='hunter22' ./s"], "hunter22"),
        (["sh", "-c", 'API_TOKEN="correct horse"; ./s'], "correct horse"),
        (["bash", "-lc", "server --token hunter22 --verbose"], "hunter22"),
        (["sh", "-c", "server --token='correct horse'"], "correct horse"),
        (["sh", "-c", "curl -H 'Authorization: Bearer hunter22' http://127.0.0.1/"], "hunter22"),
        (["sh", "-c", 'curl --header "Cookie: id=correct; theme=horse"'], "id=correct; theme=horse"),
    ],
)
def test_a_command_tells_its_secrets_by_the_names_of_its_words(command: list[str], secret: str) -> None:
    assert secrets_of(plan(command=json.dumps(command))) == (secret,)


@pytest.mark.parametrize(
    "command",
    [
        ["env", "DB_PASSWORD=correct horse", "server"],
        ["env", "DB_PASSWORD=correct&horse", "server"],
        ["env", "DB_PASSWORD=of correct horse", "server"],
        ["ssh", "other", "DB_PASSWORD=correct server", "--password", "horse"],
        ["sh", "-c", "DB_PASSWORD=correct; echo; server --password horse"],
        ["sh", "-c", r"DB_PASSWORD=correct\ horse server"],
        ["sh", "-c", r'DB_PASSWORD="correct\"horse" server'],
        ["sh", "-c", r'curl -H "X-Api-Key: correct\"horse"'],
        ["sh", "-c", "DB_PASSWORD=correct'horse' server"],
    ],
)
def test_no_part_of_a_secret_is_left_however_it_is_quoted(command: list[str]) -> None:
    hidden = str(redact(command, secrets_of(plan(command=json.dumps(command)))))
    assert "correct" not in hidden
    assert "horse" not in hidden


@pytest.mark.parametrize("name", ["Cf-Access-Jwt-Assertion", "X-JWT-Assertion", "X-Hub-Signature", "Jwt"])
def test_a_header_with_a_signed_token_is_a_secret(name: str) -> None:
    command = ["curl", "-H", f"{name}: eyJhbGciOi.J9"]
    assert secrets_of(plan(command=json.dumps(command))) == ("eyJhbGciOi.J9",)


@pytest.mark.parametrize(
    "command",
    [
        ["env", "PWD=/srv/server", "server", "--bypass", "nobody", "--passes", "four", "--compass=north"],
        ["sh", "-c", "server --author somebody --keyword=something PASSIVE=true"],
        ["server", "--max-tokens", "5", "--jwt-ttl", "60", "--by-pass", "on", "signature_algorithm=rsa", "PASS=1"],
    ],
)
def test_words_that_a_name_of_a_secret_is_a_part_of_name_none(command: list[str]) -> None:
    assert secrets_of(plan(command=json.dumps(command))) == ()


def test_what_a_shell_fills_in_is_no_secret_that_is_too_short() -> None:
    command = ["sh", "-c", "API_TOKEN=$1 server --token \"$T\" --password ''", "sh", "x"]
    assert secrets_of(plan(command=json.dumps(command))) == ()


def test_a_value_with_spaces_may_begin_with_a_short_word() -> None:
    assert secrets_of(plan(command='["env", "PASSPHRASE=to be or not", "server"]')) == ("to be or not",)


def test_a_question_about_an_option_holds_no_secret() -> None:
    tables = {"question": "What does --token rotation cost, and the 'Cookie: none' header?"}
    assert secrets_in([tables], "one.toml") == ()


@pytest.mark.parametrize("secret", ["it's 1234", 'say "1234"', "back\\slash", 'it\'s "1234"'])
def test_a_secret_is_found_in_quotes_too(secret: str) -> None:
    header = f"X-Api-Key: {secret}"
    text = json.dumps([header])
    found = plan(header=text)
    request = RunRequest(suite="one.toml", changes={"load.header": (header,), "load.target": header})
    command = reproducing_command(request, found.seed)
    assert "1234" in f"{text}{command}" or "slash" in f"{text}{command}"
    hidden = str(redact([text, command], secrets_of(found)))
    assert "1234" not in hidden
    assert "slash" not in hidden


def test_further_texts_and_commands_are_searched_too() -> None:
    build = ["make", "API_TOKEN=abcdef", "--password", "hunter22"]
    assert set(secrets_of(plan(), build, "http://it:letmein@host/")) == {"abcdef", "hunter22", "letmein"}


@pytest.mark.parametrize("part", ["a", "a.", "pass", "x-auth"])
def test_a_long_text_is_searched_in_a_time_that_grows_as_it_does(part: str) -> None:
    """In one that grows with its square it would take hours."""
    assert secrets_in([part * 2**20, f"{part * 2**20} http://it:letmein@host/"], "one.toml") == ("letmein",)


def test_the_longest_secret_is_taken_out_first() -> None:
    assert redact({"a": ["token-1234", "token"]}, ("token-1234", "token")) == {"a": ["[redacted]", "[redacted]"]}


def test_a_secret_too_short_to_be_found_is_refused() -> None:
    with pytest.raises(SuiteError, match="fewer than 4 characters"):
        secrets_of(plan(header='["Authorization: abc"]'))


SECRET = "s3cr3t-s3cr3t"
WITH_SECRET = (
    SUITE
    + f"""
[[role]]
name = "helper"
kind = "command"
command = ["sh", "-c", "echo $0 >&2; sleep 600", "token={SECRET}"]
"""
)


def files_with(folder: Path, text: str) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() and text in path.read_text(errors="replace")]


def test_no_file_of_a_run_holds_a_secret_and_resume_takes_it_from_the_suite(tmp_path: Path, lab: Lab) -> None:
    suite = tmp_path / "small.toml"
    # Its window is told beside it: as it stands, it is no suite.
    text = WITH_SECRET.replace('duration = "20ms"\n', "")
    suite.write_text(text)
    asked = ("--only", "server.model=epoll", "--repeat", "1", "--set", "load.duration=20ms")
    done = lab("run", "small.toml", "--json", *asked)
    assert done.returncode in {0, 4}, done.stderr
    assert SECRET not in done.stdout + done.stderr
    runs = tmp_path / "runs"
    assert files_with(runs, SECRET) == []
    assert len(files_with(runs, "[redacted]")) >= 3
    (runs / "0001/trials/0002.json").unlink()
    again = lab("resume", "runs/0001", "--json")
    assert again.returncode in {0, 4}, again.stderr
    assert (runs / "0001/trials/0002.json").is_file()
    assert files_with(runs, SECRET) == []
    (runs / "0001/trials/0002.json").unlink()
    suite.write_text(text.replace("sleep 600", "sleep 300"))
    refused = lab("resume", "runs/0001")
    assert refused.returncode == 1
    assert "has changed since" in refused.stderr
