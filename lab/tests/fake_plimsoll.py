"""A stand-in for the binary: the same arguments, events and exit codes, with a server that really
listens.

It measures nothing: its figures are drawn around a constant for each model. What it is honest about
is the contract: a ready line, window events as they happen, a summary, and totals on SIGTERM. The
environment variable FAKE selects a misfortune: `server_dies`, `never_ready`, `generator_limited`,
`no_summary`, `doubtful_figure`, `hang`, `hangs_when_marked` (from when the file MARK exists),
`server_killed`, `load_killed`, `load_incomplete`, `server_incomplete`.
FAKE_WINDOW_S is the length of every window, whatever the arguments say.
"""

import json
import os
import random
import signal
import socket
import sys
import time

CPU_US = {"threads": 12.0, "fork": 16.0, "select": 9.0, "poll": 8.0, "epoll": 5.2, "epoll-et": 5.3, "uring": 4.9}
FAKE = os.environ.get("FAKE", "")
FULL = "incomplete: No space left on device (os error 28); make room on its disk, or name a file on another one"
HELD_UP_S = 60.0
"""By how much the end of a window is said to be later than it is: a lab that a busy machine holds
up has read its opening by then."""
WINDOW_S = float(os.environ.get("FAKE_WINDOW_S", "0.02"))


def say(**event: object) -> None:
    print(json.dumps(event), flush=True)


def flag(name: str, default: str = "") -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def serve() -> None:
    listener = socket.create_server(("127.0.0.1", int(flag("--port", "0"))), backlog=4096)
    port = listener.getsockname()[1]
    model = flag("--model", "epoll")
    refused = held = 0
    if FAKE == "server_dies":
        print("something broke", file=sys.stderr, flush=True)
        sys.exit(3)
    if FAKE == "server_killed":
        os.kill(os.getpid(), signal.SIGKILL)
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    if FAKE != "never_ready":
        say(event="ready", addresses=[f"127.0.0.1:{port}"], protocol="echo", model=model, workers=1, pid=os.getpid())
    listener.settimeout(0.01)
    while not stopped:
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        wanted = int(connection.recv(64) or b"0")
        refused = max(0, wanted - 1000) if model == "select" else 0
        held = wanted - refused
        connection.sendall(f"{model} {held}\n".encode())
        connection.close()
    errors = {"fd_setsize": refused, "emfile": 0, "spawn": 0}
    if FAKE == "server_incomplete":
        errors["connection_log"] = 3
        print(f"plimsoll: the connection log /full/server.csv is {FULL}", file=sys.stderr, flush=True)
    say(
        event="summary",
        peak_connections=held,
        connections=held,
        requests=1,
        bytes_received=1,
        bytes_sent=1,
        refused=refused,
        errors=errors,
    )


def load() -> None:
    if "--rate" in sys.argv and "--think" in sys.argv:
        print("error: --rate cannot be used with --think", file=sys.stderr, flush=True)
        sys.exit(2)
    if "--start-at" in sys.argv and float(flag("--start-at")) <= time.time():
        print("error: --start-at: that instant has passed", file=sys.stderr, flush=True)
        sys.exit(2)
    host, _, port = sys.argv[3].removeprefix("http://").partition("/")[0].rpartition(":")
    connections = int(flag("--connections", "64"))
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(str(connections).encode())
        model, established = connection.makefile().readline().split()
    marked = FAKE == "hangs_when_marked" and os.path.exists(os.environ["MARK"])  # noqa: PTH110 - pathlib loads in 3 ms
    if FAKE == "hang" or marked:
        time.sleep(600)
    say(event="window_opened", unix_s=time.time())
    time.sleep(WINDOW_S)
    holds = {"holds_s": 5.0} if "--await-end" in sys.argv else {}
    say(event="window_closed", unix_s=time.time() + HELD_UP_S, **holds)
    if FAKE == "load_killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if FAKE == "no_summary":
        print("error: it fell over", file=sys.stderr, flush=True)
        sys.exit(1)
    luck = random.Random(os.getpid()).gauss
    # Within 0.8 %: what tests say no noise can do must not happen once in a hundred times.
    rate = 20 * connections * max(0.992, min(1.008, luck(1.0, 0.004)))
    p50 = 30 * CPU_US[model] * luck(1.0, 0.02)
    times = {"count": 100, "min": p50 / 2, "mean": p50, "stdev": 1.0, "max": p50 * 9}
    times |= {f"p{q}": p50 * f for q, f in (("50", 1), ("75", 1.5), ("90", 2), ("99", 4), ("99_9", 6), ("99_99", 8))}
    limited = FAKE == "generator_limited"
    warning = {"code": "generator_limited", "message": "its busiest thread used 1.00 cores", "remedy": "--threads 2"}
    say(
        event="summary", schema_version=2, valid=not limited, warnings=[warning] if limited else [],
        elapsed_s=0.02, completed_rate=rate, goodput_bits_per_s=rate * 512, failed_ratio=0.0,
        requests={"scheduled": 100, "completed": 100, "failed": 0, "timed_out": 0, "in_flight": 0, "unsent": 0},
        errors={}, connections={"requested": connections, "established": int(established), "failed": 0},
        statuses={"200": 100} if sys.argv[2] == "http" else {},
        doubted=["response_time_us.p99_99"] if FAKE == "doubtful_figure" else [],
        establishment_time_us=times, response_time_us=times,
        generator={"cpu_cores": 0.3, "cpu_us_per_request": 6.0, "busiest_thread_cpu_cores": 0.2, "threads": 2},
    )  # fmt: skip
    if FAKE == "load_incomplete":
        print(f"plimsoll: the record {flag('--timeseries')} is {FULL}", file=sys.stderr, flush=True)
        sys.exit(1)
    sys.exit(4 if limited else 0 if int(established) == connections else 1)


if __name__ == "__main__":
    if sys.argv[1] == "--version":
        print("plimsoll 0.0.0-fake")
    elif sys.argv[1] == "serve":
        serve()
    elif sys.argv[1] == "load":
        load()
    else:
        sys.exit(2)
