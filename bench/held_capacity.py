"""Whether another fresh minute holds at a capacity that was found.

Searches for the most requests a second with 99 of 100 answered within 20 ms: of uvicorn, Node and
nginx five times each, and of our seven models twice. After each search, a fresh server gets the
load that was found for a minute. It *holds* if the p99 is within the limit, with the generator's
own lateness in it, and at least 99 % of the requests due are completed. One that misses the limit
as the generator was late is not judged. At least four of five are to hold. A minute in which the
machine's CPUs were taken away is made again, up to three times, whatever it showed; then it is not
judged, and another search of that server is made besides.

Every search is a line of docs/results/held-capacity.jsonl as soon as its minute has ended: started
again, the script goes on where it was stopped. The table is held-capacity.txt beside it. A search
takes eight to nine minutes, and with its minute ten: all of them five hours. Needs a machine that
does nothing else.

    python bench/held_capacity.py
    python bench/held_capacity.py --only node --most 1
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence

from harness import PLIMSOLL, ROOT
from searches import Json, Log, binaries, run, search, table

SERVERS = ROOT / "suites" / "servers"
FOREIGN = {
    "uvicorn": [
        *(sys.executable, "-m", "uvicorn", "--app-dir", str(SERVERS), "uvicorn_app:app", "--port", "{port}"),
        *("--log-level", "warning"),
    ],
    "node": ["node", str(SERVERS / "node_server.js"), "{port}"],
    "nginx": ["nginx", "-p", "{records}", "-c", str(SERVERS / "nginx.conf")],
}
"""Their ready port is `{port}`, but that of nginx stands in its file."""
NGINX_PORT = "18080"
MODELS = ("threads", "fork", "select", "poll", "epoll", "epoll-et", "uring")
OF_FOREIGN, OF_MODELS = 5, 2
"""Searches of each."""
LIMIT_US = 20_000.0
COMPLETED = 0.99
MINUTES = 4
"""Fresh minutes at an answer, until one has the machine for itself."""
TAKEN = {"machine_busy", "steal", "throttled"}
"""Warnings that say that it had not."""
ASKED = 0.8
"""The part of the searches at whose answer a fresh minute is to hold."""
RESULT = ROOT / "docs" / "results" / "held-capacity.txt"
SUITE = """
name     = "held-capacity"
question = "How many requests a second does {name} carry, with 99 of 100 answered within 20 ms?"

[server]
command = {command}
ready = "tcp:{port}"

[load]
protocol = "http"
path = "/{path}"
connections = 256
"""
SEARCH = """duration = "1s"

[run]
repeat = 1
warm_up = "200ms"
seed = {seed}

[limits]
"response_time.p99" = "<20ms"

[search]
over = "load.rate"
range = [100, 300000]
width = "10%"
trials = 3
patience = "{patience}"
"""
MINUTE = """rate = {rate}
duration = "60s"

