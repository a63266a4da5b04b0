"""The machine the lab runs on, as a host: its agent is in this process."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from plimsoll_lab.hosts.agent import Agent, ServedHost
from plimsoll_lab.hosts.host import Host


class LocalHost(Host):
    """The local host. A context: leaving it removes every trace of what was started."""

    def __init__(self) -> None:
        self.agent = Agent()
        """Its agent, which serves the namespaces of emulated networks too."""

    def __enter__(self) -> Self:
        self.agent.__enter__()
        super().__init__(self.agent, self.agent.add(ServedHost(name="local", addresses=("127.0.0.1",), interface="lo")))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.agent.__exit__(kind, error, trace)
