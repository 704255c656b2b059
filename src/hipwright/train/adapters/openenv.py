"""An HTTP server with OpenEnv's interface (0.10): /reset /step /state /schema /metadata /health and /ws.

An episode is one problem and up to `turns` answers to it. A /ws connection has one episode at a time; plain HTTP
requests name theirs by `episode_id`, which /reset accepts or makes. An unscorable answer has reward null and uses no
turn. /judge and /prefetch (judging/serve.py) judge programs for `remote.RemoteJudge`. Needs starlette.
"""

from __future__ import annotations

import json
import random
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from hipwright.errors import BadInput, HipwrightError
from hipwright.train.forms import ChatForm
from hipwright.train.records import ScoredOutcome, TrainingProblem, Turn

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.websockets import WebSocket

    from hipwright.train.environment import Environment

MAX_EPISODES = 4096
"""Episodes that are kept; the least recently used one is dropped first."""
INVALID_JSON, UNKNOWN, VALIDATION, EXECUTION = "INVALID_JSON", "UNKNOWN_TYPE", "VALIDATION_ERROR", "EXECUTION_ERROR"

_TEXT, _NUMBER = {"type": "string"}, {"type": "integer"}
SCHEMA: dict[str, Any] = {
    "action": {
        "title": "Answer",
        "type": "object",
        "required": ["completion"],
        "additionalProperties": False,
        "properties": {
            "completion": {**_TEXT, "description": "the model's text, with a program in a code block"},
            "metadata": {"type": "object"},
        },
    },
    "observation": {
        "title": "Task",
        "type": "object",
        "required": ["episode_id", "problem", "source", "messages", "turn"],
        "properties": {
            "episode_id": _TEXT,
            "problem": _TEXT,
            "source": _TEXT,
            "turn": _NUMBER,
            "messages": {"type": "array", "items": {"type": "object", "properties": {"role": _TEXT, "content": _TEXT}}},
            "outcome": {"description": "what the evaluator found of the last answer", "type": ["object", "null"]},
        },
    },
    "state": {
        "title": "State",
        "type": "object",
        "properties": {"episode_id": {"type": ["string", "null"]}, "step_count": _NUMBER, "problem": _TEXT},
    },
}


@dataclass
class Episode:
    """One problem with the answers so far."""

    id: str
    problem: TrainingProblem
    turns: list[Turn] = field(default_factory=list)
    steps: int = 0
    done: bool = False


class EpisodeStore:
    """Episodes over an open environment. turns: the most answers of an episode; a correct answer ends it."""

    def __init__(self, environment: Environment, problems: Sequence[TrainingProblem], *, turns: int = 1) -> None:
        if not problems:
            raise BadInput("there are no problems to serve", hint="--data DIR with a data set or tasks")
        self.environment, self.turns = environment, turns
        self._problems = {one.name: one for one in problems}
        self._form = ChatForm(None)  # messages need no tokenizer
        self._episodes: OrderedDict[str, Episode] = OrderedDict()
        self._lock = threading.Lock()

    def reset(self, options: Mapping[str, Any]) -> tuple[Episode, dict[str, Any]]:
        """(a new episode, its reply). options: `problem` (a name; else drawn, with `seed`) and `episode_id`."""
        name = options.get("problem")
        if name is not None and name not in self._problems:
            raise BadInput(f"no problem {name!r}", hint="/metadata gives their number")
        if name is None:
            name = random.Random(options.get("seed")).choice(list(self._problems))
        episode = Episode(str(options.get("episode_id") or uuid4().hex), self._problems[name])
        with self._lock:
            self._episodes[episode.id] = episode
            while len(self._episodes) > MAX_EPISODES:
                self._episodes.popitem(last=False)
        return episode, self._reply(episode, None, {})

    def find(self, name: Any) -> Episode:
        """An episode by its id."""
        with self._lock:
            if name not in self._episodes:
                raise BadInput("no such episode_id", hint="/reset starts an episode and returns its id")
            self._episodes.move_to_end(name)
            return self._episodes[name]

    def step(self, episode: Episode, action: Any) -> dict[str, Any]:
        """Judges an answer; returns the reply."""
        if not isinstance(action, dict) or not isinstance(action.get("completion"), str):
            raise BadInput('an action is {"completion": TEXT}', hint="/schema")
        if episode.done:
            raise BadInput("the episode is over", hint="/reset starts another")
        text = action["completion"]
        scored = self.environment.score(episode.problem, text, episode.turns)
        if scored.reward is not None:
            episode.steps += 1
            episode.turns.append(Turn(completion=text, outcome=scored.outcome))
            episode.done = scored.outcome.correct or episode.steps >= self.turns
        return self._reply(episode, scored, scored.parts)

    def state(self, episode: Episode | None) -> dict[str, Any]:
        """OpenEnv's State."""
        if episode is None:
            return {"episode_id": None, "step_count": 0}
        return {"episode_id": episode.id, "step_count": episode.steps, "problem": episode.problem.name}

    def metadata(self) -> dict[str, Any]:
        """OpenEnv's metadata of the environment."""
        from hipwright import __version__

        judge = self.environment.judge
        about = f"{len(self._problems)} problems, judged on {judge.device or 'the processor'}, clock: {judge.clock}"
        return {
            "name": "hipwright",
            "version": __version__,
            "description": f"HIP programs for PyTorch references: {about}",
        }

    def _reply(self, episode: Episode, scored: ScoredOutcome | None, parts: Mapping[str, float]) -> dict[str, Any]:
        observation = {
            "episode_id": episode.id,
            "problem": episode.problem.name,
            "source": episode.problem.source,
            "messages": self._form.messages(episode.problem, episode.turns),
            "turn": episode.steps,
            "outcome": scored.outcome.to_dict() if scored is not None else None,
        }
        reply = {"observation": observation, "reward": scored.reward if scored else None, "done": episode.done}
        return {**reply, "metadata": {"scorable": scored.outcome.scorable, "parts": dict(parts)}} if scored else reply


