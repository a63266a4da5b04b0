"""Ways past one descriptor table: what handing a connection over costs, and what a process for each
table would weigh.

Our event loops accept in the table that will hold the connection, so nothing is handed over. The
way measured beside it sends each descriptor to a thread with a table of its own (SCM_RIGHTS).
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

from echo import ours
from harness import Contender, compare, compiled, save, serving

TABLES_FOR_A_MILLION = 51
"""At 20,000 descriptors each."""


def proportional_bytes(pid: int) -> int:
    """Memory of a process without counting shared pages twice (proc_pid_smaps(5), Pss)."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no Pss in smaps_rollup")


def main() -> None:
    """Measures the hand-over, and weighs an idle process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--connections", type=int, default=20_000)
    options = parser.parse_args()
    program = compiled("pass_descriptor.c")

    def cost(way: Contender) -> float:
        done = subprocess.run([*way.command, str(options.connections)], check=True, capture_output=True, text=True)
        return float(done.stdout) / 1e6

    keep = Contender(name="kept where accepted", command=("taskset", "-c", "0", program, "keep"))
    give = Contender(name="passed by SCM_RIGHTS", command=("taskset", "-c", "0", program, "pass"))
    again = Contender(name="kept again", command=keep.command)
    rows = [
        compare(f"a connection: {a.name} / {keep.name}", "CPU us a connection", a, keep, cost, rounds=options.rounds)
        for a in (again, give)
    ]
    save("tables", rows)
    with serving(ours("epoll")) as server:
        weight = proportional_bytes(server.process.pid)
    print(f"an idle server process weighs {weight / 1e6:.1f} MB; a million connections need {TABLES_FOR_A_MILLION}:")
    print(f"{weight * TABLES_FOR_A_MILLION / 1e6:.0f} bytes a connection before any is served")


if __name__ == "__main__":
    main()
