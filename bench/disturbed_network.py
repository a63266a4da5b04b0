"""Whether `network-single` is judged on a machine that is shared: as it is, and beside one busy
loop.

Its emulated links run on the CPUs of the machine. Where these are taken away, links are late, and
the late moments are cut out of the trials. *Judged* is a figure that trials of every point still
have: the table says of how many trials each is, at the point where they are fewest, and how many
trials of the run are kept although they are marked as disturbed. The median response time, the rate
and the server's CPU are to be judged in every run; the 99th percentile rests on the slowest eight
requests of a trial and goes first.

    sudo python bench/disturbed_network.py
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence

from harness import BUILD, ROOT, lab
from searches import Json, binary, table

SUITE = "network-single"
RUNS = 5
"""Of each kind, in turn."""
JUDGED = {"p50": "response_time_us.p50", "rate": "completed_rate", "CPU": "server.cpu_cores"}
"""What every run is to judge, with its name in the table."""
FIGURES = JUDGED | {"p99": "response_time_us.p99"}
MARKED = {
    "links at fault": ("link_disturbed", "links_lost"),
    "other programs": ("machine_busy",),
    "steal": ("steal",),
}
"""How trials were disturbed that are kept, by their warnings."""
RESULT = ROOT / "docs" / "results" / "disturbed-network.txt"
LOOP = "while True: pass"
OUT = BUILD / "disturbed-network"


def measure(*, busy: bool) -> Json:
    """One run's summary."""
    loop = subprocess.Popen([sys.executable, "-c", LOOP]) if busy else None
    try:
        done = lab("run", SUITE, "--out", str(OUT))
    finally:
        if loop is not None:
            loop.kill()
            loop.wait()
        shutil.rmtree(OUT, ignore_errors=True)
    if not done.stdout:
        sys.exit(f"{SUITE} could not be run: {done.stderr}")
    found: Json = json.loads(done.stdout.splitlines()[-1])
    return found


def fewest(run: Json, figure: str) -> int:
    """Of how many trials a figure is, at the point where they are fewest."""
    return min(int(point["figures"].get(figure, {}).get("n", 0)) for point in run["points"])


def is_judged(run: Json) -> bool:
    """Whether every point of a run that has ended is a result, and has what is to be judged."""
    ended = run["status"] == "complete" and all(point["outcome"] == "ok" for point in run["points"])
    return ended and all(fewest(run, figure) > 0 for figure in JUDGED.values())


def marked(run: Json, codes: Sequence[str]) -> int:
    """The trials with such a warning."""
    return sum(each["trials"] for each in run["warnings"] if each["code"] in codes)


def render(made: Sequence[tuple[str, Json]]) -> str:
    """The table, and how many runs judge what they are to."""
    head = ("the machine", *(f"with {name}" for name in FIGURES), *MARKED, "judged")
    rows = [
        (
            kind,
            *(
                f"{fewest(run, figure)} of {run['trials']['planned'] // len(run['points'])}"
                for figure in FIGURES.values()
            ),
            *(f"{marked(run, codes)} of {run['trials']['planned']}" for codes in MARKED.values()),
            "yes" if is_judged(run) else "no",
        )
        for kind, run in made
    ]
    judged = sum(is_judged(run) for _, run in made)
    return f"{table([head, *rows])}\nJudged in {judged} of {len(made)} runs. Measured by {binary()}.\n"


def main() -> int:
    """Run the suite in turn without and with a busy loop, and write the table."""
    made: list[tuple[str, Json]] = []
    for _ in range(RUNS):
        for kind, busy in (("as it is", False), ("beside one busy loop", True)):
            made.append((kind, measure(busy=busy)))
            RESULT.write_text(render(made))
    print(render(made), end="")
    return 0 if all(is_judged(run) for _, run in made) else 1


if __name__ == "__main__":
    sys.exit(main())
