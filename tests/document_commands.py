"""The commands that documents name, block by block, and which of them a test may run."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from laboratory import BINARY, ROOT
from plimsoll_lab.cli.program import parser
from plimsoll_lab.cli.suite_arguments import read_plan
from plimsoll_lab.suite import shipped

HANGS_S = 300
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

NOT_RUN = {
    r"^\S+: (?!plimsoll |mkdir )": "a command of another program, which may change this machine",
    r"^README.md: plimsoll lab (run|gate) my-server": "docs/tutorial.md and docs/ci.md run the same",
    r"plimsoll lab run three-servers --hosts|--hosts ray:|--scale runs/": "needs other machines",
    r"-c 1M": "a million connections take minutes and 8 GB; make million",
    r"plimsoll lab (plan|run) (epoll-scaling|http-saturation|port-fwd|tcpbenchmark|three-servers)": (
        "takes minutes, on several hosts; tests/test_fast_forms.py runs them"
    ),
    r"plimsoll lab run .*--rtt": "needs namespaces; tests/test_network_runs.py runs one",
    r"plimsoll lab capacity": "takes minutes; tests/test_capacity_of_a_server.py runs one",
    r"plimsoll lab import": "reads what other programs wrote; lab/tests/test_imports.py",
    r"plimsoll lab serve": "serves until it is stopped; tests/test_serve_page.py",
    r"plimsoll lab report .*--open": "opens a browser",
    r"plimsoll link": "needs /dev/net/tun; crates/plimsoll/tests/whole/link.rs",
    r"/etc/": "reads what this machine does not have",
    r"unix:/run/|--config forward.toml": "writes to /run; read with --check below",
}
"""What is only read and not run, and why, by what `DOCUMENT: COMMAND` has in it."""
SHORTER = (
    (re.compile(r"-d \d+s"), "-d 1s"),
    (
        re.compile(r"(plimsoll lab (?:run|gate) [^#\n]*)"),
        r"\1 --repeat 1 --only load.connections=8 --set load.duration=1s --set run.warm_up=50ms ",
    ),
)
"""A test needs no figures: windows are shorter, and points are measured once."""
LASTS = re.compile(r"plimsoll (?:serve|forward) (?!.*--check)")
"""What goes on until it is stopped."""
_CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^```[^\n]*\n.*?^```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<!`)`((?:sudo )?plimsoll [^`]+)`(?!`)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """A fenced block of commands and what they print."""

    document: Path
    """Where the document says so."""
    line: int
    """The line of its fence."""
    commands: tuple[str, ...]
    """Its commands, without comments; one on several lines is one."""

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.document.name}:{self.line}"

    def run(self) -> tuple[str, ...]:
        """The commands that a test runs; none if only servers in the background are left."""
        kept = tuple(each for each in self.commands if self.reason(each) is None)
        ends = [each for each in self.commands if not each.endswith("&")]
        return kept if any(each in kept for each in ends) or not ends else ()

    def reason(self, command: str) -> str | None:
        """Why one of its commands is not run; None where it is."""
        placed = f"{self.document.name}: {command}"
        return next((why for pattern, why in NOT_RUN.items() if re.search(pattern, placed)), None)


def blocks() -> list[Block]:
    """Every block of commands of the documents."""
    found = []
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for match in _CONSOLE.finditer(text):
            lines = match[1].replace("\\\n", " ").splitlines()
            commands = tuple(without_comment(line[2:]) for line in lines if line.startswith("$ "))
            found.append(Block(document=document, line=text[: match.start()].count("\n") + 1, commands=commands))
    return found


def inline() -> list[tuple[str, str]]:
    """Every command in the middle of a sentence, with its document."""
    found = []
    for document in DOCUMENTS:
        prose = _FENCED.sub("", document.read_text(encoding="utf-8"))
        found += [(document.name, " ".join(each.split())) for each in _INLINE.findall(prose)]
    return found


def without_comment(command: str) -> str:
    """A command without the comment behind it; `#` within quotes is none."""
    return re.sub(r"\s+# .*$", "", command).strip()


def words(command: str) -> list[str]:
    """The arguments of `plimsoll`, without a variable before it and without what the shell reads
    behind it.
    """
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|>;&")
    lexer.whitespace_split = True
    found: list[str] = []
    for word in lexer:
        if set(word) <= set("|>;&"):
            break
        found.append(word)
    return found[found.index("plimsoll") + 1 :] if "plimsoll" in found else []


def refusal(arguments: Sequence[str]) -> str | None:
    """What the program says against the arguments of `plimsoll`; None where it takes them."""
    if arguments[0] == "lab":
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                options = parser().parse_args(arguments[1:])
        except SystemExit as end:
            return said.getvalue() if end.code else None
        suite = getattr(options, "suite", "")
        if isinstance(suite, str) and suite in dict(shipped.suites()) and options.verb in {"plan", "run"}:
            read_plan(options)
        return None
    # Whatever stands before --help is read first, and refused where it is wrong.
    done = subprocess.run([BINARY, *arguments, "--help"], capture_output=True, text=True, check=False, timeout=HANGS_S)
    return done.stderr if done.returncode else None


def script(block: Block) -> str:
    """A block as a script: what lasts is waited for until it has said that it is ready, and stopped
    at the end. It ends with 5 where a command says that this machine cannot run it.
    """
    # The last block of the document has left its own.
    lines = ["ip link set lo up", "rm -f said.*", "pids="]
    for number, command in enumerate(block.run()):
        for pattern, shorter in SHORTER:
            command = pattern.sub(shorter, command)  # noqa: PLW2901 - the same command, shorter
        if LASTS.match(command):
            here = command.endswith("&")
            lines += [
                f"{command.removesuffix('&')} > said.{number} 2> errors.{number} &",
                "pid=$!",
                f"until [ -s said.{number} ]; do if ! kill -0 $pid; then",
                f"cat errors.{number}; wait $pid; [ $? -eq 5 ] && exit 5; exit 97; fi; sleep 0.05; done",
                'pids="$pids $pid"' if here else "kill $pid; wait $pid || exit 98",
            ]
        else:
            measured = "0|3|4" if re.search(r"plimsoll (load|lab (run|gate)) ", command) else "0"
            lines += [
                command,
                f"code=$?; case $code in {measured}) ;; 5) exit 5;; *) echo exit code $code; exit 99;; esac",
            ]
    lines += ["for pid in $pids; do kill $pid; wait $pid || exit 98; done"]
    return "\n".join(lines)
