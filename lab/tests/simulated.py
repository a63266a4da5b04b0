"""What simulations have counted: a line each in a table, where PLIMSOLL_TABLES names a folder for
them (`bench/simulations.py`). The tests assert on the same counts.
"""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = "PLIMSOLL_TABLES"


def tell(table: str, what: str, of: int, **counts: int) -> None:
    """Add a line: how many of so many simulations ended in each way."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return
    shares = ", ".join(f"{name.replace('_', ' ')} {count} ({count / of:.1%})" for name, count in counts.items())
    with (Path(folder) / f"simulated-{table}.txt").open("a", encoding="utf-8") as file:
        file.write(f"{what}: of {of:,} {shares}\n")
