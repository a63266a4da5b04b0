"""Many relayed connections in one forwarder command: the response time they get together, and what
memory each takes.

Server, forwarder and generator share the machine. Every connection is up before the first request;
then all together offer requests at a rate (open loop, so that nothing waits unseen). It exits with
1 where a connection or request fails, or where the 99th percentile is over what was asked for.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from harness import BUILD, PLIMSOLL, Contender, run_load, serving
from scale import cpu_seconds, resident_bytes


def main() -> None:
    """Measures each number of connections that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loads", default="60000,250000,500000", help="connections, comma-separated")
    parser.add_argument("--rate", type=int, default=12_000, help="requests a second, of all together")
    parser.add_argument("--size", default="255B")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--p99", type=float, default=20.0, help="milliseconds that may not be exceeded")
    options = parser.parse_args()
    points, missed = [], False
    for connections in map(int, options.loads.split(",")):
        server = Contender(name="echo", command=(PLIMSOLL, "serve", "echo", "--listen", "127.0.0.1:{port}", "--quiet"))
        with serving(server) as behind:
            mapping = f"127.0.0.1:{{port}}=127.0.0.1:{behind.port}"
            command = (PLIMSOLL, "forward", mapping, "--drain", "1s", "--quiet")
            with serving(Contender(name="forward", command=command)) as forwarder:
                pid, began = forwarder.process.pid, time.monotonic()
                before = resident_bytes(pid)
                shape = (
                    f"-c {connections} --barrier -R {options.rate} -s {options.size} -d {options.seconds}s --warm-up 3s"
                )
                summary = run_load(["echo", f"127.0.0.1:{forwarder.port}", *shape.split(), "--timeout", "5m"])
                took = time.monotonic() - began
                point = {
                    "connections": connections,
                    "established": summary["connections"]["established"],
                    "seconds_in_all": round(took, 1),
                    "offered_rate": round(summary["offered_rate"]),
                    "completed": summary["requests"]["completed"],
                    "not_completed": summary["requests"]["scheduled"] - summary["requests"]["completed"],
                    "failed": summary["requests"]["failed"] + summary["requests"]["timed_out"],
                    "response_time_ms": {
                        name: round(summary["response_time_us"][name] / 1000, 3)
                        for name in ("p50", "p90", "p99", "max")
                    },
                    "forwarder_bytes_a_connection": round((resident_bytes(pid) - before) / connections),
                    "forwarder_cpu_s": round(cpu_seconds(pid), 2),
                    "warnings": [warning["code"] for warning in summary["warnings"]],
                }
        print(json.dumps(point), flush=True)
        points.append(point)
        whole = point["established"] == connections and point["failed"] == 0
        missed |= not whole or summary["response_time_us"]["p99"] > options.p99 * 1000
    BUILD.mkdir(parents=True, exist_ok=True)
    path: Path = BUILD / "relayed.json"
    path.write_text(json.dumps(points, indent=1) + "\n")
    sys.exit(int(missed))


if __name__ == "__main__":
    main()
