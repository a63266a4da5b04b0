"""Runs `plimsoll lab` as a process of its own, without the second that its imports take.

A process that has imported the laboratory forks for each command. The fork takes over the command's
folder, environment, arguments and output, and runs the package as `python -m` does. This file,
started as a program, is that process: its input is the socket that the commands come from.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

PACKAGE = "plimsoll_lab"
LIBRARIES = ("hdrh.histogram", "scipy.optimize", "scipy.special", "vl_convert")
"""What the laboratory imports only where it needs it. Without duckdb, which complains at its end of
objects that the collector was kept from.
"""
HANGS_S = 600
"""Against hanging: a command takes a few seconds."""
LONGEST = 100_000
"""Bytes of a command; most of them are its environment."""


def run_forked(
    folder: Path, arguments: Sequence[str], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a command of the laboratory in a folder to its end, and until nobody holds its output."""
    command = json.dumps({"folder": str(folder), "arguments": arguments, "environment": dict(environment)})
    readers, writers = zip(os.pipe(), os.pipe(), os.pipe(), strict=True)
    try:
        socket.send_fds(_forking_process(), [command.encode()], writers)
    finally:
        for end in writers:
            os.close(end)
    with ThreadPoolExecutor(len(readers)) as readings:
        out, err, code = readings.map(_read_all, readers)
    return subprocess.CompletedProcess(["plimsoll", "lab", *arguments], int(code), out, err)


def _read_all(end: int) -> str:
    with os.fdopen(end) as pipe:
        return pipe.read()


@functools.cache
def _forking_process() -> socket.socket:
    """Start the process that forks; it ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # A process that forks has one thread: so has a library that would compute with several.
    settings = {"PYTHONPATH": str(Path(__file__).parent.parent), "OPENBLAS_NUM_THREADS": "1"}
    with theirs:
        process = subprocess.Popen(
            [sys.executable, __file__], stdin=theirs.fileno(), stdout=subprocess.DEVNULL, env=os.environ | settings
        )

    def stop() -> None:
        ours.close()
        process.kill()
        process.wait()

    atexit.register(stop)
    return ours


def fork_for_each_command() -> None:
    """Serve commands until nobody can send one. A fork does not return from here: it becomes the
    laboratory, which ends by `SystemExit`.
    """
    del sys.path[0]  # the folder of this file
    for module in pkgutil.walk_packages(importlib.import_module(PACKAGE).__path__, f"{PACKAGE}."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)
    for name in LIBRARIES:
        importlib.import_module(name)
    gc.freeze()  # the collector of a fork looks at these modules neither as it runs nor at its end
    commands = socket.socket(fileno=os.dup(0))
    while True:
        command, received, _, _ = socket.recv_fds(commands, LONGEST, 3)
        if not command:
            return
        out, err, ended = received
        fork = os.fork()
        if fork == 0:
            commands.close()
            os.close(ended)
            _become(json.loads(command), out, err)
        os.close(out)
        os.close(err)
        _, status = os.waitpid(fork, 0)
        os.write(ended, str(os.waitstatus_to_exitcode(status)).encode())
        os.close(ended)


def _become(command: Mapping[str, Any], out: int, err: int) -> NoReturn:
    """Run the package in this process, as the command says."""
    for number, end in enumerate((os.open(os.devnull, os.O_RDONLY), out, err)):
        os.dup2(end, number)
        os.close(end)
    signal.alarm(HANGS_S)
    os.environ.clear()
    os.environ.update(command["environment"])
    time.tzset()
    os.chdir(command["folder"])
    sys.path.insert(0, command["folder"])
    sys.argv[1:] = command["arguments"]
    runpy.run_module(PACKAGE, run_name="__main__", alter_sys=True)
    sys.exit()


if __name__ == "__main__":
    fork_for_each_command()
