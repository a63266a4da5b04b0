"""What runs on a Ray node: an actor that hands messages to an agent in a process of its own, and
answers back.

An actor has many threads, among which an agent cannot fork safely. When the actor ends, however it
ends, the agent's input ends, and with it every process the agent has started.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys

from plimsoll_lab.hosts.agent_process import Frames, frame

HIDDEN = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
"""What a server under test must not find in its environment."""


class AgentActor:
    """One host of a cluster."""

    def __init__(self, name: str, address: str) -> None:
        self._name, self._address = name, address
        self._agent: asyncio.subprocess.Process | None = None
        self._next = 1
        self._early: dict[int, object] = {}
        """Messages by their numbers, until those before them have come."""
        self._asked: dict[int, asyncio.Future[tuple[object, object]]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._ended: str | None = None
        """How the agent ended; None while it runs."""

    async def ping(self) -> None:
        """Show that this host is there."""

    async def ask(self, number: int, message: object) -> tuple[object, object]:
        """Hand on a message, in the order of the numbers, which count from 1; the answer and the
        error, one of which is None. Raises `RuntimeError` where the agent has ended.

        Ray runs the calls of an actor like this one in any order.
        """
        if self._agent is None or self._agent.stdin is None:
            raise AssertionError("the agent has been started")
        if self._ended is not None:
            raise RuntimeError(self._ended)
        answer: asyncio.Future[tuple[object, object]] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        self._early[number] = message
        while self._next in self._early:
            self._agent.stdin.write(frame((self._next, self._early.pop(self._next))))
            self._next += 1
        return await answer

    async def close(self) -> None:
        """End the agent, and with it whatever it has started."""
        if self._agent is not None and self._agent.stdin is not None:
            self._agent.stdin.close()
            await self._agent.wait()

    async def open(self) -> None:
        """Start the agent, before the first message."""
        command = [sys.executable, "-m", "plimsoll_lab.hosts.agent_process", self._name, self._address]
        self._agent = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            env={name: value for name, value in os.environ.items() if name not in HIDDEN},
        )
        self._reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        if self._agent is None or self._agent.stdout is None:
            raise AssertionError("the agent has been started")
        frames = Frames()
        while read := await self._agent.stdout.read(1 << 16):
            for number, answer, error in frames.take(read):
                asked = self._asked.pop(number, None)
                if asked is not None and not asked.done():
                    asked.set_result((answer, error))
        self._ended = f"its agent ended with exit code {await self._agent.wait()}"
        for asked in self._asked.values():
            with contextlib.suppress(asyncio.InvalidStateError):
                asked.set_exception(RuntimeError(self._ended))
        self._asked.clear()
