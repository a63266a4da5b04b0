"""The smallest ASGI application: every request gets a short text (asgi.readthedocs.io, HTTP
specification).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

BODY = b"Hello, world\n"
HEADERS = [(b"content-type", b"text/plain"), (b"content-length", str(len(BODY)).encode())]


async def app(
    scope: Mapping[str, object],
    receive: Callable[[], Awaitable[Mapping[str, object]]],
    send: Callable[[Mapping[str, object]], Awaitable[None]],
) -> None:
    """Answer one request; other kinds of scope get no answer."""
    if scope["type"] != "http":
        return
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})
