"""A module that asks whether it is exported or compiled is traced as it runs for its caller, who does neither. Imports
torch.

Packages compute in other ways while torch.export traces them: kornia's distances by products, which cancel; the masks
of transformers without looking at them; torch_geometric's sums by other operators. A program has to equal what the
caller gets, so the answer is no. Where the module cannot be traced so (it looks at values then), it is traced as its
authors made it to be exported, and the verifier compares the two.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from hipwright.errors import TaskError

Traced = TypeVar("Traced")
_FLAGS = ("_is_compiling_flag", "_is_exporting_flag")


class Question:
    """A flag of torch.compiler that is true for torch's own code alone. asked: whether other code asked."""

    def __init__(self) -> None:
        self.asked = False

    def __bool__(self) -> bool:
        if str(sys._getframe(1).f_globals.get("__name__", "")).partition(".")[0] == "torch":
            return True
        self.asked = True
        return False


def traced_as_called(model: torch.nn.Module, attempt: Callable[[], Traced]) -> Traced:
    """What the attempt returns, which traces the module as it runs for its caller; as it is exported where that raises
    TaskError and the module asked.
    """
    with as_called(model) as question:
        try:
            return attempt()
        except TaskError:
            if not question.asked:
                raise
    return attempt()


@contextmanager
def as_called(model: torch.nn.Module) -> Iterator[Question]:
    """The module's forward finds itself neither exported nor compiled while the block runs."""
    question, own = Question(), model.__dict__.get("forward")

    @functools.wraps(model.forward)
    def traced(*args: Any, **kwargs: Any) -> Any:
        before = {name: getattr(torch.compiler, name, False) for name in _FLAGS}
        for name in (name for name, flag in before.items() if flag is True):
            setattr(torch.compiler, name, question)
        try:
            # looked up now, as a capture may replace the class's forward for its time
            return type(model).forward(model, *args, **kwargs) if own is None else own(*args, **kwargs)
        finally:
            for name, flag in before.items():
                setattr(torch.compiler, name, flag)

    model.__dict__["forward"] = traced
    try:
        yield question
    finally:
        if own is None:
            del model.__dict__["forward"]
        else:
            model.__dict__["forward"] = own
