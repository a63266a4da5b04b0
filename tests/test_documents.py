"""The documents name commands that the programs take, and that do what is said."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from document_commands import DOCUMENTS, HANGS_S, NOT_RUN, Block, blocks, inline, refusal, script, words
from laboratory import BINARY, ROOT, environment, run_lab
from plimsoll_lab.suite.read import TABLES, read_text

CANNOT_RUN = 5
"""The programs' exit code where a machine lacks what a command needs, such as io_uring."""
BLOCKS = blocks()
RUN = [block for block in BLOCKS if block.run()]
COMMANDS = [(block.name, command) for block in BLOCKS for command in block.commands if words(command)]
TOML = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)
ISOLATED = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--net"]
"""Documents name ports: each block has a loopback interface of its own."""
SUITE = """
name = "one"
question = "How does it answer?"
[server]
[load]
duration = "100ms"
connections = 2
"""


def can_isolate() -> bool:
    """Whether this machine lets a test make a network namespace."""
    if not all(map(shutil.which, ("unshare", "ip"))):
        return False
    return subprocess.run([*ISOLATED, "true"], capture_output=True, check=False).returncode == 0


def test_make_bench_runs_programs_that_need_no_argument() -> None:
    made = subprocess.run(["make", "-n", "bench"], cwd=ROOT, capture_output=True, text=True, check=True)
    found = re.search(r"for script in (.*?);", made.stdout)
    assert found is not None
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in found[1].split()}
    assert [name for name, text in texts.items() if "__main__" not in text or re.search(r"sys\.argv\[\d\]", text)] == []


def test_there_are_commands_to_check() -> None:
    assert len(COMMANDS) >= 40
    assert len(RUN) >= 10


def test_no_command_stands_in_another_kind_of_block() -> None:
    """A block of commands is fenced as `console`, with `$` before each: only those are checked."""
    for document in DOCUMENTS:
        fenced = re.findall(r"^```([^\n]*)\n(.*?)^```", document.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        for kind, text in fenced:
            assert kind == "console" or not re.search(r"^(\$ )?plimsoll ", text, re.MULTILINE), (document.name, text)


@pytest.mark.parametrize(("place", "command"), COMMANDS)
def test_every_command_is_accepted(place: str, command: str) -> None:
    said = refusal(words(command))
    assert said is None, f"{place}: {command}: {said}"


@pytest.mark.parametrize(("place", "command"), sorted(set(inline())))
def test_every_command_in_a_sentence_is_accepted(place: str, command: str) -> None:
    # A sentence has words in place of values: N is a number, COMMAND any command.
    arguments = ["1" if word == "N" else word for word in words(command)]
    if arguments[:1] == ["COMMAND"]:
        arguments = ["load", *arguments[1:]]
    said = refusal(arguments)
    # A sentence may name a verb alone; whatever has flags is whole.
    alone = " --" not in command and said is not None and "required" in said
    assert said is None or alone, f"{place}: {command}: {said}"


@pytest.mark.parametrize("wrong", ["lab serve --no-such-flag", "serve echo --model nope", "load echo HOST:7 -c 1X"])
def test_a_command_that_is_not_there_is_noticed(wrong: str) -> None:
    assert refusal(wrong.split())


def test_every_reason_against_running_a_command_is_needed() -> None:
    told = {block.reason(command) for block in BLOCKS for command in block.commands}
    assert set(NOT_RUN.values()) <= told


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the documents take for granted: a suite, servers, files and a run."""
    folder = tmp_path_factory.mktemp("documents")
    tools = folder / "bin"
    tools.mkdir()
    (tools / "plimsoll").symlink_to(BINARY)
    (tools / "plimsoll-lab").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m plimsoll_lab "$@"\n')
    for server in ("my-server", "old", "new", "server-old", "server-new"):
        (folder / server).write_text("#!/bin/sh\nexec plimsoll serve http --root public --listen 127.0.0.1:$1\n")
    for program in (*tools.iterdir(), *folder.glob("*ser*"), folder / "old", folder / "new"):
        if not program.is_symlink():
            program.chmod(0o755)
    (folder / "public").mkdir()
    (folder / "public" / "index.html").write_text("hello\n")
    (folder / "port_fwd_table.config").write_text("7000=127.0.0.1|7001\n")
    (folder / "one.toml").write_text(SUITE)
    run_lab(folder, "run", "one.toml", "--repeat", "1", "--quiet")
    assert (folder / "runs" / "0001" / "run.json").exists()
    run_lab(folder, "init", "my-server.toml", "--command", "./my-server {port}")
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy of it for one document."""
    shutil.copytree(made, tmp_path / "it", symlinks=True)
    return tmp_path / "it"


def run_block(block: Block, folder: Path) -> tuple[int, str]:
    """Run a block in a folder; nothing that it started goes on."""
    with subprocess.Popen(
        [*ISOLATED, "bash", "-c", script(block)],
        cwd=folder,
        env=environment(HOME=str(folder), PATH=f"{folder / 'bin'}:{os.environ['PATH']}"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            return shell.wait(HANGS_S), shell.communicate()[0]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)


@pytest.mark.skipif(not can_isolate(), reason="needs unshare(1), ip(8) and leave to make a network namespace")
@pytest.mark.parametrize("document", sorted({block.document for block in RUN}), ids=lambda path: path.name)
def test_the_commands_of_a_document_do_what_they_say(document: Path, folder: Path) -> None:
    mine = [block for block in RUN if block.document == document]
    if any("plimsoll lab init" in command for block in mine for command in block.commands):
        (folder / "my-server.toml").unlink()
    for block in mine:
        code, said = run_block(block, folder)
        assert code in {0, CANNOT_RUN}, f"{block.name}:\n{script(block)}\n{said}"


def toml_blocks() -> list[tuple[str, str]]:
    return [(each.name, text) for each in DOCUMENTS for text in TOML.findall(each.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(("document", "text"), toml_blocks())
def test_every_piece_of_toml_is_read(document: str, text: str, tmp_path: Path) -> None:
    tables = tomllib.loads(text)
    if "forward" in tables:
        (tmp_path / "forward.toml").write_text(text)
        command = [BINARY, "forward", "--config", "forward.toml", "--check"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=HANGS_S)
        assert done.returncode == 0, done.stderr
    elif tables.keys() <= set(TABLES):
        beside = {"name": 'name = "it"\n', "question": 'question = "Well?"\n'}
        whole = "".join(line for key, line in beside.items() if key not in tables) + text
        whole += "".join(f"\n[{key}]\n" for key in ("server", "load") if key not in tables)
        read_text(whole, source=document, directory=str(ROOT))
    else:
        assert set(tables) <= {"seed", "devices", "switches", "links"}, f"{document}: neither a suite's nor a link's"
