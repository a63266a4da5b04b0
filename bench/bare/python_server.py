"""Python's own file server, keeping connections open and its log to itself: python_server.py PORT
FOLDER.

In a folder of its own, for a script's folder comes first in the search for modules, and here none
is called `http`.
"""

from __future__ import annotations

import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer


class Quiet(SimpleHTTPRequestHandler):
    """Answers over HTTP/1.1."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base class
        """Say nothing."""


class Backlogged(ThreadingHTTPServer):
    """A thread a connection, with room for all of them to arrive at once."""

    request_queue_size = 1024
    daemon_threads = True


if __name__ == "__main__":
    Backlogged(("127.0.0.1", int(sys.argv[1])), partial(Quiet, directory=sys.argv[2])).serve_forever()