[run]
repeat = 1
warm_up = "2s"
seed = {seed}
"""


def server_of(name: str) -> str:
    """The server and the load of a suite."""
    if name in FOREIGN:
        port = NGINX_PORT if name == "nginx" else "{port}"
        return SUITE.format(name=name, command=json.dumps(FOREIGN[name]), port=port, path="")
    command = [PLIMSOLL, "serve", "http", "--synthetic", "--model", name, "--listen", "127.0.0.1:{port}"]
    return SUITE.format(name=name, command=json.dumps(command), port="{port}", path="bytes/64")


def minute(name: str, rate: int, seed: int) -> Json:
    """A fresh minute at a rate."""
    number, taken = 0, [""]
    while taken and number < MINUTES:
        number += 1
        made = run("held-minute", server_of(name) + MINUTE.format(rate=rate, seed=seed))
        (point,) = made["points"]
        taken = sorted({each["code"] for each in made["warnings"]} & TAKEN)
    own = made["generators"][-1] or {}
    figures = {
        "response_time_us.p99": own.get("response_time_us", {}).get("p99"),
        "completed_rate": own.get("completed_rate"),
    }
    return {
        "outcome": point["outcome"], "reason": point["reason"], "figures": figures, "minutes": number, "taken": taken
    }  # fmt: skip


def holds(record: Json) -> bool | None:
    """Whether the minute held; None where no load was found, or the minute does not tell."""
    made = record["minute"]
    if made is None or made["outcome"] == "invalid" or made["taken"]:
        return None
    p99_us, rate = made["figures"]["response_time_us.p99"], made["figures"]["completed_rate"]
    if made["outcome"] == "generator_limited":
        # A late generator only lengthens response times, as in the search: a limit that is met with
        # its lateness is met, and of one that it misses nobody knows.
        is_met = p99_us is not None and p99_us < LIMIT_US and rate >= COMPLETED * record["lower"]
        return True if is_met else None
    if made["outcome"] != "ok" or (rate is not None and rate < COMPLETED * record["lower"]):
        return False
    return None if p99_us is None or rate is None else bool(p99_us < LIMIT_US)


def is_judged(record: Json) -> bool:
    """Whether a search counts: one of which it is not known whether its minute held is kept, and
    another one made besides.
    """
    return record["minute"] is None or holds(record) is not None


def render(made: Sequence[Json]) -> str:
    """The table, and in how many searches the minute held."""
    words = {True: "holds", False: "does not hold", None: "not judged"}
    head = ("server", "answer", "upper", "limited by", "patience", "took", "held for", "a fresh minute's p99", "rate")
    rows = [(*head, "and it")]
    for each in made:
        figures = {} if each["minute"] is None else each["minute"]["figures"]
        p99_us, rate = figures.get("response_time_us.p99"), figures.get("completed_rate")
        rows.append(
            (
                each["name"],
                "none" if each["lower"] is None else f"{each['lower']:,}/s",
                "none" if each["upper"] is None else f"{each['upper']:,}/s",
                each["limited_by"] or "-",
                each["patience"],
                f"{each['elapsed_s']:.0f} s",
                f"{each['held_s']:.0f} s",
                "-" if p99_us is None else f"{p99_us / 1e3:.2f} ms",
                "-" if rate is None else f"{rate:,.0f}/s",
                words[holds(each)],
            )
        )
    judged = [each for each in map(holds, made) if each is not None]
    asked = f"at least {ASKED:.0%} are asked for"
    held = f"The fresh minute holds in {sum(judged)} of {len(judged)} searches; {asked}.\n"
    return f"{table(rows)}\n{held}{binaries(made)}"


def main() -> int:
    """Make the searches that are missing, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="NAME", help="one server")
    parser.add_argument("--patience", default="8m", metavar="D", help="of each search (default: 8m)")
    parser.add_argument("--most", type=int, default=1000, metavar="N", help="searches to make now, at most")
    options = parser.parse_args()
    log = Log(RESULT.with_suffix(".jsonl"))
    there = [name for name in FOREIGN if shutil.which(FOREIGN[name][0])]
    for name in FOREIGN.keys() - there:
        print(f"{name} is not installed and is left out", file=sys.stderr)
    missing = log.missing(there, OF_FOREIGN, is_judged) + log.missing(MODELS, OF_MODELS, is_judged)
    for name in [each for each in missing if options.only in {"", each}][: options.most]:
        seed = 1 + len(log.made)
        found = search("held-capacity", server_of(name) + SEARCH.format(seed=seed, patience=options.patience))
        made = None if found["lower"] is None else minute(name, found["lower"], seed)
        log.add({"name": name, "seed": seed, "patience": options.patience, "minute": made} | found)
        print(f"{name}: {found['text']}; a fresh minute: {made}", flush=True)
        RESULT.write_text(render(log.made))
    print(render(log.made), end="")
    judged = [each for each in map(holds, log.made) if each is not None]
    return 0 if judged and sum(judged) >= ASKED * len(judged) else 1


if __name__ == "__main__":
    sys.exit(main())
