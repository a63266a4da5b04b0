"""The routes. Every page is made from the runs folder as it is at that moment; nothing is kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from plimsoll_lab.problem import LabError
from plimsoll_lab.store.folder import RunFolder, list_runs
from plimsoll_lab.web.follow import event_offset, follow
from plimsoll_lab.web.guard import REPORT_POLICY, Guard
from plimsoll_lab.web.pages import asset, comparison, history, live, problem, run_list

TYPES = {"live.js": "text/javascript", "page.css": "text/css", "web.css": "text/css"}
"""The files beside the pages."""


class Site:
    """The pages over one folder of runs."""

    def __init__(self, out: Path) -> None:
        self._out = out

    async def runs(self, request: Request) -> Response:
        """The list."""
        return HTMLResponse(await run_in_threadpool(run_list, self._out, dict(request.query_params)))

    async def run(self, request: Request) -> Response:
        """A run's own page; of a run under way, the live one."""
        folder = _folder(self._out, request.path_params["number"])
        report = folder.report
        if folder.is_locked() or not (report.exists() or report.is_symlink()):
            return RedirectResponse(f"/runs/{request.path_params['number']}/live")
        # A run may be a copy of somebody else's, and a link in it lead to any file of this machine.
        if report.is_symlink() or not report.is_file():
            raise LabError(
                f"{report} is not shown: it is a link or no file; 'plimsoll lab report {folder.path}' writes it anew"
            )
        return FileResponse(report, headers={"Content-Security-Policy": REPORT_POLICY})

    async def live(self, request: Request) -> Response:
        """A run under way."""
        return HTMLResponse(await run_in_threadpool(live, _folder(self._out, request.path_params["number"])))

    async def events(self, request: Request) -> Response:
        """The events of a run, from where the browser was cut off."""
        folder = _folder(self._out, request.path_params["number"])
        offset = event_offset(folder, request.headers.get("last-event-id", ""))
        return StreamingResponse(follow(folder, offset), media_type="text/event-stream")

    async def compare(self, request: Request) -> Response:
        """Runs of B beside runs of A."""
        sides = [_chosen(self._out, request.query_params.getlist(side)) for side in ("a", "b")]
        return HTMLResponse(await run_in_threadpool(comparison, *sides))

    async def history(self, request: Request) -> Response:
        """The runs of a suite over time."""
        return HTMLResponse(await run_in_threadpool(history, self._out, request.query_params.get("suite", "")))


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in TYPES:
        raise LabError(f"there is no {name} here")
    return Response(asset(name), media_type=TYPES[name])


async def _refused(_: Request, error: Exception) -> Response:
    return HTMLResponse(problem(str(error)), status_code=404)


def application(out: Path, hosts: frozenset[str]) -> Starlette:
    """The application over a folder of runs, for these values of `Host`."""
    site = Site(out)
    return Starlette(
        routes=[
            Route("/", site.runs),
            Route("/runs/{number}", site.run),
            Route("/runs/{number}/live", site.live),
            Route("/runs/{number}/events", site.events),
            Route("/compare", site.compare),
            Route("/history", site.history),
            Route("/static/{name}", _static),
        ],
        middleware=[Middleware(Guard, hosts=hosts)],
        exception_handlers={LabError: _refused},
    )


def _folder(out: Path, number: str) -> RunFolder:
    """A run by its number: a path of the address never becomes a path of the disk."""
    for folder in list_runs(out):
        if number.isascii() and folder.path.name.lstrip("0") == number.lstrip("0"):
            return folder
    raise LabError(f"there is no run {number} in {out}")


def _chosen(out: Path, texts: Sequence[str]) -> list[RunFolder]:
    """Runs by numbers, each alone or several with commas."""
    words = [word.strip() for text in texts for word in text.split(",") if word.strip()]
    if not words or not all(word.isascii() and word.isdigit() for word in words):
        raise LabError("name the runs of both sides by their numbers: /compare?a=1&b=2")
    folders = {folder.path: folder for folder in (_folder(out, word) for word in words)}
    return list(folders.values())
