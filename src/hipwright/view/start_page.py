"""The page that starts a search, and the endpoints behind it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from hipwright.errors import BadInput
from hipwright.view import live
from hipwright.view.live import Watched
from hipwright.view.starting import MOST_BUDGET, Starter

FORM_BYTES = 8192
Page = Callable[[str, Mapping[str, Any], int], Response]


class StartPages:
    """The endpoints of `--allow-start`. page: renders a template with values, with a status."""

    def __init__(self, starter: Starter, page: Page, closing: Callable[[], bool]) -> None:
        self.starter, self.page, self.closing = starter, page, closing

    def routes(self) -> list[Route]:
        """The routes of the page."""
        return [
            Route("/start", self.start, methods=["GET", "POST"]),
            Route("/start/events", self.events),
            Route("/start/{number:int}/stop", self.stop, methods=["POST"]),
        ]

    async def start(self, request: Request) -> Response:
        """The form, and what was started; or starts a search."""
        if request.method != "POST":
            return self._shown({})
        form = await self._form(request)
        if isinstance(form, Response):
            return form
        try:
            self.starter.start(form)
        except BadInput as error:
            return self._shown(form, f"{error.message}. {error.hint}".strip(), 422)
        return RedirectResponse("/start", 303)

    async def stop(self, request: Request) -> Response:
        """Ends a search."""
        form = await self._form(request)
        if isinstance(form, Response):
            return form
        self.starter.stop(request.path_params["number"])
        return RedirectResponse("/start", 303)

    def events(self, request: Request) -> Response:
        """Tells the page that a search is further."""
        return live.stream(Watched(self.starter.state, lambda: 0, self.closing))

    def _shown(self, form: Mapping[str, str], wrong: str = "", status: int = 200) -> Response:
        values = {
            "tasks": self.starter.tasks(),
            "root": str(self.starter.root),
            "started": self.starter.started,
            "state": json.dumps(self.starter.state()),
            "form": {name: form.get(name, "") for name in ("task", "targets", "budget", "seed")},
            "wrong": wrong,
            "most": MOST_BUDGET,
        }
        return self.page("start", values, status)

    async def _form(self, request: Request) -> dict[str, str] | Response:
        """The fields of a form of this server's own page; a refusal of any other."""
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > FORM_BYTES:
                return PlainTextResponse("the form is too long\n", 413)
        form = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        if not self.starter.is_secret(form.get("csrf", "")):
            return PlainTextResponse("this form is not of a page of this server: load it again\n", 403)
        return form
