"""The chapter of the five reports names what proves each row, and every name stands for something;
the suites say what the documents do of points that there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from plimsoll_lab.suite.claims import settings_of
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.read import read_file

ROOT = Path(__file__).resolve().parent.parent
CHAPTER = ROOT / "docs" / "five-reports.md"
FOLDERS = {
    ".rs": (ROOT / "crates/plimsoll/tests/whole",),
    ".py": (ROOT / "lab/tests", ROOT / "tests", ROOT / "bench"),
}
QUOTED = re.compile(r"`([^`]+)`")
FILE = re.compile(r"(?:[\w-]+/)*\w+(\.rs|\.py)")


def proofs() -> list[str]:
    """The last cell of each row of a table."""
    rows = [line for line in CHAPTER.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    cells = [re.split(r"(?<!\\)\|", row)[1:-1] for row in rows]
    return [each[-1].strip() for each in cells if each[-1].strip() != "proved by"]


def named(cell: str) -> Iterator[tuple[str, list[str]]]:
    """The files of a cell, each with the names that follow it."""
    for part in cell.split(";"):
        names = [name.partition(" ")[0] for name in QUOTED.findall(part)]
        files = [name for name in names if FILE.fullmatch(name)]
        yield from ((file, [name for name in names if name not in files]) for file in files)


def text_of(name: str) -> str | None:
    """The text of a test file or a script; None where there is none."""
    places = [folder / Path(name).name for folder in FOLDERS[Path(name).suffix]]
    found = [place for place in places if place.is_file()]
    return found[0].read_text(encoding="utf-8") if found else None


def has_test(text: str, name: str) -> bool:
    """Whether a file has a test of that name: a function, or what a macro makes one of."""
    return re.search(rf"(?:\b(?:fn|def) |^    \"[\w-]+\" ){name}\b", text, re.MULTILINE) is not None


def test_every_row_names_a_test_or_a_suite_that_exists() -> None:
    suites = {file.stem for file in (ROOT / "suites").glob("*.toml")}
    told = proofs()
    assert len(told) > 40
    for cell in told:
        files = list(named(cell))
        own = {name for part in re.findall(r"suites? ((?:`[^`]+`(?:, )?)+)", cell) for name in QUOTED.findall(part)}
        assert files or own or cell == "the list below", f"nothing proves this row: {cell}"
        assert own <= suites, cell
        for file, names in files:
            text = text_of(file)
            assert text is not None, f"{file} of the row: {cell}"
            missing = [name for name in names if not has_test(text, name)]
            assert not missing, f"{file} has no {missing}"


def test_a_name_that_no_test_has_is_found_out() -> None:
    text = 'fn one() {}\nchurned!(\n    "epoll" epoll_loses_nothing 50 other 200,\n);\ndef test_two() -> None:\n'
    assert [has_test(text, name) for name in ("one", "epoll_loses_nothing", "test_two", "three")] == [
        True, True, True, False,
    ]  # fmt: skip


def test_the_list_of_cases_has_all_24() -> None:
    rows = re.findall(r"^\| (\d+) \| ", CHAPTER.read_text(encoding="utf-8"), re.MULTILINE)
    assert [int(row) for row in rows] == list(range(1, 25))


@pytest.mark.parametrize("file", sorted((ROOT / "suites").glob("*.toml")), ids=lambda file: file.stem)
def test_what_a_document_says_is_said_of_one_point_of_its_suite(file: Path) -> None:
    suite = read_file(file)
    settings = [point.setting for point in expand(suite, seed=1).points if not point.control]
    places = [(each.figure, each.at) for each in suite.references]
    places += [(each.name, place) for each in suite.claims for place in settings_of(each)]
    for what, place in places:
        here = [each for each in settings if all(each.get(path) == value for path, value in place.items())]
        assert len(here) == 1, f"{what}: {place} is {len(here)} points"
