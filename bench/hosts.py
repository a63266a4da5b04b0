"""The same suite on a Ray cluster and on emulated hosts of one machine has to tell the same.

Both sides are network namespaces of this machine, over the same emulator, round by round in turn.
Three questions, each of the rate and of the server's CPU a request:

    three-servers   four generators against one server: Ray's hosts beside namespaces
    forwarder       two generators through a forwarder on a host of its own: the same
    generators      on Ray: two generators beside one with the same total

Then the small forms of three-servers and port-fwd-4000, as they ship: the same two figures over all
points with a result in every round.

Two sides are equivalent where the 90 % interval of the ratio (paired by rounds, Student-t of its
logarithm: two one-sided tests at 5 %) lies within 5 %. What idle nodes of Ray cost is measured too.
Written to target/bench/hosts.json. Takes about twenty-five minutes. Exit 1 where two sides
are not shown to be equivalent. Needs root and the extra `cluster`, and a machine that does nothing
else.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import BUILD, PLIMSOLL, ROOT
from scipy import stats

os.environ.setdefault("PLIMSOLL_BIN", PLIMSOLL)
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "lab")]

from cluster import Cluster, open_cluster  # noqa: E402 - of the tests, which are no package
from laboratory import environment, lab_command, marked  # noqa: E402

MARGIN = 0.05
IDLE_S = 10.0
FIGURES = ("completed_rate", "server.cpu_us_per_request")
# Paced, so that two cores that all hosts share are not the limit.
SUITE = """
name = "hosts"
question = "Is it the same?"
[server]
workers = 1
[load]
connections = 400
rate = 4000
duration = "3s"
threads = 1
{target}
[network]
topology = "single,5"
[place]
server = "h1"
load = {load}
{role}
[run]
repeat = 1
warm_up = "500ms"
ready_timeout = "30s"
"""
RELAY = '[[role]]\nname = "relay"\nkind = "forward"\non = "h5"\nmappings = ["10.0.0.5:7000=role:server"]\nworkers = 1\n'
FOUR, TWO, ONE = '["h2", "h3", "h4", "h5"]', '["h2", "h3"]', '["h2"]'
QUESTIONS = {
    "three-servers": (("ray", FOUR, "", ""), ("netns", FOUR, "", "")),
    "forwarder": (
        ("ray", TWO, 'target = "role:relay:7000"', RELAY),
        ("netns", TWO, 'target = "role:relay:7000"', RELAY),
    ),
    "generators": (("ray", TWO, "", ""), ("ray", ONE, "", "")),
}
SHIPPED = ("three-servers", "port-fwd-4000")


def main() -> int:
    """Measure, and say what is shown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=20, help="of the three questions, at least 3")
    parser.add_argument("--shipped", type=int, default=5, help="rounds of the suites that ship, at least 3")
    options = parser.parse_args()
    rounds = options.rounds
    BUILD.mkdir(parents=True, exist_ok=True)
    with open_cluster(5) as cluster, tempfile.TemporaryDirectory(prefix="plimsoll-bench-") as folder:
        told: dict[str, Any] = {"rounds": rounds, "idle": idle(cluster)}
        print(f"an idle node of Ray: {told['idle']}", flush=True)
        for name, sides in QUESTIONS.items():
            told[name] = ask(cluster, Path(folder), sides, rounds)
            for figure, found in told[name].items():
                print(f"{name:14} {figure:26} {say(found)}", flush=True)
        for name in SHIPPED:
            told[f"suite {name}"] = ask_shipped(cluster, Path(folder), name, options.shipped)
            for figure, found in told[f"suite {name}"].items():
                print(f"{name:14} {figure:26} {say(found)}", flush=True)
    (BUILD / "hosts.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    asked = (*QUESTIONS, *(f"suite {name}" for name in SHIPPED))
    shown = [found["equivalent"] for name in asked for found in told[name].values()]
    return 0 if all(shown) else 1


def ask(cluster: Cluster, folder: Path, sides: Sequence[tuple[str, str, str, str]], rounds: int) -> dict[str, Any]:
    """Both sides, in turn; the ratio of each figure."""
    seen: list[list[dict[str, float]]] = [[], []]
    for number in range(rounds):
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            seen[side].append(measure(cluster, folder, *sides[side]))
    return {figure: ratio([[each[figure] for each in one] for one in seen]) for figure in FIGURES}


def ask_shipped(cluster: Cluster, folder: Path, suite: str, rounds: int) -> dict[str, Any]:
    """The small form of a suite that ships, unchanged, on the cluster and on namespaces in turn:
    the ratio of each figure, in a round its geometric mean over the points.
    """
    seen: list[list[dict[int, dict[str, float]]]] = [[], []]
    for number in range(rounds):
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            hosts = ("ray", "netns")[side]
            seen[side].append(results(cluster, folder, hosts, suite, "--fast", "--repeat", "1"))
    points = set.intersection(*(set(each) for one in seen for each in one))
    if not points:
        raise SystemExit(f"{suite}: no point has a result in every round")
    told = {}
    for figure in FIGURES:
        sides = [[statistics.geometric_mean(each[at][figure] for at in points) for each in one] for one in seen]
        told[figure] = {**ratio(sides), "points": len(points)}
    return told


def measure(cluster: Cluster, folder: Path, hosts: str, load: str, target: str, role: str) -> dict[str, float]:
    """The figures of one trial."""
    (folder / "hosts.toml").write_text(SUITE.format(load=load, target=target, role=role), encoding="utf-8")
    found = results(cluster, folder, hosts, "hosts.toml")
    return found[min(found)]


def results(cluster: Cluster, folder: Path, hosts: str, *suite: str) -> dict[int, dict[str, float]]:
    """The figures of one run by point, of the points that have a result."""
    out = tempfile.mkdtemp(dir=folder)
    words = ("run", *suite, "--quiet", "--out", out)
    if hosts == "ray":
        done = cluster.run(folder, *words, "--hosts", f"ray:{cluster.address}")
    else:
        command = lab_command(*words)
        done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    trials = [json.loads(path.read_text(encoding="utf-8")) for path in Path(out).glob("0001/trials/*.json")]
    found = {
        trial["point"]: {figure: trial["figures"][figure] for figure in FIGURES}
        for trial in trials
        if all(figure in trial["figures"] for figure in FIGURES)
    }
    if not found:
        reasons = sorted({str(trial["reason"]) for trial in trials})
        raise SystemExit(f"a run on {hosts} brought no figures: {reasons} {done.stderr}")
    return found


def ratio(sides: Sequence[Sequence[float]]) -> dict[str, Any]:
    """The first side over the second, with its 90 % interval."""
    logs = [math.log(one / other) for one, other in zip(*sides, strict=True)]
    middle = statistics.fmean(logs)
    half = stats.t.ppf(0.95, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    interval = [math.exp(middle - half), math.exp(middle + half)]
    within = interval[0] > 1 / (1 + MARGIN) and interval[1] < 1 + MARGIN
    return {"ratio": math.exp(middle), "ci90": interval, "equivalent": within, "values": [list(each) for each in sides]}


def say(found: dict[str, Any]) -> str:
    """The ratio in words."""
    low, high = found["ci90"]
    call = "equivalent" if found["equivalent"] else "not shown to be equivalent"
    return f"{found['ratio']:.3f} ({low:.3f} to {high:.3f}): {call} within {MARGIN:.0%}"


def idle(cluster: Cluster) -> dict[str, float]:
    """CPU in cores and memory in bytes (PSS) of a node of Ray that nothing runs on: the mean over
    head and hosts.
    """
    pids = marked(cluster.folder)
    before, began = cpu_s(pids), time.monotonic()
    time.sleep(IDLE_S)
    cores = (cpu_s(pids) - before) / (time.monotonic() - began)
    nodes = len(cluster.nodes)
    memory = sum(pss_bytes(pid) for pid in pids)
    return {"cpu_cores": cores / nodes, "memory_bytes": memory / nodes, "processes": len(pids) / nodes}


def cpu_s(pids: Sequence[int]) -> float:
    """User and system time of processes (proc_pid_stat(5), fields 14 and 15)."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def pss_bytes(pid: int) -> int:
    """The proportional set size of a process (proc_pid_smaps_rollup(5))."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    sys.exit(main())
