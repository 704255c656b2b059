"""A call in the model host that stops at each program of another process, until the parent has run it there."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hipwright.errors import CandidateError, GuardFailed


@dataclass(frozen=True)
class Wanted:
    """A program's call. state: by the task's names; None where it is what the last call of this part was given."""

    region: int
    part: str
    inputs: Sequence[torch.Tensor]
    state: Mapping[str, torch.Tensor] | None


@dataclass(frozen=True)
class Done:
    """The end of a call: what it returned, or raised."""

    value: Any = None
    error: BaseException | None = None


class Exchange:
    """One call at a time, on a thread of its own: `start` and `resume` return where it stops next."""

    def __init__(self) -> None:
        self._out: queue.Queue[Wanted | Done] = queue.Queue()
        self._in: queue.Queue[Mapping[str, Any]] = queue.Queue()

    def start(self, fn: Callable[[], Any]) -> Wanted | Done:
        """Begins fn()."""

        def run() -> None:
            try:
                self._out.put(Done(fn()))
            except BaseException as error:  # the model's own, told to whoever asked
                self._out.put(Done(error=error))

        threading.Thread(target=run, name="model", daemon=True).start()
        return self._out.get()

    def resume(self, answer: Mapping[str, Any]) -> Wanted | Done:
        """Goes on with the answer to the program's call that was wanted."""
        self._in.put(answer)
        return self._out.get()

    def ask(self, wanted: Wanted) -> Mapping[str, Any]:
        """Called on the model's thread: waits for the parent's answer."""
        self._out.put(wanted)
        return self._in.get()


class RemoteProgram:
    """A program that the parent runs (`ProgramCall`). region, part: what it stands for."""

    device = "cpu"

    def __init__(self, exchange: Exchange, region: int, part: str) -> None:
        self._exchange, self._region, self._part = exchange, region, part
        self._sent: list[tuple[torch.Tensor, int]] = []

    def __call__(
        self, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]
    ) -> tuple[Sequence[torch.Tensor], dict[str, torch.Tensor]]:
        """(outputs, buffers afterwards). Raises GuardFailed where it declines, CandidateError where it fails."""
        now = [(tensor, tensor._version) for tensor in state.values()]
        known = len(now) == len(self._sent) and all(
            a is b and v == w for (a, v), (b, w) in zip(now, self._sent, strict=True)
        )
        self._sent = now
        answer = self._exchange.ask(Wanted(self._region, self._part, inputs, None if known else state))
        if why := answer.get("declined"):
            raise GuardFailed(str(why))
        if why := answer.get("failed"):
            raise CandidateError(str(why))
        return answer["outputs"], answer["buffers"]
