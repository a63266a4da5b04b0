"""A server that got a tenth slower has to be caught, and one that did not has to be left alone.

A tenth of what a request costs our own server is measured first, and then burnt for each reply
(`--work`). Asked of twenty repetitions in three ways:

    within a run the slowed server beside itself, in the same blocks must be told: better
    a gate the same with a baseline and a tolerance of 2 % must find a loss
    A/A the same server under two names, in the same blocks must not be told: better

Written to target/bench/slowdown.json. Takes about three minutes. Exit 1 when one of the three is
wrong.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from harness import BUILD, ROOT, lab

REPEAT = 20
SLOWER = 0.10
SUITE = """
name     = "slowdown"
question = "Is {question} slower?"

[server]
workers = 1

[load]
connections = 64
duration = "500ms"

{matrix}
[run]
repeat = {repeat}
warm_up = "200ms"
seed = 8

[verdict]
figures = ["completed_rate", "server.cpu_us_per_request", "response_time_us.p50"]
margin = "2%"
{verdict}
"""


def main() -> int:
    """Measure, ask, and say what was told."""
    BUILD.mkdir(parents=True, exist_ok=True)
    cost_us = cost_of_a_request_us()
    work = f"{SLOWER * cost_us:.2f}us"
    print(f"a request costs the server {cost_us:.2f} us of CPU; {work} more is a tenth", flush=True)
    beside = run("a server that burns a tenth more", f'[matrix]\n"server.work" = ["0us", "{work}"]\n')
    # The grace at its end has no part in a measurement: one server under two names.
    alike = run("the same server", '[matrix]\n"server.drain" = ["5s", "5000ms"]\n')
    gated = f'[contender.old]\nwork = "0us"\n[contender.new]\nwork = "{work}"\n'
    gate = run("the new server", gated, verdict='baseline = "old"\ntolerance = "2%"')["gate"]
    found: dict[str, Any] = {
        "request_cost_us": cost_us,
        "work": work,
        "within_a_run": told(beside),
        "gate": gate,
        "a_a": told(alike),
    }
    right = {
        "within a run": any(each["call"] == "better" and each["winner"] == "0us" for each in found["within_a_run"]),
        "a gate": gate["outcome"] == "worse",
        "A/A": not any(each["call"] == "better" for each in found["a_a"]),
    }
    print(f"a gate: {'right' if right['a gate'] else 'WRONG'}: {gate['text']}")
    for name, asked in (("within a run", "within_a_run"), ("A/A", "a_a")):
        print(f"{name}: {'right' if right[name] else 'WRONG'}")
        for each in found[asked]:
            print(
                f"  {each['figure']:<28} {each['winner']!s:<8} {each['ratio']:.3f} {each['ratio_ci95']} {each['call']}"
            )
    (BUILD / "slowdown.json").write_text(json.dumps(found | {"right": right}, indent=1) + "\n")
    return 0 if all(right.values()) else 1


def cost_of_a_request_us() -> float:
    """CPU of the server for one request, the median of a few trials."""
    (point,) = run("this server", repeat=5)["points"]
    return float(point["figures"]["server.cpu_us_per_request"]["median"])


def run(question: str, matrix: str = "", *, repeat: int = REPEAT, verdict: str = "") -> dict[str, Any]:
    """One run's summary."""
    suite = BUILD / "slowdown.toml"
    suite.write_text(SUITE.format(question=question, matrix=matrix, repeat=repeat, verdict=verdict))
    done = lab("run", str(suite.relative_to(ROOT)))
    if not done.stdout:
        sys.exit(f"the run failed: {done.stderr}")
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return summary


def told(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """The verdicts, without what is not needed to judge them."""
    keys = ("figure", "winner", "ratio", "ratio_ci95", "p_adjusted", "noise_floor", "call", "reason")
    return [{key: each[key] for key in keys} for each in summary["verdicts"]]


if __name__ == "__main__":
    sys.exit(main())
