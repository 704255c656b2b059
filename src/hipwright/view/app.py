"""The routes of `hipwright view`, each a page rendered from records, and its static files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from hipwright import __version__
from hipwright.errors import BadInput, HipwrightError
from hipwright.report import html
from hipwright.view import live
from hipwright.view.access import Guard
from hipwright.view.compare_page import compare_page
from hipwright.view.live import Watched
from hipwright.view.program_page import program_page
from hipwright.view.reader import ArchiveReader
from hipwright.view.results import ResultFolders
from hipwright.view.results_pages import compare_results, result_page, results_page
from hipwright.view.run_page import RunChoices, run_page
from hipwright.view.runs_page import runs_page
from hipwright.view.start_page import StartPages
from hipwright.view.starting import Starter

STATIC = {"view.js": "text/javascript", "theme.js": "text/javascript", "view.css": "text/css"}


def view_app(
    reader: ArchiveReader,
    folders: ResultFolders | None = None,
    *,
    token: str = "",
    starter: Starter | None = None,
    closing: Callable[[], bool] = lambda: False,
) -> Starlette:
    """The application over one archive, and folders of results beside it.

    token: what a request must have, "" for none; starter: starts searches, None: the application only reads; closing:
    ends open streams.
    """
    csrf = starter.secret if starter is not None else ""
    pages = Pages(reader, folders or ResultFolders(), closing, csrf)
    routes = [
        Route("/", pages.runs),
        Route("/events", pages.archive_events),
        Route("/runs/{run}", pages.run),
        Route("/runs/{run}/events", pages.run_events),
        Route("/runs/{run}/programs/{number:int}", pages.program),
        Route("/compare", pages.compare),
        Route("/results", pages.results),
        Route("/results/compare", pages.compare_results),
        Route("/results/{key}", pages.result),
        Route("/results/{key}/events", pages.result_events),
        Route("/static/{name}", static),
    ]
    if starter is not None:
        routes += StartPages(
            starter, lambda name, values, status: page(name, values, reader, status, csrf), closing
        ).routes()
    guard = Middleware(Guard, token=token, starts=starter is not None)
    return Starlette(routes=routes, middleware=[guard], exception_handlers={HipwrightError: failed, 404: missing})


class Pages:
    """The endpoints. Those that render are plain functions: Starlette runs them in threads."""

    def __init__(
        self, reader: ArchiveReader, folders: ResultFolders, closing: Callable[[], bool], csrf: str = ""
    ) -> None:
        self.reader = reader
        self.csrf = csrf
        self.folders = folders
        self.closing = closing

    def shown(self, name: str, values: Mapping[str, Any], status: int = 200) -> Response:
        """A page of this server from its template."""
        return page(name, values, self.reader, status, self.csrf)

    def runs(self, request: Request) -> Response:
        """All runs."""
        return self.shown("runs", runs_page(self.reader, request.query_params))

    def run(self, request: Request) -> Response:
        """One run."""
        run = self.reader.run(request.path_params["run"])
        return page(
            "run", run_page(self.reader, run, RunChoices.read(request.query_params)), self.reader, csrf=self.csrf
        )

    def program(self, request: Request) -> Response:
        """One program of a run."""
        run = self.reader.run(request.path_params["run"])
        return page(
            "program", program_page(self.reader, run, request.path_params["number"]), self.reader, csrf=self.csrf
        )

    def compare(self, request: Request) -> Response:
        """Two runs or programs."""
        return self.shown("compare", compare_page(self.reader, request.query_params))

    def results(self, request: Request) -> Response:
        """The folders of results."""
        return self.shown("results", results_page(self.folders))

    def result(self, request: Request) -> Response:
        """One folder of results."""
        return self.shown(*result_page(self.folders, request.path_params["key"]))

    def compare_results(self, request: Request) -> Response:
        """Two folders of results."""
        return self.shown(*compare_results(self.folders, request.query_params))

    def result_events(self, request: Request) -> Response:
        """Tells the page of a folder of results that there is something new."""
        key = self.folders.get(request.path_params["key"]).key
        return live.stream(Watched(lambda: self.folders.state(key), lambda: 0, self.closing))

    def run_events(self, request: Request) -> Response:
        """Tells a run's page that there is something new."""
        run = self.reader.run(request.path_params["run"]).id
        return live.stream(Watched(lambda: self.reader.state(run), self.reader.archive.changes, self.closing))

    def archive_events(self, request: Request) -> Response:
        """Tells the list of runs that there is something new."""
        return live.stream(Watched(self.reader.archive_state, self.reader.archive.changes, self.closing))


def page(
    name: str, values: Mapping[str, Any], reader: ArchiveReader | None, status: int = 200, csrf: str = ""
) -> Response:
    """A page from its template. csrf: the secret of forms that start searches, "" where none may."""
    shared = {"version": __version__, "home": reader.archive.place if reader else "", "csrf": csrf}
    text = html.environment("hipwright.view").get_template(f"{name}.html.j2").render({**values, **shared})
    return HTMLResponse(text, status, {"cache-control": "no-store"})


def compile_templates() -> None:
    """Compiles every template, so that the first page is as fast as the next."""
    env = html.environment("hipwright.view")
    for name in env.list_templates(extensions=("j2",)):
        env.get_template(name)


def failed(request: Request, error: Exception) -> Response:
    """An error of ours as a page: what does not exist is 404, a damaged archive 500."""
    assert isinstance(error, HipwrightError)
    status = 404 if isinstance(error, BadInput) else 500
    return page("error", {"message": error.message, "hint": error.hint}, None, status)


def missing(request: Request, error: Exception) -> Response:
    """An address that is none of ours."""
    return page("error", {"message": "There is no such page.", "hint": ""}, None, 404)


async def static(request: Request) -> Response:
    """A script or style of the application."""
    name = request.path_params["name"]
    if name not in STATIC:
        return missing(request, BadInput(name))
    return Response(_content(name), media_type=STATIC[name], headers={"cache-control": "no-cache"})


@cache
def _content(name: str) -> str:
    text = (files("hipwright.view") / "static" / name).read_text(encoding="utf-8")
    if name != "view.css":
        return text
    base = (files("hipwright.report") / "templates" / "style.css").read_text(encoding="utf-8")
    return f"{base}\n{html.themed_code_css()}\n{text}"
