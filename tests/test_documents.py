"""The documents name commands that the program takes, and link to files that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from plimsoll_lab.cli.program import _parser

ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(r"^(?:\$ )?(?:sudo )?plimsoll lab (.+)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)")


def blocks(text: str) -> str:
    """What stands between fences, a command on several lines as one."""
    return "\n".join(re.findall(r"^```[^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)).replace("\\\n", " ")


def commands() -> list[tuple[str, str]]:
    return [
        (document.name, command)
        for document in DOCUMENTS
        for command in COMMAND.findall(blocks(document.read_text(encoding="utf-8")))
    ]


def words(command: str) -> list[str]:
    """The arguments, without a comment, a pipe or a redirection."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|>;&")
    lexer.whitespace_split = True
    found = []
    for word in lexer:
        if set(word) <= set("|>;&"):
            break
        found.append(word)
    return found


def test_there_are_commands_to_check() -> None:
    assert len(commands()) >= 20


@pytest.mark.parametrize(("document", "command"), commands())
def test_every_command_of_the_documents_is_accepted(
    document: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        _parser().parse_args(words(command))
    except SystemExit as end:
        if end.code != 0:
            pytest.fail(f"{document}: plimsoll lab {command}: {capsys.readouterr().err}")


def test_a_command_that_is_not_there_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        _parser().parse_args(words("serve --no-such-flag # a comment"))
    assert end.value.code == 2
    assert "--no-such-flag" in capsys.readouterr().err


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_to_a_file(document: Path) -> None:
    for target in LINK.findall(document.read_text(encoding="utf-8")):
        assert (document.parent / target).exists(), f"{document.name} leads to {target}"
