"""`plimsoll capture` beside tcpdump and dumpcap: packets kept, CPU a packet and memory, under a
flood of SYNs.

Needs root, tcpdump, dumpcap and capinfos, and `ip` and `unshare`; without them it says so and
measures nothing. The table goes to standard output, and every round to docs/results/capture.json.

A pair of virtual devices in a namespace of its own carries the packets. A sender with a packet(7)
socket paces them, and the interface's own counter says how many passed. A row is a rate: each
capture in turn, round by round, and the median of its rounds. A capture of nothing is run before
each, and its CPU, which is that of start and end, is no part of a packet's. Ours also judges each
TCP segment as it comes, which the others leave to whoever reads the file.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from harness import PLIMSOLL, ROOT

RESULT = ROOT / "docs" / "results" / "capture.json"
ROUNDS = 5
SECONDS = 2.0
RATES = (20_000, 60_000)
"""SYNs a second: one that every capture keeps up with on a small machine, and one near what the
sender can do there."""
SENDER, CAPTURED = "plcap0", "plcap1"
SETTLE_S = 0.5
"""Against what is with the kernel yet when a capture is told to end."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One capture of one flood."""

    kept: int
    passed: int
    cpu_s: float
    memory_mb: float
    idle_cpu_s: float = 0.0
    """The CPU of a capture of nothing."""

    @property
    def cpu_us_per_packet(self) -> float:
        """What the packets cost."""
        return (self.cpu_s - self.idle_cpu_s) / self.passed * 1e6


def commands(file: Path) -> dict[str, list[str]]:
    """What is compared. All keep the headers of each packet in a file and resolve no names."""
    return {
        "plimsoll": [PLIMSOLL, "capture", "-i", CAPTURED, "-w", str(file), "--json"],
        "tcpdump": ["tcpdump", "-i", CAPTURED, "-n", "-s", "128", "-w", str(file)],
        "dumpcap": ["dumpcap", "-i", CAPTURED, "-s", "128", "-q", "-w", str(file)],
    }


def syn(number: int) -> bytes:
    """A SYN to 10.0.0.2:80 from an address and port that no other has."""
    ethernet = b"\x02" * 6 + b"\x04" * 6 + b"\x08\x00"
    source = struct.pack(">I", 0x0B000000 + number)
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 40, 1, 0, 64, 6, 0) + source + bytes((10, 0, 0, 2))
    tcp = struct.pack(">HHIIBBHHH", 1024 + number % 60_000, 80, number, 0, 0x50, 2, 1024, 0, 0)
    return ethernet + ip + tcp


def flood(rate: int) -> None:
    """Send at the rate for SECONDS, in bursts of a millisecond; of a rate of 0 nothing."""
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sender.bind((SENDER, 0))
    burst = max(1, rate // 1000)
    frames = [syn(number) for number in range(int(rate * SECONDS))]
    begun = time.monotonic()
    for place in range(0, len(frames), burst):
        due = begun + place / rate
        time.sleep(max(0.0, due - time.monotonic()))
        for frame in frames[place : place + burst]:
            sender.send(frame)


def received() -> int:
    """Packets that the captured interface has received (proc_net_dev(5))."""
    found = re.search(rf"{CAPTURED}:\s*\d+\s+(\d+)", Path("/proc/self/net/dev").read_text(encoding="ascii"))
    if found is None:
        raise SystemExit(f"the interface {CAPTURED} is gone: another program removed it; run this again")
    return int(found[1])


def peak_mb(pid: int) -> float:
    """The largest resident set so far."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(r"VmHWM:\s+(\d+) kB", text)
    return int(found[1]) / 1024 if found else 0.0


def tool(name: str) -> str:
    """Where a program is."""
    return shutil.which(name) or name


def kept_in(file: Path) -> int:
    """The packets of a file, by a reader that is none of the three."""
    text = subprocess.run([tool("capinfos"), "-M", "-c", str(file)], capture_output=True, text=True, check=True).stdout
    found = re.search(r"Number of packets\s*[:=]\s*(\d+)", text)
    if found is None:
        raise SystemExit(f"capinfos says nothing of packets: {text}")
    return int(found[1])


def measure(command: list[str], file: Path, rate: int) -> Seen:
    """One capture over one flood, after one over nothing."""
    idle = run(command, file, 0)
    return replace(run(command, file, rate), idle_cpu_s=idle.cpu_s)


def run(command: list[str], file: Path, rate: int) -> Seen:
    """One capture over a flood."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        # Each writes its file's header once it captures.
        while not file.exists():
            if time.monotonic() > deadline or process.poll() is not None:
                raise SystemExit(f"{command[0]} does not capture; try it by hand: {' '.join(command)}")
            time.sleep(0.05)
        time.sleep(SETTLE_S)
        passed = received()
        child = os.fork()
        if child == 0:
            try:
                flood(rate)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        # The sender has ended, and the capture has not: what is added from here on is the
        # capture's.
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        time.sleep(SETTLE_S)
        passed = received() - passed
        memory = peak_mb(process.pid)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=20)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    seen = Seen(kept=kept_in(file), passed=passed, cpu_s=cpu, memory_mb=memory)
    file.unlink()
    return seen


def main() -> None:
    """Measure each rate and print a table."""
    if os.environ.get("PLIMSOLL_BENCH_INSIDE") is None:
        lacking = [name for name in ("tcpdump", "dumpcap", "capinfos", "unshare", "ip") if shutil.which(name) is None]
        if lacking or os.geteuid() != 0:
            what = f"{', '.join(lacking)} (run `make peers`)" if lacking else "root"
            print(f"plimsoll capture beside tcpdump and dumpcap: not measured; it needs {what}")
            return
        inside = {**os.environ, "PLIMSOLL_BENCH_INSIDE": "1"}
        sys.exit(
            subprocess.run([tool("unshare"), "--net", sys.executable, *sys.argv], env=inside, check=False).returncode
        )
    for setup in (
        f"ip link add {SENDER} type veth peer name {CAPTURED}",
        f"ip link set {SENDER} up",
        f"ip link set {CAPTURED} up",
    ):
        subprocess.run(setup.split(), check=True)
    print("| SYNs/s | capture | kept | CPU us a packet | of plimsoll's | memory MB |")
    print("|---|---|---|---|---|---|")
    kept_rounds = []
    with tempfile.TemporaryDirectory() as folder:
        # dumpcap gives up its privileges, and has to write here all the same.
        Path(folder).chmod(0o777)
        for rate in RATES:
            rounds: list[dict[str, Seen]] = []
            for number in range(ROUNDS):
                order = list(commands(Path(folder) / "x.pcapng").items())
                seen = {
                    name: measure(command, Path(folder) / "x.pcapng", rate)
                    for name, command in (order if number % 2 == 0 else reversed(order))
                }
                rounds.append(seen)
            for name in rounds[0]:
                kept = min(each[name].kept / each[name].passed for each in rounds)
                cost = statistics.median(each[name].cpu_us_per_packet for each in rounds)
                ratio = statistics.median(
                    each[name].cpu_us_per_packet / each["plimsoll"].cpu_us_per_packet for each in rounds
                )
                memory = max(each[name].memory_mb for each in rounds)
                print(f"| {rate:,} | {name} | {kept:.2%} | {cost:.2f} | {ratio:.2f} | {memory:.0f} |", flush=True)
            figures = [{name: asdict(each) for name, each in seen.items()} for seen in rounds]
            kept_rounds.append({"syns_per_s": rate, "rounds": figures})
    record = {"command": "python bench/capture.py", "seconds": SECONDS, "rates": kept_rounds}
    RESULT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
