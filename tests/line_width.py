"""Holds the width of lines: comments and documents at 100 columns, code at 120. `make lint` runs
it.

Ruff holds Python's (E501, W505). A table, a fenced block and a line without a blank are as long as
they have to be.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROSE, CODE = 100, 120
OUTPUT = re.compile(r"\\n(\\|\";)$")
"""The end of a line of another program's output, which a test quotes as it is."""
STORED = "docs/results/"
"""Output of programs, kept as it was."""


def sources(*endings: str) -> Iterator[Path]:
    """The files with one of these endings that git knows."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in listed.splitlines():
        if name.endswith(endings) and not name.startswith(STORED) and (ROOT / name).is_file():
            yield ROOT / name


def too_wide_rust(text: str) -> Iterator[tuple[int, int]]:
    """Number and limit of each line that is too wide."""
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.lstrip()
        limit = PROSE if stripped.startswith("//") else CODE
        if len(line) > limit and not stripped.startswith(("//! |", "/// |")) and not OUTPUT.search(line):
            yield number, limit


def too_wide_markdown(text: str) -> Iterator[tuple[int, int]]:
    """The same of a document."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced and len(line) > PROSE and not line.lstrip().startswith(("|", "#")) and _breaks(line):
            yield number, PROSE


def _breaks(line: str) -> bool:
    """Whether there is a blank to break a line at, after the mark of a list."""
    return " " in line.strip().removeprefix("- ")


def main() -> int:
    """Print each line that is too wide; 1 if there is one."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: wider than {limit} columns"
        for endings, check in (((".rs",), too_wide_rust), ((".md",), too_wide_markdown))
        for path in sources(*endings)
        for number, limit in check(path.read_text(encoding="utf-8"))
    ]
    print("\n".join(found[:40]))
    if found:
        print(f"{len(found)} lines are too wide: wrap comments and documents at {PROSE} columns, code at {CODE}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
