"""Who may ask, and the headers of every answer.

Without a token only this machine's own names are accepted as Host, so that a page of another site cannot read the
archive through a name that it points here (DNS rebinding). With one, a request has it as a bearer token, as the
`token` of its address (which is moved into a cookie at once), or as that cookie.
"""

from __future__ import annotations

import hmac
import logging
import re
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOG = logging.getLogger(__name__)
COOKIE = "hipwright_view"
START = re.compile(r"/start(?:/\d+/stop)?")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """An ASGI application that answers only those who may read, and only GET and HEAD.

    starts: forms of START are taken too, of this server's own pages alone, and of no other name than this machine's.
    """

    def __init__(self, app: ASGIApp, token: str = "", starts: bool = False) -> None:
        self.app = app
        self.token = token
        self.starts = starts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one connection."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                MutableHeaders(scope=message).update(HEADERS)
                if self.starts:  # without a referrer a browser names no origin of its own forms
                    MutableHeaders(scope=message)["referrer-policy"] = "same-origin"
            await send(message)

        refused = self._refusal(scope)
        try:
            await (refused or self.app)(scope, receive, send_with_headers)
        except Exception as error:  # what lies in an archive or a folder may be of any form
            if started:
                raise
            why = f"{type(error).__name__}: {error}"[:500]
            LOG.error("%s cannot be shown: %s", ascii(scope["path"]), ascii(why))
            answer = PlainTextResponse(f"this page cannot be shown: {why!a}\n", 500)
            await answer(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        """The answer to a request that is not let in; None lets it in."""
        headers = Headers(scope=scope)
        if self.starts and _host(headers.get("host", "")) not in LOOPBACK:
            return PlainTextResponse("this server answers to localhost alone\n", 421)
        if scope["method"] not in ("GET", "HEAD"):
            if not (self.starts and scope["method"] == "POST" and START.fullmatch(scope["path"])):
                return PlainTextResponse("this server only reads\n", 405, {"allow": "GET, HEAD"})
            if not _same_origin(headers):
                return PlainTextResponse("a form of another site is not taken\n", 403)
        if not self.token:
            if _host(headers.get("host", "")) in LOOPBACK:
                return None
            return PlainTextResponse("this server answers to localhost alone\n", 421)
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = next((value for name, value in query if name == "token"), None)
        if given is not None and self._is_token(given):
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            answer = RedirectResponse(_local(scope["path"]) + (f"?{rest}" if rest else ""), 303)
            answer.set_cookie(COOKIE, self.token, httponly=True, samesite="strict")
            return answer
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        if self._is_token(bearer) or self._is_token(_cookie(headers.get("cookie", ""))):
            return None
        return PlainTextResponse("the token is missing or wrong: open the address that hipwright view printed\n", 401)

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())


def _host(value: str) -> str:
    """The name in a Host header, without its port and the brackets of IPv6."""
    name = value.rpartition(":")[0] if value.rpartition(":")[2].isdigit() and not value.endswith("]") else value
    return name.strip("[]").lower()


def _same_origin(headers: Headers) -> bool:
    """Whether a browser says that a form is of a page of this server.

    Every browser sends Origin with a POST; one that does not say where it comes from is refused.
    """
    site = headers.get("sec-fetch-site", "same-origin")
    return headers.get("origin", "") == f"http://{headers.get('host', '')}" and site == "same-origin"


def _local(path: str) -> str:
    """The path as one of this server: two slashes at its start would name another."""
    return "/" + path.lstrip("/\\")


def _cookie(header: str) -> str:
    try:
        found = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found else ""
