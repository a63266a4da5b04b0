"""Compares hosts on a Ray cluster with emulated hosts of one machine.

Both are network namespaces of this machine, joined by links of the kernel as in the suites that
ship (over the emulator a server's CPU per request is another), measured round by round in turn.
Each part is about the rate and the server's CPU per request:

    three-servers, port-fwd-closed, port-fwd-4000
                    the small form of the suite that ships, on Ray's hosts and on emulated ones,
                    over all points that both measured in a round
    port-fwd-4000-at-1000
                    the same of the suite itself, at its own rate, where 1,000 connections are up
    generators      on Ray: two generators and one with the same total, of event loops as well:
                    each loop wakes the server on its own; what one with a single loop saves the
                    server is measured beside it, and is no equivalence
    scale           1, 2 and 4 emulated hosts at the same rate each: the generators' CPU per request
                    beside what `plimsoll lab plan --scale` says from the run on one of them
    overhead        what Ray costs each host, idle and while a trial runs

Two sides are equivalent where the 90 % interval of their ratio lies within 5 % (paired by rounds,
Student-t of the logarithm: two one-sided tests at 5 %). A generator at its limit voids response
times, but neither the rate that was reached nor what it cost the server. What is measured is
written to target/bench/hosts.json after each part, so that `--only` adds a part to the others.
Exit 1 where two sides are not shown to be equivalent. Needs root, the extra `cluster` and a machine
that does nothing else.
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import BUILD, PLIMSOLL, ROOT, BenchError
from scipy import stats

os.environ.setdefault("PLIMSOLL_BIN", PLIMSOLL)
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "lab" / "tests"), str(ROOT / "lab")]

from cluster import Cluster, open_cluster  # noqa: E402 - of the tests, which are no package
from laboratory import BINARY, environment, lab_command, marked, wait_until  # noqa: E402

MARGIN = 0.05
OVERHEAD_S = 10.0
LEAST_ROUNDS = 3
ADDRESSES = 4
"""Of each host, as many as the suites ask for."""
TRIES = 5
"""A trial that this machine has spoilt is no result, and is made again so often."""
EQUIVALENT = ("completed_rate", "server.cpu_us_per_request")
MEASURED = ("ok", "generator_limited")
COST = "generator.cpu_us_per_request"
# Paced, so that the two cores that all hosts share are not the limit.
SUITE = """
name = "hosts"
question = "Is it the same?"
[server]
workers = 1
[load]
connections = {connections}
rate = {rate}
duration = "{duration}"
threads = {threads}
[network]
topology = "single,5"
backend = "kernel"
[place]
server = "h1"
load = {load}
[run]
repeat = 1
warm_up = "500ms"
ready_timeout = "30s"
"""


@dataclass(frozen=True, kw_only=True)
class Side:
    """Hosts, and what runs on them."""

    hosts: str
    """`ray` or `netns`."""
    generators: int
    rate: int = 4000
    """Requests a second of all generators, over a tenth as many connections."""
    threads: int = 1
    """Event loops of each generator."""
    duration: str = "3s"

    def suite(self) -> str:
        """The question as a suite."""
        return SUITE.format(
            connections=self.rate // 10,
            rate=self.rate,
            threads=self.threads,
            duration=self.duration,
            load=json.dumps([f"h{2 + number}" for number in range(self.generators)]),
        )


SMALL = ("--fast", "--repeat", "1")
SHIPPED: Mapping[str, tuple[str, ...]] = {
    "three-servers": ("three-servers", *SMALL),
    "port-fwd-closed": ("port-fwd-closed", *SMALL),
    "port-fwd-4000": ("port-fwd-4000", *SMALL),
    "port-fwd-4000-at-1000": ("port-fwd-4000", "--only", "load.connections=1000", "--repeat", "1"),
}
GENERATORS = (
    Side(hosts="ray", generators=2),
    Side(hosts="ray", generators=1, threads=2),
    Side(hosts="ray", generators=1),
)
SCALE = (1, 2, 4)
EACH = 1000
"""Requests a second of each generator, where several hosts are held against one."""
PARTS = ("overhead", *SHIPPED, "generators", "scale")


def main() -> int:
    """Measure, and say what is shown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=30, help="of generators and of scale, at least 3")
    parser.add_argument("--shipped", type=int, default=10, help="rounds of the suites that ship, at least 3")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="the parts to measure")
    options = parser.parse_args()
    rounds, parts = options.rounds, options.only
    path = BUILD / "hosts.json"
    BUILD.mkdir(parents=True, exist_ok=True)
    told: dict[str, Any] = {}
    if tuple(parts) != PARTS and path.exists():
        told = json.loads(path.read_text(encoding="utf-8"))

    def keep(name: str, found: dict[str, Any], began: float) -> None:
        told[name] = found | {"took_s": round(time.monotonic() - began)}
        path.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        print(f"{name}: {told[name]['took_s']} s", flush=True)
        for figure, row in found.items():
            print(f"  {figure:46} {say(row)}", flush=True)

    with (
        open_cluster(5, ADDRESSES, backend="kernel") as cluster,
        tempfile.TemporaryDirectory(prefix="plimsoll-bench-") as folder,
    ):
        bench = Bench(cluster=cluster, folder=Path(folder))
        for name in parts:
            began = time.monotonic()
            if name == "overhead":
                keep(name, bench.overhead(), began)
            elif name == "scale":
                keep(name, bench.scale(rounds), began)
            elif name in SHIPPED:
                keep(name, bench.shipped(SHIPPED[name], options.shipped), began)
            else:
                keep(name, bench.generators(rounds), began)
    shown = [
        row["equivalent"]
        for part in told.values()
        for row in part.values()
        if isinstance(row, dict) and "equivalent" in row
    ]
    return 0 if all(shown) else 1


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A cluster, and a folder for runs."""

    cluster: Cluster
    folder: Path

    def generators(self, rounds: int) -> dict[str, Any]:
        """Two generators over one of as many event loops, and over one of a single loop."""
        two, loops, single = self._in_turn(GENERATORS, rounds)
        told: dict[str, Any] = {}
        for figure in EQUIVALENT:
            values = [each[figure] for each in two]
            told[figure] = ratio(values, [each[figure] for each in loops])
            beside = ratio(values, [each[figure] for each in single])
            del beside["equivalent"]
            told[f"{figure} over one with a single loop"] = beside
        return told

    def scale(self, rounds: int) -> dict[str, Any]:
        """On several emulated hosts: the generators' CPU per request by what a plan says from the
        run on one of the same round.
        """
        sides = [Side(hosts="netns", generators=count, rate=EACH * count) for count in SCALE]
        seen = self._in_turn(sides, rounds)
        planned = [each["planned"] for each in seen[0]]
        return {
            f"{COST} on {count} hosts": ratio([each[COST] for each in seen[place]], planned)
            for place, count in enumerate(SCALE)
            if count > 1
        }

    def _in_turn(self, sides: Sequence[Side], rounds: int) -> list[list[Mapping[str, float]]]:
        seen: list[list[Mapping[str, float]]] = [[] for _ in sides]
        for number in range(rounds):
            for step in range(len(sides)):
                place = (number + step) % len(sides)
                seen[place].append(self._trial(sides[place]))
        return seen

    def shipped(self, words: Sequence[str], rounds: int) -> dict[str, Any]:
        """A suite that ships, unchanged, on the cluster and on namespaces in turn: the ratio of
        each figure, in a round its geometric mean over the points that both measured. What was not
        measured is printed with its reason.
        """
        means: dict[str, list[list[float]]] = {figure: [[], []] for figure in EQUIVALENT}
        points = []
        for number in range(rounds):
            found: list[dict[int, Mapping[str, float]]] = [{}, {}]
            for side in (0, 1) if number % 2 == 0 else (1, 0):
                _, found[side], said = self._run(("ray", "netns")[side], *words)
                if said:
                    print(f"  round {number + 1} on {('ray', 'netns')[side]}: {said}", flush=True)
            both = found[0].keys() & found[1].keys()
            points.append(len(both))
            for figure, sides in means.items():
                for each, one in zip(sides, found, strict=True) if both else ():
                    each.append(statistics.geometric_mean(one[at][figure] for at in both))
        told = {"rounds": rounds, "points": points}
        if sum(count > 0 for count in points) < LEAST_ROUNDS:
            return {figure: {"equivalent": False, **told} for figure in EQUIVALENT}
        return {figure: {**ratio(*sides), **told} for figure, sides in means.items()}

    def _trial(self, side: Side) -> Mapping[str, float]:
        """The figures of one trial; of one emulated generator also what a plan says a request
        costs.
        """
        (self.folder / "hosts.toml").write_text(side.suite(), encoding="utf-8")
        for _ in range(TRIES):
            run, found, said = self._run(side.hosts, "hosts.toml")
            if found:
                figures = found[min(found)]
                alone = side.hosts == "netns" and side.generators == 1
                return {**figures, "planned": self._planned(run, side.rate)} if alone else figures
        raise BenchError(f"{TRIES} runs on {side.hosts} brought no result: {said}")

    def _planned(self, run: Path, rate: int) -> float:
        """CPU microseconds of a request, as a plan takes them from a run."""
        words = ("plan", "hosts.toml", "--scale", str(run), "--target-rate", str(rate), "--json")
        done = self._lab(*words)
        return float(json.loads(done.stdout)["scale"]["measured"]["cpu_us_per_request"])

    def _run(self, hosts: str, *suite: str) -> tuple[Path, dict[int, Mapping[str, float]], str]:
        """A run: its folder, the figures of each point that has a result, and why others have
        none.
        """
        out = tempfile.mkdtemp(dir=self.folder)
        words = ("run", *suite, "--quiet", "--out", out)
        if hosts == "ray":
            done = self.cluster.run(self.folder, *words, "--hosts", f"ray:{self.cluster.address}")
        else:
            done = self._lab(*words)
        trials = [json.loads(path.read_text(encoding="utf-8")) for path in Path(out).glob("0001/trials/*.json")]
        found = {trial["point"]: trial["figures"] for trial in trials if trial["outcome"] in MEASURED}
        for figures in found.values():
            # Of two servers each answers half: no cost of a request, but the same on both sides.
            if "server.cpu_cores" in figures and figures.get("completed_rate"):
                figures.setdefault(EQUIVALENT[1], figures["server.cpu_cores"] * 1e6 / figures["completed_rate"])
        found = {point: figures for point, figures in found.items() if figures.keys() >= {*EQUIVALENT}}
        said = sorted({str(trial["reason"]) for trial in trials if trial["point"] not in found})
        return Path(out) / "0001", found, "; ".join(said) or ("" if trials else done.stderr)

    def _lab(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = lab_command(*words)
        return subprocess.run(command, cwd=self.folder, env=environment(), capture_output=True, text=True, check=False)

    def overhead(self) -> dict[str, Any]:
        """What Ray's processes and the agent use of a host that nothing runs on, and of the
        server's while a trial with four generators runs.
        """
        idle = self._of_ray("h1")
        with self._long_trial():
            return {"idle": idle, "in a trial, the server's host": self._of_ray("h1")}

    @contextmanager
    def _long_trial(self) -> Iterator[None]:
        """A trial under way on the cluster, whose window is open."""
        side = Side(hosts="ray", generators=4, duration="600s")
        (self.folder / "hosts.toml").write_text(side.suite(), encoding="utf-8")
        words = ("run", "hosts.toml", "--quiet", "--out", tempfile.mkdtemp(dir=self.folder))
        lab = self.cluster.lab(self.folder, *words, "--hosts", f"ray:{self.cluster.address}")
        try:
            wait_until(lambda: len(self.cluster.running("load")) == side.generators, "the trial did not begin")
            time.sleep(5)
            yield
        finally:
            lab.terminate()
            lab.communicate()

    def _of_ray(self, host: str) -> dict[str, float]:
        """CPU in cores and memory in bytes (PSS) of what runs on a host, but for our binary."""
        space = Path(f"/proc/{self.cluster.pid(host)}/ns/net").stat().st_ino
        pids = [pid for pid in marked(self.cluster.folder) if is_of_ray(pid, space)]
        before, began = cpu_s(pids), time.monotonic()
        time.sleep(OVERHEAD_S)
        cores = (cpu_s(pids) - before) / (time.monotonic() - began)
        return {"cpu_cores": cores, "memory_bytes": sum(pss_bytes(pid) for pid in pids), "processes": len(pids)}


def is_of_ray(pid: int, space: int) -> bool:
    """Whether a process is in a network namespace, and is no server or generator of a trial."""
    try:
        here = Path(f"/proc/{pid}/ns/net").stat().st_ino == space
        return here and Path(f"/proc/{pid}/exe").readlink() != Path(BINARY).resolve()
    except OSError:
        return False


def ratio(one: Sequence[float], other: Sequence[float]) -> dict[str, Any]:
    """The first side over the second, with its 90 % interval."""
    logs = [math.log(a / b) for a, b in zip(one, other, strict=True)]
    middle = statistics.fmean(logs)
    half = stats.t.ppf(0.95, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    low, high = math.exp(middle - half), math.exp(middle + half)
    within = low > 1 / (1 + MARGIN) and high < 1 + MARGIN
    return {"ratio": math.exp(middle), "ci90": [low, high], "equivalent": within, "values": [list(one), list(other)]}


def say(row: Mapping[str, Any]) -> str:
    """A row in words."""
    if "cpu_cores" in row:
        memory = row["memory_bytes"] / 2**20
        return f"{row['cpu_cores']:.3f} cores, {memory:.0f} MiB, {row['processes']} processes"
    if "ratio" not in row:
        return "fewer than three rounds have a point that both measured"
    low, high = row["ci90"]
    if "equivalent" not in row:
        return f"{row['ratio']:.3f} ({low:.3f} to {high:.3f})"
    call = "equivalent" if row["equivalent"] else "not shown to be equivalent"
    return f"{row['ratio']:.3f} ({low:.3f} to {high:.3f}): {call} within {MARGIN:.0%}"


def cpu_s(pids: Sequence[int]) -> float:
    """User and system time of processes (proc_pid_stat(5), fields 14 and 15)."""
    total = 0
    for pid in pids:
        with suppress(OSError):  # it has ended
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def pss_bytes(pid: int) -> int:
    """The proportional set size of a process (proc_pid_smaps_rollup(5))."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    sys.exit(main())
