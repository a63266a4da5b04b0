"""A contender from a git revision: checked out beside the work tree, built there, and removed
afterwards.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from plimsoll_lab.hosts import scratch
from plimsoll_lab.hosts.printed import plain
from plimsoll_lab.hosts.processes import Launcher, wait_for
from plimsoll_lab.problem import USAGE, LabError
from plimsoll_lab.suite.settings import texts
from plimsoll_lab.suite.spec import Plan

PREFIX = "git:"
TREE = "tree"
"""The name of a checkout in its scratch folder."""
LONGEST_SLEEP_S = 60.0
"""A build is waited for in pieces: it may print nothing for an hour."""
_PATH = re.compile(rf"/\S*?/{scratch.PREFIX}[^/\s]+")
_LISTED = re.compile(rf"^worktree (/.*/{scratch.PREFIX}[^/]+)/{TREE}$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkout:
    """A revision that is checked out and built."""

    folder: Path
    """What corresponds to the directory that it was asked for."""
    commit: str
    """Its commit: the branch that named it may move."""


@contextlib.contextmanager
def checked_out(revision: str, build: str | None, directory: Path) -> Iterator[Checkout]:
    """A revision of the repository of `directory`, checked out and built. The checkout is removed,
    and all that its build has started ends, with the context or the lab. Raises `LabError` where
    git or the build fails.
    """
    with Launcher() as launcher, scratch.ScratchFolder() as parent:
        launcher.remove_after(parent.path)
        refusal = f"{directory} is in no git repository"
        root = Path(_git(launcher, ["rev-parse", "--show-toplevel"], directory, refusal, exit_code=USAGE).strip())
        _remove_lost(launcher, root)
        tree = Path(parent.path) / TREE
        refusal = f"git cannot check out '{revision}'"
        _git(launcher, ["worktree", "add", "--detach", str(tree), revision], root, refusal, exit_code=USAGE)
        try:
            if build is not None:
                _build(launcher, shlex.split(build), tree, revision)
            refusal = f"git cannot name the commit of '{revision}'"
            commit = _git(launcher, ["rev-parse", "HEAD"], tree, refusal).strip()
            yield Checkout(folder=tree / directory.resolve().relative_to(root.resolve()), commit=commit)
        finally:
            _git(launcher, ["worktree", "remove", "--force", str(tree)], root, "git cannot remove the checkout")


def refuse_lost_checkouts(plan: Plan) -> None:
    """Refuse a plan whose commands lie in a checkout that ended with its lab: each trial would call
    that contender a failure.
    """
    started = [point.server for point in plan.points if "command" in point.server]
    words = (word for server in started for word in texts(server, "command"))
    for path in (match[0] for word in words if (match := _PATH.search(word))):
        if not Path(path).is_dir():
            raise LabError(f"the checkout {path} of a revision ended with the lab that made it; begin a new gate")


def _remove_lost(launcher: Launcher, root: Path) -> None:
    """Remove from the repository what labs that were killed have left there: git still lists their
    checkouts. Git's own `worktree prune` would remove others too, of a disk that is not mounted.
    """
    listed = _git(launcher, ["worktree", "list", "--porcelain"], root, "git cannot list the checkouts")
    for parent in _LISTED.findall(listed):
        if not Path(parent).is_dir():
            # Forced twice: git locks a checkout while it makes it (git-worktree(1)).
            forget = ["worktree", "remove", "--force", "--force", f"{parent}/{TREE}"]
            _git(launcher, forget, root, "git cannot remove the checkout")


def _git(launcher: Launcher, arguments: Sequence[str], directory: Path, refusal: str, *, exit_code: int = 1) -> str:
    done = _run(launcher, "program", ["git", *arguments], directory)
    if done.code != 0:
        raise LabError(f"{refusal}: {_last_line(done.stderr)}", exit_code=exit_code)
    return done.stdout


def _build(launcher: Launcher, command: Sequence[str], tree: Path, revision: str) -> None:
    done = _run(launcher, "build", command, tree)
    if done.code != 0:
        said = _last_line(done.stderr or plain(done.stdout))
        raise LabError(f"--build of {revision} ended with exit code {done.code}, saying: {said}")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ended:
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str
    """The end of it, as plain text."""


def _run(launcher: Launcher, role: str, command: Sequence[str], directory: Path) -> _Ended:
    """Run a command to its end, without an input or a terminal to ask at. What it has started ends
    with it.
    """
    lines: list[str] = []
    with launcher.start(command, role=role, metered=False, directory=str(directory)) as process:
        while (code := process.exit_code()) is None:
            wait_for([process], LONGEST_SLEEP_S)
            lines += process.take_lines()
        lines += process.take_lines()
        return _Ended(code=code, stdout="\n".join(lines), stderr=process.stderr_tail())


def _last_line(text: str) -> str:
    lines = text.splitlines()
    return lines[-1] if lines else "nothing"
