"""The suites that ship with Plimsoll: in the wheel beside this package, in a checkout in the folder
`suites`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.figures import suggest

_PACKAGE = Path(__file__).resolve().parent.parent
HOMES = (_PACKAGE / "suites", _PACKAGE.parent.parent / "suites")


def folder() -> Path | None:
    """Where they are."""
    return next((home for home in HOMES if home.is_dir()), None)


def suites() -> list[tuple[str, str]]:
    """Name and question of each."""
    home = folder()
    found = []
    for path in sorted(home.glob("*.toml")) if home else []:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        found.append((path.stem, str(tables.get("question", ""))))
    return found


def find(suite: str) -> Path:
    """The file of a suite that was named by its path or by its name."""
    path = Path(suite)
    if path.suffix == ".toml" or "/" in suite or path.is_file():
        if not path.is_file():
            raise SuiteError(f"{suite}: there is no such file; 'plimsoll lab suites' lists those that ship")
        return path
    home = folder()
    if home is not None and (home / f"{suite}.toml").is_file():
        return home / f"{suite}.toml"
    raise SuiteError(f"{suite}: no such suite{suggest(suite, (name for name, _ in suites()))}")
