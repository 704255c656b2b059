"""A judge for other machines over HTTP (client: train/judging/remote.py; what stands before it: train/service).

GET /judge -> {"device", "clock"}. POST /judge {"problem", "program"} -> an Evaluation. POST /prefetch {"problems"}.
Programs run sandboxed. Needs starlette.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import msgspec

from hipwright.errors import HipwrightError
from hipwright.records import Program
from hipwright.train.records import TrainingProblem

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from hipwright.train.judging.protocols import ProgramJudge

MAX_PROBLEMS = 256


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
