"""What others answer to the question of `lab capacity`, of one nginx: k6's breakpoint ramp, and
wrk2 by hand.

The question: the most requests a second over 256 connections with 99 of 100 answered within 20 ms.

- k6 raises its rate evenly from 100/s on and ends at the first second in which its threshold on the
  99th percentile breaks (its documentation calls that a breakpoint test). Its API says each second
  how many requests it has made until then.
- wrk2 is given one rate after another, as a person would: twice as many until one is too high, then
  the middle. A rate is carried if wrk2's 99th percentile is within the limit: it counts from when a
  request was due. What it completed is no help, as its window has the opening of connections in it.
- ours is the search of `bench/held_capacity.py`.

The table is docs/results/capacity-beside-others.txt. `make target/tools/bin/k6` installs k6 where
Go is installed. wrk2 is in no registry: build it from its repository, and put it on the path as
`wrk2`. Needs a machine that does nothing else, for a quarter of an hour.

`--costs` asks instead what a request costs nginx under wrk2 and under `plimsoll load http`, at the
same rates in turn: by proc_pid_stat(5), over 7 s in the middle of 13. How often nginx went to sleep
is by proc_pid_status(5). That table is docs/results/nginx-under-generators.txt.

    python bench/ramps.py
    python bench/ramps.py --costs
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness import PLIMSOLL, ROOT
from held_capacity import FOREIGN, LIMIT_US, NGINX_PORT, SEARCH, server_of
from searches import binary, search, table

K6 = ROOT / "target" / "tools" / "bin" / "k6"
RESULT = ROOT / "docs" / "results" / "capacity-beside-others.txt"
COSTS = ROOT / "docs" / "results" / "nginx-under-generators.txt"
COST_RATES = (40_000, 80_000, 110_000)
BEFORE_S, COUNTED_S, LOAD_S = 4, 7, 13
"""When the count of a load begins, how long it lasts, and how long the load does."""
CONNECTIONS = 256
MOST, RAMP_S = 160_000, 120
"""The rate at the end of k6's ramp, and how long that takes."""
API = ("127.0.0.1", 16565)
"""Where k6 says how far it is."""
FIRST, WIDTH, RATE_S, RATES_MOST = 10_000, 1.1, 20, 20
"""wrk2's first rate, how near its bounds come, how long each rate lasts, of which it spends 10 s on
finding out its delays, and how many rates it gets at most."""
SCRIPT = """
import http from "k6/http";
export const options = {
  discardResponseBodies: true, summaryTrendStats: ["med", "p(99)"],
  scenarios: {
    ramp: {
      executor: "ramping-arrival-rate", startRate: 100, timeUnit: "1s",
      preAllocatedVUs: CONNECTIONS, maxVUs: CONNECTIONS,
      stages: [{ duration: "RAMP_Ss", target: MOST }],
    },
  },
  thresholds: { http_req_duration: [{ threshold: "p(99)<LIMIT_MS", abortOnFail: true }] },
};
export default function () { http.get("http://127.0.0.1:PORT/"); }
"""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What one tool said."""

    tool: str
    """The tool, and its version."""
    carried: str
    """The rate that it calls carried."""
    not_carried: str
    """The rate that it calls too high."""
    took_s: float
    """How long it took."""
    remark: str
    """What else it said."""


@contextmanager
def nginx() -> Iterator[int]:
    """The server of the suites, on its own port, and its process."""
    with tempfile.TemporaryDirectory() as folder:
        command = [word.replace("{records}", folder) for word in FOREIGN["nginx"]]
        with subprocess.Popen(command) as server:
            try:
                time.sleep(1)
                yield server.pid
            finally:
                server.terminate()


def k6() -> Answer:
    """The ramp, until the threshold breaks."""
    words = {"CONNECTIONS": CONNECTIONS, "RAMP_S": RAMP_S, "MOST": MOST, "LIMIT_MS": LIMIT_US / 1e3, "PORT": NGINX_PORT}
    text = SCRIPT
    for word, value in words.items():
        text = text.replace(word, str(value))
    with tempfile.TemporaryDirectory() as folder:
        script, told = Path(folder) / "ramp.js", Path(folder) / "summary.json"
        script.write_text(text)
        began = time.monotonic()
        counts = [(0.0, 0.0)]
        quiet = subprocess.DEVNULL
        command = [str(K6), "run", "--quiet", "--no-usage-report", "--address", ":".join(map(str, API))]
        command += ["--summary-export", str(told), str(script)]
        with subprocess.Popen(command, stdout=quiet, stderr=quiet) as process:
            while process.poll() is None:
                time.sleep(1)
                made = _made_by_k6()
                if made is not None:
                    counts.append((time.monotonic() - began, made))
        took_s = counts[-1][0]
        metrics = json.loads(told.read_text())["metrics"]
    rates = [(b - a) / (t - s) for (s, a), (t, b) in itertools.pairwise(counts) if t > s]
    offered = 100 + (MOST - 100) * min(1.0, took_s / RAMP_S)
    dropped = metrics.get("dropped_iterations", {}).get("count", 0)
    p99 = metrics["http_req_duration"].get("p(99)", math.nan)
    version = subprocess.run([K6, "version"], check=True, capture_output=True, text=True).stdout.split()[1]
    return Answer(
        tool=f"k6 {version}, ramp",
        carried=f"{max(rates, default=0.0):,.0f}/s at most",
        not_carried=f"{offered:,.0f}/s",
        took_s=took_s,
        remark=f"{dropped:,.0f} iterations dropped, in no response time; p99 of the whole run {p99:.1f} ms",
    )


def _made_by_k6() -> float | None:
    """How many requests k6 has completed until now."""
    try:
        with socket.create_connection(API, timeout=5) as stream:
            stream.sendall(b"GET /v1/metrics/http_reqs HTTP/1.0\r\n\r\n")
            said = stream.makefile().read()
        return float(json.loads(said.partition("\n\n")[2])["data"]["attributes"]["sample"]["count"])
    except (OSError, ValueError, KeyError):
        return None


def wrk2() -> Answer:
    """Rates by hand: doubled until one is too high, and then between."""
    began = time.monotonic()
    low, high, rate = 0, math.inf, FIRST
    tried: list[str] = []
    while high > low * WIDTH and len(tried) < RATES_MOST:
        p99_ms, completed = _asked(rate)
        good = p99_ms < LIMIT_US / 1e3
        tried.append(f"{rate:,}/s: p99 {p99_ms:.3g} ms, {completed:,.0f}/s")
        print(tried[-1], flush=True)
        low, high = (rate, high) if good else (low, rate)
        rate = 2 * rate if math.isinf(high) else round(math.sqrt(max(low, FIRST / 10) * high))
    return Answer(
        tool="wrk2, by hand",
        carried=f"{low:,}/s",
        not_carried=f"{high:,.0f}/s",
        took_s=time.monotonic() - began,
        remark=f"{len(tried)} rates; {tried[-1]}",
    )


def _asked(rate: int) -> tuple[float, float]:
    """wrk2's 99th percentile in milliseconds, and its completed rate."""
    command = ["wrk2", "-t1", f"-c{CONNECTIONS}", f"-d{RATE_S}s", f"-R{rate}", "--latency"]
    said = subprocess.run([*command, f"http://127.0.0.1:{NGINX_PORT}/"], check=True, capture_output=True, text=True)
    [(value, unit)] = re.findall(r"99\.000%\s+([\d.]+)(us|ms|s|m)\b", said.stdout)
    [completed] = re.findall(r"Requests/sec:\s+([\d.]+)", said.stdout)
    return float(value) * {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}[unit], float(completed)


