"""The actor on a Ray node, without Ray: its calls may run in another order than they were made."""

from __future__ import annotations

import asyncio
import sys

import pytest

from plimsoll_lab.hosts.messages import ReadClock, Report, Start, Started, Stop
from plimsoll_lab.hosts.ray_actor import AgentActor


async def overtaken() -> tuple[tuple[object, object], tuple[object, object]]:
    """A process is started, and stopped by a call that comes first."""
    actor = AgentActor("h1", "127.0.0.1")
    await actor.open()
    try:
        argv = (sys.executable, "-c", "import time; time.sleep(600)")
        start = Start(place=1, argv=argv, role="a", metered=False, deadline_s=None, takes_lines=False, cpus=())
        # Place 1 is this machine, so the process is number 2.
        stopped = asyncio.ensure_future(actor.ask(2, Stop(process=2, grace_s=60.0)))
        await asyncio.sleep(0)
        started = asyncio.ensure_future(actor.ask(1, start))
        return await asyncio.wait_for(started, 120), await asyncio.wait_for(stopped, 120)
    finally:
        await actor.close()


def test_a_message_that_comes_before_an_earlier_one_waits_for_it() -> None:
    (started, no_start_error), (stopped, no_stop_error) = asyncio.run(overtaken())
    assert (no_start_error, no_stop_error) == (None, None)
    assert isinstance(started, Started)
    assert started.process == 2
    assert isinstance(stopped, Report)
    assert stopped.exit_code == -15


async def asked_after_the_end() -> None:
    """The agent ends between two messages."""
    actor = AgentActor("h1", "127.0.0.1")
    await actor.open()
    try:
        await asyncio.wait_for(actor.ask(1, ReadClock()), 120)
        assert actor._agent is not None
        assert actor._reading is not None
        actor._agent.kill()
        await asyncio.wait_for(actor._reading, 120)
        await asyncio.wait_for(actor.ask(2, ReadClock()), 20)
    finally:
        await actor.close()


def test_a_message_after_the_agents_end_is_told_of_it_at_once() -> None:
    """It waited until the connection gave up, two minutes later."""
    with pytest.raises(RuntimeError, match="its agent ended with exit code -9"):
        asyncio.run(asked_after_the_end())
