"""Answers only the person at this machine: names in `Host`, pages in `Origin`, and reading alone.

A page from elsewhere may make a browser ask a loopback address. Its own name is in `Host` then (DNS
rebinding), or its address in `Origin` and `Sec-Fetch-Site` (Fetch Metadata, W3C).
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HTTP_PORT = 80
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; img-src data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
REPORT_POLICY = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data: blob:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
"""A report may be of a run that was copied from somebody else. In the sandbox its scripts do not
have the origin of these pages, so they can read no other run (HTML Living Standard, 7.1.5), and
they may ask for nothing. Our own reports draw charts and offer files; the policy within them also
names the hashes of their scripts."""


def allowed_hosts(names: Sequence[str], port: int) -> frozenset[str]:
    """The values of `Host` that are answered; browsers leave the usual port out (RFC 9110, 7.2)."""
    every = [name.lower() for name in (*LOOPBACK, *names)]
    return frozenset([*(f"{name}:{port}" for name in every), *(every if port == HTTP_PORT else ())])


class Guard:
    """Refuses whatever is not asked by a page of our own, and sets the headers of every answer."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refused = refusal(str(scope["method"]), Headers(scope=scope), self._hosts)
        if refused is not None:
            code, text = refused
            await PlainTextResponse(text + "\n", status_code=code)(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("Content-Security-Policy", POLICY)
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "same-origin"
                headers["Cross-Origin-Resource-Policy"] = "same-origin"
                headers["Cache-Control"] = "no-store"
            await send(message)

        await self._app(scope, receive, guarded)


def refusal(method: str, headers: Headers, hosts: frozenset[str]) -> tuple[int, str] | None:
    """Why a request is refused, as a status code and a sentence; None where it is answered."""
    if method not in {"GET", "HEAD"}:
        return 405, "this page only reads: use GET"
    if headers.get("host", "").lower() not in hosts:
        return 421, "this host name is not answered: use the address that lab serve printed, or --allow-host NAME"
    origin = headers.get("origin")
    if origin is not None and origin.lower() not in {f"http://{host}" for host in hosts}:
        return 403, "a page of another origin may not read this one"
    if headers.get("sec-fetch-site") in {"cross-site", "same-site"} and headers.get("sec-fetch-mode") != "navigate":
        return 403, "a page of another site may not read this one"
    return None