def costs(server: int) -> str:
    """What a request costs nginx under each generator, and how often it slept."""
    url = f"http://127.0.0.1:{NGINX_PORT}/"
    rows = [("rate", "generator", "nginx per request", "nginx slept", "generator's cores")]
    for rate in COST_RATES:
        commands = {
            "wrk2": ["wrk2", "-t1", f"-c{CONNECTIONS}", f"-d{LOAD_S}s", f"-R{rate}", url],
            "plimsoll": [PLIMSOLL, "load", "http", url, f"--connections={CONNECTIONS}", f"--rate={rate}"],
        }
        commands["plimsoll"] += [f"--duration={LOAD_S}s", "--quiet"]
        for name, command in commands.items():
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as load:
                time.sleep(BEFORE_S)
                first = (time.monotonic(), _cpu_s(server), _sleeps(server), _cpu_s(load.pid))
                time.sleep(COUNTED_S)
                last = (time.monotonic(), _cpu_s(server), _sleeps(server), _cpu_s(load.pid))
            took_s, cpu_s, slept, own_s = (after - before for before, after in zip(first, last, strict=True))
            cost = f"{cpu_s / took_s / rate * 1e6:.2f} us"
            rows.append((f"{rate:,}/s", name, cost, f"{slept / took_s:,.0f}/s", f"{own_s / took_s:.2f}"))
            print(rows[-1], flush=True)
    return table(rows)


def _cpu_s(process: int) -> float:
    """The CPU seconds of a process until now."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _sleeps(process: int) -> int:
    """How often it has given its CPU up of its own accord."""
    [found] = re.findall(
        r"^voluntary_ctxt_switches:\s+(\d+)", Path(f"/proc/{process}/status").read_text(), re.MULTILINE
    )
    return int(found)


def ours() -> Answer:
    """The search."""
    found = search("held-capacity", server_of("nginx") + SEARCH.format(seed=1, patience="6m"))
    return Answer(
        tool=binary(),
        carried=f"{found['lower']:,}/s" if found["lower"] is not None else "none",
        not_carried=f"{found['upper']:,}/s" if found["upper"] is not None else "none",
        took_s=found["elapsed_s"],
        remark=f"held for {found['held_s']:.0f} s; {found['first_break']}",
    )


def main() -> int:
    """Ask each of them, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--costs", action="store_true", help="what a request costs nginx instead")
    options = parser.parse_args()
    missing = [name for name in (str(K6), "nginx", "wrk2") if shutil.which(name) is None]
    if missing:
        print(f"not installed: {', '.join(missing)}", file=sys.stderr)
        return 1
    if options.costs:
        with nginx() as server:
            COSTS.write_text(costs(server))
        print(COSTS.read_text(), end="")
        return 0
    with nginx():
        answers = [k6(), wrk2()]
    answers.append(ours())
    rows = [("tool", "carries", "not", "took", "it says")]
    rows += [(each.tool, each.carried, each.not_carried, f"{each.took_s:.0f} s", each.remark) for each in answers]
    RESULT.write_text(table(rows))
    print(table(rows), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
