"""Suites of a few lines, read and expanded."""

from __future__ import annotations

from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.read import read_text
from plimsoll_lab.suite.settings import Value
from plimsoll_lab.suite.spec import Plan, Suite

GOOD = """
name = "it"
question = "Well?"
[server]
protocol = "echo"
[load]
duration = "1s"
"""

SEARCH = (
    GOOD
    + """
[limits]
"response_time.p99" = "<50ms"
[search]
over = "load.connections"
range = [1, 60000]
"""
)

MATRIX = """
name = "it"
question = "Well?"
[server]
[load]
each = 2
[matrix]
"load.connections" = [10, 20]
"load.think" = ["1ms", "1s"]
[run]
repeat = 9
"""
CLAIM = """
[[claim]]
name = "twice the clients"
source = "a document"
figure = "response_time_us.mean"
at = { "load.connections" = 20, "load.think" = "1s" }
over = { "load.connections" = 10, "load.think" = "1s" }
expect = "1.5 to 3"
"""


def suite(text: str, changes: dict[str, Value] | None = None) -> Suite:
    return read_text(text, source="it.toml", directory="/here", changes=changes)


def plan(text: str, **changes: Value) -> Plan:
    return expand(suite(text, {key.replace("__", "."): value for key, value in changes.items()}), seed=1)
