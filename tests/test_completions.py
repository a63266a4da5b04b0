"""The completions of each shell, asked of the shell itself: what it offers behind a line that
somebody has begun.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from laboratory import BINARY, HANGS_S
from plimsoll_lab.cli.program import VERBS
from plimsoll_lab.suite.flags import MODELS

OFFERED: Mapping[str, set[str]] = {
    "plimsoll ": {"serve", "load", "forward", "merge", "link", "capture", "lab", "completions", "man"},
    "plimsoll lab ": {verb.name for verb in VERBS},
    "plimsoll lab gate --tol": {"--tolerance"},
    "plimsoll lab report --ex": {"--export"},
    "plimsoll serve echo --model ": set(MODELS),
    "plimsoll serve http --accept ha": {"handoff"},
    "plimsoll load http --connect-": {"--connect-rate", "--connect-to"},
}
"""Of each line some of what is to be offered behind it."""

BASH = r"""
source plimsoll
ask=$(complete -p plimsoll)
ask=${ask##*-F }
while IFS= read -r line; do
    COMP_LINE=$line COMP_POINT=${#line} COMP_WORDS=($line) COMPREPLY=()
    [[ $line == *' ' ]] && COMP_WORDS+=('')
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    "${ask%% *}" plimsoll "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
    printf '> %s\n' "$line"
    printf '%s\n' "${COMPREPLY[@]}"
done < lines > offered
"""
FISH = r"""
source plimsoll
while read --delimiter \n line
    echo "> $line"
    complete --do-complete "$line"
end < lines > offered
"""
# The line editor completes only on a terminal, and begins with the widget zle-line-init. Whatever
# is offered goes through compadd (zshcompwid(1)); with -A, -D or -O it only tells what would match.
ZSH = r"""
autoload -Uz compinit && compinit -u -D
source plimsoll
compadd() {
    if [[ " $* " != *' -'[ADO]' '* ]]; then
        local -a matching
        builtin compadd -O matching "$@"
        (( $#matching )) && print -rl -- $matching >> offered
    fi
    builtin compadd "$@"
}
offer() { _main_complete; compstate[insert]= compstate[list]= }
zle -C offer complete-word offer
ask() {
    local line
    for line in "${(@f)$(<lines)}"; do
        print -r -- "> $line" >> offered
        BUFFER=$line CURSOR=$#line
        zle offer
    done
    BUFFER=exit
    zle accept-line
}
zle -N zle-line-init ask
"""


def in_bash(folder: Path) -> list[str]:
    (folder / "ask").write_text(BASH)
    return ["bash", "--norc", "ask"]


def in_fish(folder: Path) -> list[str]:
    (folder / "ask").write_text(FISH)
    return ["fish", "--no-config", "ask"]


def in_zsh(folder: Path) -> list[str]:
    (folder / ".zshenv").write_text("setopt no_global_rcs\n")
    (folder / ".zshrc").write_text(ZSH)
    return ["script", "--quiet", "--return", "--command", "zsh -i", "/dev/null"]


@pytest.mark.parametrize("shell", [in_bash, in_fish, in_zsh], ids=lambda shell: shell.__name__)
def test_a_shell_offers_what_the_programs_take(shell: Callable[[Path], list[str]], tmp_path: Path) -> None:
    name = shell.__name__.removeprefix("in_")
    missing = [each for each in (name, "script") if shutil.which(each) is None]
    if name in missing or (name == "zsh" and missing):
        pytest.skip(f"{' and '.join(missing)} not installed (make peers)")
    script = subprocess.run([BINARY, "completions", name], capture_output=True, text=True, check=True, timeout=HANGS_S)
    (tmp_path / "plimsoll").write_text(script.stdout)
    (tmp_path / "lines").write_text("".join(f"{line}\n" for line in OFFERED))
    home = {"HOME": str(tmp_path), "ZDOTDIR": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "TERM": "xterm"}
    with subprocess.Popen(
        shell(tmp_path),
        cwd=tmp_path,
        env=os.environ | home,
        # Left open: at its end a terminal would be closed before the shell has asked.
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as asked:
        try:
            code = asked.wait(HANGS_S)
        finally:
            asked.kill()
        said = asked.stdout.read() if asked.stdout is not None else ""
    assert code == 0, said
    found: dict[str, set[str]] = {}
    for row in (tmp_path / "offered").read_text().splitlines():
        if row.startswith("> "):
            line = row.removeprefix("> ")
            found[line] = set()
        else:
            found[line].add(row.partition("\t")[0].removesuffix("="))
    assert set(found) == set(OFFERED), said
    for line, words in OFFERED.items():
        assert words <= found[line], line
        begun = line.rpartition(" ")[2]
        assert [word for word in found[line] if not word.startswith(begun)] == [], line
