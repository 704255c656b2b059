"""Values that the processor reads during a call, and decides by: what a capture, which cannot read, is told.

Language models ask whether positions that they counted themselves are those of one sequence, for one. Calls read the
same where neither floats nor state make what they read, and whole numbers among the arguments say the same
(`argument_reads`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import torch

from hipwright.api.live.forward.modes import looking
from hipwright.higher_order import OperatorMode
from hipwright.torchio import tensors_of

T = TypeVar("T")
_READS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_INDEXING = {torch.ops.aten.index.Tensor, torch.ops.aten._unsafe_index.Tensor}
"""Operators whose results have sizes of their own where an index is a mask, alone."""
DETACH = torch.ops.aten.detach.default
"""It computes nothing, and modes within each other see more of it."""
_hiding = threading.RLock()


def is_read(operator: Any, tensors: Iterable[torch.Tensor]) -> bool:
    """Whether the processor waits for values of an operator on these tensors."""
    if operator in _INDEXING and not any(one.dtype in (torch.bool, torch.uint8) for one in list(tensors)[1:]):
        return False
    return bool(_READS & set(operator.tags))


class Read(NamedTuple):
    """A number that the processor read. place: of the operator among those of the call."""

    place: int
    operator: Any
    value: bool | int | float | complex


class _Answers(OperatorMode):
    """Gives reads the values that they had, at the places where they were; raises RuntimeError at others."""

    def __init__(self, reads: Sequence[Read]) -> None:
        super().__init__()
        self.left, self._place, self._rests = list(reads), 0, False

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        if self._rests:
            return func(*args, **kwargs)
        self._place += func is not DETACH
        if not is_read(func, tensors_of((args, kwargs))):
            return func(*args, **kwargs)
        if not self.left or self.left[0][:2] != (self._place, func):
            raise RuntimeError("the processor reads other values than in the call that was watched")
        return self.left.pop(0).value

    @contextmanager
    def resting(self) -> Iterator[None]:
        """As `CallMode.resting`."""
        self._rests = True
        try:
            yield
        finally:
            self._rests = False

    def made(self, results: Any) -> None:
        """As `CallMode.made`; nothing is to be known."""


def answered(call: Callable[[], T], reads: Sequence[Read]) -> T:
    """call(), told what the processor read; it sees no capture, as the call that was watched saw none.

    Raises what call() raises, and RuntimeError where it reads something else.
    """
    with _no_capture_seen():
        if not reads:
            return call()
        mode = _Answers(reads)
        with looking(mode), mode:
            result = call()
    if mode.left:
        raise RuntimeError("the processor reads fewer values than in the call that was watched")
    return result


@contextmanager
def _no_capture_seen() -> Iterator[None]:
    """A context in which this thread is told that no stream is captured; language models go another way in one."""
    with _hiding:
        here, capturing = threading.get_ident(), torch.cuda.is_current_stream_capturing

        def elsewhere() -> bool:
            return threading.get_ident() != here and bool(capturing())

        torch.cuda.is_current_stream_capturing = elsewhere
        try:
            yield
        finally:
            torch.cuda.is_current_stream_capturing = capturing