# ---------------------------------------------------------------- HTTP


def app(store: EpisodeStore) -> Starlette:
    """The ASGI application of the server. Answers are judged in threads."""
    from starlette.applications import Starlette
    from starlette.routing import Mount, Route, WebSocketRoute

    from hipwright.train.judging import serve

    routes: list[Any] = [Route(path, partial(_get, made), methods=["GET"]) for path, made in _gets(store).items()]
    for path, made in (("/reset", _reset), ("/step", _step)):
        routes.append(Route(path, partial(_post, store, made), methods=["POST"]))
    judging = Mount("/", app=serve.app(store.environment.judge))
    return Starlette(routes=[*routes, WebSocketRoute("/ws", partial(_session, store)), judging])


def _gets(store: EpisodeStore) -> dict[str, Any]:
    return {
        "/health": lambda _: {"status": "healthy"},
        "/schema": lambda _: SCHEMA,
        "/metadata": lambda _: store.metadata(),
        "/state": lambda query: store.state(store.find(query["episode_id"]) if "episode_id" in query else None),
    }


async def _get(made: Any, request: Request) -> Any:
    from starlette.responses import JSONResponse

    try:
        return JSONResponse(made(dict(request.query_params)))
    except HipwrightError as error:
        return JSONResponse({"detail": f"{error.message}: {error.hint}"}, status_code=404)


async def _post(store: EpisodeStore, made: Any, request: Request) -> Any:
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import JSONResponse

    try:
        body = await request.body()
        plain = json.loads(body) if body.strip() else {}
        if not isinstance(plain, dict):
            raise BadInput("the body is no JSON object")
        return JSONResponse(await run_in_threadpool(made, store, plain))
    except (BadInput, ValueError, KeyError, TypeError) as error:
        return JSONResponse({"detail": str(error)}, status_code=422)
    except HipwrightError as error:
        return JSONResponse({"detail": error.message}, status_code=500)


def _reset(store: EpisodeStore, plain: dict[str, Any]) -> dict[str, Any]:
    return store.reset(plain)[1]


def _step(store: EpisodeStore, plain: dict[str, Any]) -> dict[str, Any]:
    return store.step(store.find(plain.get("episode_id")), plain.get("action"))


# ---------------------------------------------------------------- WebSocket


async def _session(store: EpisodeStore, socket: WebSocket) -> None:
    """Serves one connection, with one episode at a time."""
    from starlette.concurrency import run_in_threadpool
    from starlette.websockets import WebSocketDisconnect

    await socket.accept()
    current: list[Episode] = []
    try:
        while True:
            try:
                message = json.loads(await socket.receive_text())
            except ValueError as error:
                await socket.send_json(_failed(INVALID_JSON, f"Invalid JSON: {error}"))
                continue
            if isinstance(message, dict) and message.get("type") == "close":
                await socket.close()
                return
            await socket.send_json(await run_in_threadpool(_answer, store, current, message))
    except WebSocketDisconnect:
        return


def _answer(store: EpisodeStore, current: list[Episode], message: Any) -> dict[str, Any]:
    kind, data = (message.get("type"), message.get("data") or {}) if isinstance(message, dict) else (None, {})
    try:
        if kind == "reset":
            episode, first = store.reset(data)
            current[:] = [episode]
            return {"type": "observation", "data": first}
        if kind == "state":
            return {"type": "state", "data": store.state(current[0] if current else None)}
        if kind == "step" and current:
            return {"type": "observation", "data": store.step(current[0], data)}
    except BadInput as error:
        return _failed(VALIDATION, error.message)
    except Exception as error:  # an error of one message does not end the connection
        return _failed(EXECUTION, f"{type(error).__name__}: {error}")
    return _failed(EXECUTION, "reset first") if kind == "step" else _failed(UNKNOWN, f"Unknown message type: {kind}")


def _failed(code: str, message: str) -> dict[str, Any]:
    return {"type": "error", "data": {"message": message, "code": code}}
