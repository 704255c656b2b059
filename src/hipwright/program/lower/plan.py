"""A lowered plan: closures over tensors, and the run-time checks that they call. Imports torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, NoReturn

import torch

from hipwright.errors import CandidateError, GuardFailed, HipwrightError, ProgramError
from hipwright.program.language import HOST, MATH

FILENAME = "<plan>"


class LoweredPlan:
    """The executable functions of a program.

    tensors: every parameter and buffer by path; kernels write buffers only, and change them in place. prepared_from:
    those that `prepare` reads.
    prepare_seconds: wall seconds of the last `prepare`; prepare_runs counts them.
    """

    def __init__(
        self,
        functions: dict[str, Callable[..., Any]],
        inputs: Sequence[str],
        required: int,
        tensors: dict[str, Any],
        prepared_from: Sequence[Any],
        prepared: dict[str, Any],
    ) -> None:
        self.tensors = tensors
        self.inputs = tuple(inputs)
        self.prepare_seconds = 0.0
        self.prepare_runs = 0
        self._required = required
        self._functions = functions
        self._forward = functions["forward"]
        self.prepared_from = tuple(prepared_from)
        self._prepared = prepared
        self._state: object = None
        self._has_prepare = "prepare" in functions
        self._has_backward = "backward" in functions

    @property
    def prepares(self) -> bool:
        """Whether `prepare` packs anything from parameters or buffers."""
        return self._has_prepare and bool(self.prepared_from)

    @property
    def prepared(self) -> dict[str, Any]:
        """The last result of `prepare`, by name."""
        return self._prepared

    def prepare(self) -> bool:
        """Packs weights if a parameter changed since the last call (by version or address); True if it ran."""
        if not self._has_prepare:
            return False
        state = [(t._version, t.data_ptr()) for t in self.prepared_from]
        if state == self._state:
            return False
        started = time.perf_counter()
        result = run(self._functions["prepare"], ())
        self._prepared.clear()
        self._prepared.update(result)
        self._state = state
        self.prepare_seconds = time.perf_counter() - started
        self.prepare_runs += 1
        return True

    def forward(self, *inputs: Any) -> Any:
        """Computes the outputs. Raises GuardFailed when an assert is false, CandidateError when the plan fails."""
        result = self._call(inputs)
        return result[0] if self._has_backward else result

    def forward_saved(self, *inputs: Any) -> tuple[Any, Any]:
        """Computes (outputs, saved) of a program with backward; saved is None without one."""
        result = self._call(inputs)
        return (result[0], result[1]) if self._has_backward else (result, None)

    def backward(self, grads: Any, saved: Any) -> Any:
        """Computes the gradients of the inputs by the plan's `backward`."""
        if not self._has_backward:
            raise ProgramError("this program has no backward")
        return run(self._functions["backward"], (grads, saved))

    def _call(self, inputs: tuple[Any, ...]) -> Any:
        if self._has_prepare:
            self.prepare()
        if not self._required <= len(inputs) <= len(self.inputs):
            raise CandidateError(
                f"forward takes {len(self.inputs)} inputs ({', '.join(self.inputs)}), but the task gives {len(inputs)}",
                stage="launch",
            )
        return run(self._forward, inputs)


def run(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Calls a lowered function; its exceptions become CandidateErrors with the plan's line."""
    try:
        return function(*args)
    except HipwrightError as error:
        line = plan_line(error.__traceback__)
        if line and "line" not in error.evidence:
            error.evidence["line"] = line
            error.message = f"line {line}: {error.message}"
            error.args = (error.message,)
        raise
    except Exception as error:
        line = plan_line(error.__traceback__)
        text = " ".join(str(error).split("\n\n")[0].split())[:600]
        raise CandidateError(
            f"line {line}: {type(error).__name__}: {text}",
            status="launch_error",
            stage="launch",
            evidence={"line": line},
        ) from error


def plan_line(trace: TracebackType | None) -> int:
    """The innermost line of the plan in a traceback, 0 if none."""
    line = 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILENAME:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


# ---------------------------------------------------------------- called by lowered code


def host(value: Any) -> Any:
    """Returns `value`, refusing a tensor where a truth value, a range or a number is needed."""
    if isinstance(value, torch.Tensor):
        raise CandidateError(
            "a tensor's value is wanted on the host (in an if, a loop, an index or a number); a plan decides on "
            "shapes, dtypes and scalars only: use torch.where, or decide in a kernel",
            stage="launch",
        )
    return value


def getitem(value: Any, key: Any) -> Any:
    """Returns value[key]; refuses tensor keys of other values than tensors, and slices of tensors."""
    parts = key if isinstance(key, tuple) else (key,)
    for part in parts:
        if isinstance(part, slice):
            host(part.start), host(part.stop), host(part.step)
        elif not isinstance(value, torch.Tensor):
            host(part)
    return value[key]


def guard_failed(line: int, why: str) -> NoReturn:
    """Raises GuardFailed for an assert of the plan."""
    raise GuardFailed(why, line)


def _on_host(function: Callable[..., Any], *, deep: bool = False) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        for arg in args:
            host(arg)
            if deep and isinstance(arg, (tuple, list)):
                for item in arg:
                    host(item)
        return function(*args)

    return call


def _sequence(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Iterable[Any]) -> Any:
        return function(*map(host, args))

    return call


def _length(value: Any) -> int:
    return int(value.shape[0]) if isinstance(value, torch.Tensor) else len(value)


HOST_CALLS: dict[str, Callable[..., Any]] = {
    name: _sequence(function) if name in ("tuple", "enumerate", "zip", "reversed") else _on_host(function, deep=True)
    for name, function in HOST.items()
} | {"len": _length}
MATH_CALLS: dict[str, Callable[..., Any]] = {name: _on_host(function) for name, function in MATH.items()}
