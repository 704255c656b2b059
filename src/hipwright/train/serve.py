"""A judge for other machines: one JSON endpoint over a LocalJudge (train/remote.py is the client; docs/rewards.md).

GET /identity -> what judges here. POST /judge {"problem", "program"} -> an Evaluation. POST /prefetch {"problems"}.
Programs are contained as everywhere; still, whoever may call this may keep the machine busy, so it answers on the
loopback alone unless there is a token. Needs starlette and uvicorn.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
from typing import TYPE_CHECKING, Any

import msgspec

from hipwright.errors import BadInput, HipwrightError
from hipwright.records import Program
from hipwright.train.records import Problem

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from hipwright.train.judges import LocalJudge

PORT = 8765
MOST_BYTES = 2 << 20  # of a request: a task and a program
MOST_PROBLEMS = 256


class _Refused(Exception):
    """A request that is answered with `code`."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def app(judge: LocalJudge, token: str = "") -> Starlette:
    """The ASGI application over an open judge. token: what callers must bear; "" for none."""
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    def answering(work: Any) -> Any:
        async def handle(request: Request) -> Response:
            try:
                _authorise(request, token)
                return JSONResponse(await work(request))
            except _Refused as refused:
                return JSONResponse({"error": str(refused)}, refused.code)
            except HipwrightError as error:
                return JSONResponse({"error": error.message}, 503)

        return handle

    async def identity(request: Request) -> dict[str, Any]:
        return judge.identity

    async def judged(request: Request) -> dict[str, Any]:
        body = await _body(request)
        problem, program = _record(Problem, body, "problem"), _record(Program, body, "program")
        evaluation = await asyncio.wrap_future(judge.submit(problem, program))
        return evaluation.to_dict()

    async def prefetch(request: Request) -> dict[str, Any]:
        problems = (await _body(request)).get("problems")
        if not isinstance(problems, list) or len(problems) > MOST_PROBLEMS:
            raise _Refused(400, f"problems: a list of at most {MOST_PROBLEMS}")
        judge.prefetch([_record(Problem, {"problem": one}, "problem") for one in problems])
        return {}

    routes = [
        Route("/identity", answering(identity), methods=["GET"]),
        Route("/judge", answering(judged), methods=["POST"]),
        Route("/prefetch", answering(prefetch), methods=["POST"]),
    ]
    return Starlette(routes=routes)


def serve(judge: LocalJudge, host: str = "127.0.0.1", port: int = PORT, token: str = "") -> None:
    """Answer until interrupted. judge: opened by the caller. BadInput for a host off the loopback without a token."""
    import uvicorn

    if not (token or _loopback(host)):
        raise BadInput(
            f"{host} can be reached from other machines, and there is no token",
            hint="give a token that callers must bear, or serve on 127.0.0.1",
        )
    uvicorn.run(app(judge, token), host=host, port=port, log_level="warning")


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _authorise(request: Request, token: str) -> None:
    given = request.headers.get("authorization", "")
    if token and not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
        raise _Refused(401, "the token is missing or wrong")


async def _body(request: Request) -> dict[str, Any]:
    """The request's JSON object; read no further than the limit."""
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > MOST_BYTES:
            raise _Refused(413, f"more than {MOST_BYTES} bytes")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise _Refused(400, "not a JSON object")
    return found


def _record(kind: Any, body: dict[str, Any], name: str) -> Any:
    try:
        return kind.from_dict(body[name])
    except (KeyError, msgspec.ValidationError) as error:
        raise _Refused(400, f"{name}: {error}") from None
