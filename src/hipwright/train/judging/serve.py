"""A judge for other machines over HTTP (client: train/judging/remote.py), and the token guard of our servers.

GET /judge -> {"device", "clock"}. POST /judge {"problem", "program"} -> an Evaluation. POST /prefetch {"problems"}.
Programs run sandboxed. Callers can still keep the machine busy, so the server listens on the loopback alone unless
there is a token. Needs starlette and uvicorn.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

import msgspec

from hipwright.errors import BadInput, HipwrightError
from hipwright.records import Program
from hipwright.train.records import TrainingProblem

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from hipwright.train.judging.protocols import ProgramJudge

PORT = 8765
MAX_BYTES = 2 << 20  # of a request: a task and a program
MAX_PROBLEMS = 256
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


def app(judge: ProgramJudge) -> Starlette:
    """The ASGI application over an open judge."""
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def describe(request: Request) -> Response:
        return JSONResponse({"device": judge.device, "clock": judge.clock})

    async def judged(request: Request) -> Response:
        body = await _body(request)
        problem = msgspec.convert(body.get("problem"), TrainingProblem)
        program = msgspec.convert(body.get("program"), Program)
        evaluation = await asyncio.wrap_future(judge.submit(problem, program))
        return JSONResponse(evaluation.to_dict())

    async def prefetch(request: Request) -> Response:
        problems = msgspec.convert((await _body(request)).get("problems"), list[TrainingProblem])
        judge.prefetch(problems[:MAX_PROBLEMS])
        return JSONResponse({})

    routes = [
        Route("/judge", describe, methods=["GET"]),
        Route("/judge", judged, methods=["POST"]),
        Route("/prefetch", prefetch, methods=["POST"]),
    ]
    handlers = {msgspec.ValidationError: _bad_request, HipwrightError: _unavailable}
    return Starlette(routes=routes, exception_handlers=handlers)


def serve(application: Application, host: str = "127.0.0.1", port: int = PORT, token: str = "") -> None:
    """Serves behind `guarded` until interrupted. Raises BadInput for a host off the loopback without a token."""
    import uvicorn

    if not (token or _loopback(host)):
        raise BadInput(
            f"{host} can be reached from other machines, and there is no token",
            hint="set a token, or serve on 127.0.0.1",
        )
    uvicorn.run(guarded(application, token), host=host, port=port, log_level="warning")


def guarded(application: Application, token: str = "", max_bytes: int = MAX_BYTES) -> Application:
    """An ASGI application behind a bearer token ("": none) and a limit of a request's bytes; WebSockets too."""

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await application(scope, receive, send)
        given = dict(scope["headers"]).get(b"authorization", b"")
        if token and not hmac.compare_digest(given, f"Bearer {token}".encode()):
            return await _reject(scope, send, 401, "the token is missing or wrong")
        if scope["type"] != "http":
            return await application(scope, receive, send)
        body = bytearray()
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message["type"] == "http.request" and bool(message.get("more_body"))
            if len(body) > max_bytes:
                return await _reject(scope, send, 413, f"more than {max_bytes} bytes")
        pending: list[Scope] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def replay() -> Scope:
            return pending.pop() if pending else await receive()

        return await application(scope, replay, send)

    return guard


async def _reject(scope: Scope, send: Send, code: int, why: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": why})
        return
    await send({"type": "http.response.start", "status": code, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": json.dumps({"detail": why}).encode()})


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def _body(request: Request) -> dict[str, Any]:
    try:
        found = json.loads(await request.body())
    except (ValueError, RecursionError) as error:
        raise msgspec.ValidationError(f"no JSON: {type(error).__name__}") from error
    if not isinstance(found, dict):
        raise msgspec.ValidationError("no JSON object")
    return found


async def _bad_request(request: Request, error: Exception) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse({"detail": str(error)}, 400)


async def _unavailable(request: Request, error: Exception) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse({"detail": str(error)}, 503)
