"""How the figures are made, and what the words mean."""

from __future__ import annotations

from plimsoll_lab.report.view import Cell, Part, Table, Text

METHOD = (
    (
        "A trial starts a fresh server process, waits until it is ready, applies the load, and reads the "
        "server's CPU and memory at both ends of the measured window. Trials run in blocks: each block "
        "has every point once, in an order drawn anew."
    ),
    (
        "Response time runs from the intended start of a request to its last byte. A stall of the server "
        "therefore counts for every request that was due during it: no coordinated omission. In a closed "
        "loop a request is due when the one before it completed and the think time is over. Failed "
        "requests are counted apart and have no response time."
    ),
    (
        "Server CPU is the CPU time of the server's whole process tree. Server memory is the most that "
        "was charged to the tree during the window: anonymous pages, shared memory, stacks, page tables and "
        "sockets, not the page cache. Without a control group it is the tree's proportional set size."
    ),
    (
        "Intervals of medians come from order statistics. Ratios to the best come from log ratios within "
        "blocks, with bounds that hold for all contenders, figures and settings together (Edwards and Hsu "
        "1983)."
    ),
)
GLOSSARY = (
    ("trial", "one timed measurement of a point with a fresh server process"),
    ("point", "one cell of the suite's matrix: a contender at a setting"),
    ("block", "one round in which each point is measured once"),
    ("contender", "one of the servers, models or builds that the suite compares"),
    ("warm-up, window", "the time before the measurement, which counts for nothing; the measured time"),
    ("completed rate", "requests completed per second of the window"),
    ("response time", "from the intended start of a request to its last byte"),
    ("p99", "the time that 99 % of the requests stay below"),
    ("capacity", "the highest load that meets the stated limits"),
    ("knee", "the load from which response time rises faster than the completed rate"),
    ("noise floor", "the ratio that 95 % of comparisons of equal servers stay below"),
)


def parts() -> list[Part]:
    """The method in four paragraphs, and a glossary."""
    return [*(Text(text=each) for each in METHOD), *glossary()]


def glossary() -> list[Part]:
    """What the words mean."""
    rows = tuple((Cell(text=word, heading=True), Cell(text=meaning)) for word, meaning in GLOSSARY)
    return [Table(caption="Glossary", head=("word", "meaning"), rows=rows)]
