"""The class of the library's operators, and the decorator that defines one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hipwright.synth.sketch import Sketch
from hipwright.synth.values import SketchValue

Make = Callable[[Sketch, SketchValue], SketchValue]


@dataclass(frozen=True)
class SynthOperator:
    """One operator. make(sketch, value) adds its statements for a float value to the sketch and returns the result.

    make raises Unfit for a value that it cannot take. aten: the name in the dispatcher or in torch.export, without
    overload; phrase: for the docstring; ranks: of values it takes; library: the engine keeps it as a library call;
    view: it computes nothing; non_float: its result is not a float tensor.
    """

    name: str
    family: str
    aten: str
    pointwise: bool
    make: Make
    phrase: str
    ranks: tuple[int, ...] = (2, 3, 4)
    library: bool = False
    view: bool = False
    non_float: bool = False


def operator(
    name: str,
    family: str,
    phrase: str,
    *,
    aten: str = "",
    ranks: tuple[int, ...] = (2, 3, 4),
    library: bool = False,
    view: bool = False,
    non_float: bool = False,
) -> Callable[[Make], SynthOperator]:
    """Define a SynthOperator by its `make` function. aten: `name` by default."""

    def wrap(make: Make) -> SynthOperator:
        return SynthOperator(
            name=name,
            family=family,
            aten=aten or name,
            pointwise=family == "pointwise",
            make=make,
            phrase=phrase,
            ranks=ranks,
            library=library,
            view=view,
            non_float=non_float,
        )

    return wrap
