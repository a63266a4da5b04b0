"""A contender from a git revision: checked out beside the work tree, built there, and removed
afterwards.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from plimsoll_lab.hosts import scratch
from plimsoll_lab.hosts.printed import plain
from plimsoll_lab.problem import LabError
from plimsoll_lab.suite.settings import texts
from plimsoll_lab.suite.spec import Plan

PREFIX = "git:"
_PATH = re.compile(rf"/\S*?/{scratch.PREFIX}[^/\s]+")


def commit_of(checkout: Path) -> str:
    """The commit of a checkout: the branch that named it may move."""
    return _git(["rev-parse", "HEAD"], checkout, f"git cannot name the commit of {checkout}").strip()


@contextlib.contextmanager
def checked_out(revision: str, build: str | None, directory: Path) -> Iterator[Path]:
    """The folder that corresponds to `directory` in a checkout of a revision of its repository,
    built.
    """
    root = Path(_git(["rev-parse", "--show-toplevel"], directory, f"{directory} is in no git repository").strip())
    with scratch.ScratchFolder() as parent:
        tree = Path(parent.path) / "tree"
        _git(["worktree", "add", "--detach", str(tree), revision], root, f"git cannot check out '{revision}'")
        try:
            if build is not None:
                _build(shlex.split(build), tree, revision)
            yield tree / directory.resolve().relative_to(root.resolve())
        finally:
            _git(["worktree", "remove", "--force", str(tree)], root, "git cannot remove the checkout")


def refuse_lost_checkouts(plan: Plan) -> None:
    """Refuse a plan whose commands lie in a checkout that ended with its lab: each trial would call
    that contender a failure.
    """
    started = [point.server for point in plan.points if "command" in point.server]
    words = (word for server in started for word in texts(server, "command"))
    for path in (match[0] for word in words if (match := _PATH.search(word))):
        if not Path(path).is_dir():
            raise LabError(f"the checkout {path} of a revision ended with the lab that made it; begin a new gate")


def _git(arguments: Sequence[str], directory: Path, refusal: str) -> str:
    try:
        done = _run(["git", *arguments], directory)
    except OSError as error:
        raise LabError(
            f"git cannot be run ({error.strerror}): install it, or give commands instead of revisions"
        ) from None
    if done.returncode != 0:
        raise LabError(f"{refusal}: {_last_line(done.stderr)}")
    return done.stdout


def _build(command: Sequence[str], tree: Path, revision: str) -> None:
    try:
        done = _run(command, tree)
    except OSError as error:
        raise LabError(f"--build {command[0]}: cannot be run: {error.strerror}") from None
    if done.returncode != 0:
        said = _last_line(done.stderr or done.stdout)
        raise LabError(f"--build of {revision} ended with exit code {done.returncode}, saying: {said}")


def _run(command: Sequence[str], directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, without an input or a terminal to ask at; a compiler may print
    bytes that are no text. What the command has started ends with it, where the lab is interrupted.
    """
    with subprocess.Popen(
        command,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            told, said = process.communicate()
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, told, said)


def _last_line(text: str) -> str:
    lines = plain(text).splitlines()
    return lines[-1] if lines else "nothing"
