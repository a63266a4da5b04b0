"""How long the port forwarder takes to reload a table of 10,000 rules, from SIGHUP to the sentence
that it is done.

Once where every listener stays and leads elsewhere, and once where half of them move to another
address. Connections are taken all the while (the tests see to that); this is the time until new
ones go by the new table.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from harness import BUILD, PLIMSOLL, BenchError

PORTS = 1000
"""At each address: below the range that the kernel takes ports from (ip_local_port_range)."""


def table(rules: int, moved_to: int, port: int) -> str:
    """Rules of which the first half is at addresses that `moved_to` decides, and all lead to
    `port`.
    """
    lines = ["[forward]"]
    for number in range(rules):
        host = moved_to if number < rules // 2 else 130
        lines.append(f'"127.{host}.{1 + number // PORTS}.1:{20_000 + number % PORTS}" = "127.0.0.1:{port}"')
    return "\n".join(lines) + "\n"


def main() -> None:
    """Reloads both ways, round by round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    took: dict[str, list[float]] = {"kept": [], "half of it moved": []}
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "forward.toml"
        config.write_text(table(options.rules, 130, 9))
        command = [PLIMSOLL, "forward", "--config", str(config), "--workers", str(options.workers), "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            if not process.stdout.readline():
                raise BenchError(f"it did not start: {process.stderr.read()[-500:]}")

            def reload(name: str, text: str) -> None:
                """Replaces the table and times what follows."""
                config.write_text(text)
                began = time.monotonic()
                process.send_signal(signal.SIGHUP)
                said = process.stderr.readline() if process.stderr else ""
                took[name].append(time.monotonic() - began)
                if "the table is reloaded" not in said:
                    raise BenchError(said)

            for number in range(options.rounds):
                reload("kept", table(options.rules, 130, 10 + number % 2))
                reload("half of it moved", table(options.rules, 131, 10))
                reload("half of it moved", table(options.rules, 130, 10))
            process.terminate()
            process.communicate()
    for name, seconds in took.items():
        print(
            f"reload of {options.rules} rules, {name}: {statistics.median(seconds):.3f} s"
            f" ({min(seconds):.3f} to {max(seconds):.3f}, {len(seconds)} rounds)"
        )
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / "reload.json").write_text(json.dumps({"rules": options.rules, "seconds": took}, indent=1) + "\n")


if __name__ == "__main__":
    main()
