"""What an operator of the library is, and the decorator that makes one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hipwright.synth.sketch import Sketch
from hipwright.synth.values import SketchValue

Make = Callable[[Sketch, SketchValue], SketchValue]


@dataclass(frozen=True)
class SynthOperator:
    """One operator. make(sketch, value) writes its statements for a float value and returns the result.

    make raises Unfit for a value that it cannot take. aten: the name that the dispatcher or torch.export gives it,
    without overload; words: for the docstring; ranks: those it takes; library: the engine leaves it to the library
    today; view: it moves numbers at most; ends: the result is no float tensor.
    """

    name: str
    family: str
    aten: str
    pointwise: bool
    make: Make
    words: str
    ranks: tuple[int, ...] = (2, 3, 4)
    library: bool = False
    view: bool = False
    ends: bool = False


def operator(
    name: str,
    family: str,
    words: str,
    *,
    aten: str = "",
    ranks: tuple[int, ...] = (2, 3, 4),
    library: bool = False,
    view: bool = False,
    ends: bool = False,
) -> Callable[[Make], SynthOperator]:
    """Make an Operator of a function; aten is the name where it is not given."""

    def wrap(make: Make) -> SynthOperator:
        return SynthOperator(
            name=name,
            family=family,
            aten=aten or name,
            pointwise=family == "pointwise",
            make=make,
            words=words,
            ranks=ranks,
            library=library,
            view=view,
            ends=ends,
        )

    return wrap
