"""Finds the binary `plimsoll`, which the lab uses only as a process."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from plimsoll_lab import __version__
from plimsoll_lab.problem import ENVIRONMENT, LabError

VARIABLE = "PLIMSOLL_BIN"


def find_binary() -> str:
    """The path of the binary: what PLIMSOLL_BIN says, else beside this program, else on the
    PATH.
    """
    stated = os.environ.get(VARIABLE)
    if stated:
        found = shutil.which(stated)
        if found is None:
            raise LabError(
                f"{VARIABLE} is {stated}, which is no program that can be run; correct it or unset it",
                exit_code=ENVIRONMENT,
            )
        return str(Path(found).resolve())
    for folder in (Path(sys.argv[0]).resolve().parent, Path(sys.executable).parent):
        beside = folder / "plimsoll"
        if os.access(beside, os.X_OK) and beside.is_file():
            return str(beside)
    found = shutil.which("plimsoll")
    if found is None:
        raise LabError(
            "cannot find the program plimsoll: it is neither beside plimsoll-lab nor on the PATH; "
            f"install it with 'pip install .', or set {VARIABLE} to where it is",
            exit_code=ENVIRONMENT,
        )
    return found


def build_of(binary: str) -> dict[str, str]:
    """What measures: the versions of the binary and of the lab, and a digest of each, as two builds
    may have one version.
    """
    return {
        "plimsoll": binary_version(binary),
        "plimsoll_sha256": binary_digest(binary),
        "lab": __version__,
        "lab_sha256": lab_digest(),
    }


PACKAGE = Path(__file__).parents[1]
OF_THE_LAB = {".py", ".html", ".css", ".js", ".json"}


@functools.cache
def lab_digest(package: Path = PACKAGE) -> str:
    """The SHA-256 of all code and templates of the lab, as they were when it was first asked for;
    not of the suites, which an installed one has among them. Raises LabError where a file cannot be
    read.
    """
    whole = hashlib.sha256()
    for path in sorted(each for each in package.rglob("*") if each.suffix in OF_THE_LAB and not each.is_dir()):
        name = path.relative_to(package)
        if name.parts[0] == "suites" or any(part.startswith(".") for part in name.parts):
            continue
        try:
            whole.update(os.fsencode(name) + f"\0{_digest(str(path))}\n".encode())
        except OSError as error:
            raise LabError(f"cannot read {path}, of the lab itself: {error.strerror}", exit_code=ENVIRONMENT) from None
    return whole.hexdigest()


def binary_digest(binary: str) -> str:
    """The SHA-256 of the binary's file: two builds of one version differ in it."""
    try:
        return _digest(binary)
    except OSError as error:
        raise LabError(f"cannot read {binary}: {error.strerror}; is it the right program?") from None


def program_digests(argv: Sequence[str]) -> dict[str, str]:
    """The SHA-256 of any command's program, of every argument that names a program too, as behind
    env(1) or taskset(1), and of the first argument that is any other file: the script of an
    interpreter, or a configuration. By path, without what cannot be read.

    Nothing shows which of several programs is the server, and an argument such as `test` names one
    by accident. Its file changes only with the machine's software, which no run should span either.
    """
    programs = [shutil.which(word) for word in argv]
    others = (word for word, its in zip(argv[1:], programs[1:], strict=True) if its is None and _is_file(word))
    found = {}
    for path in (*programs, next(others, None)):
        if path is not None:
            with contextlib.suppress(OSError):
                found[path] = _digest(path)
    return found


def _is_file(word: str) -> bool:
    try:
        return Path(word).is_file()
    except OSError:  # too long for a path
        return False


def _digest(path: str) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def binary_version(binary: str) -> str:
    """What `plimsoll --version` says."""
    try:
        said = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise LabError(f"{binary} --version does not work ({error}); is it the right program?") from None
    return said.stdout.strip()
