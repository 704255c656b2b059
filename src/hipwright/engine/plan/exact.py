"""Kernels that know the captured sizes: beside each kernel that counts in run-time sizes, one with them as constants.

The compiler then drops tails and bounds that the sizes never meet and divides by multiplication. `forward` launches it
where the sizes are the captured ones, and the general kernel elsewhere: shape specialisation with a fallback, as
torch.compile's static shapes, in one program.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hipwright.engine.templates.base import wrapped

ENOUGH_ELEMENTS = 1 << 16
"""Elements of all the values of a graph from which on a second build pays; smaller work is a launch and no more."""

_HEAD = re.compile(
    r'^extern "C" __global__ void (?P<bounds>__launch_bounds__\([^\n]*\) )?(?P<name>\w+)\(', re.MULTILINE
)


def with_exact(text: str, exact: str, values: Sequence[int | None], bounds: str = "") -> str:
    """A kernel's text with a second entry point `exact`, whose parameters with a value are constants.

    text: one entry kernel. values: one for each parameter, None for what stays one. bounds: the threads of a block for
    which the compiler spares registers in `exact`, if others than in the kernel. Raises ValueError for another text.
    """
    heads = list(_HEAD.finditer(text))
    if len(heads) != 1:
        raise ValueError("one entry kernel was expected")
    head = heads[0]
    end = text.index(") {\n", head.end())
    parameters = [" ".join(p.split()) for p in text[head.end() : end].split(",")]
    if len(parameters) != len(values):
        raise ValueError(f"{head['name']} has {len(parameters)} parameters, not {len(values)}")
    names = [re.split(r"\W+", p)[-1] for p in parameters]
    body = f"static __device__ __forceinline__ void {head['name']}_body({text[head.end() :]}"
    kept = [p for p, value in zip(parameters, values, strict=True) if value is None]
    given = [n if value is None else _literal(value) for n, value in zip(names, values, strict=True)]
    entry = 'extern "C" __global__ void '
    own = head["bounds"] or ""
    other = f"__launch_bounds__({bounds}) " if bounds else own
    return (
        f"{text[: head.start()]}{body}\n"
        + _entry(f"{entry}{own}{head['name']}", parameters, f"{head['name']}_body", names)
        + "\n// the sizes of the task as constants\n"
        + _entry(f"{entry}{other}{exact}", kept, f"{head['name']}_body", given)
    )


def _entry(start: str, parameters: Sequence[str], callee: str, arguments: Sequence[str]) -> str:
    return f"{start}(\n    {wrapped(', '.join(parameters))}) {{\n    {callee}({', '.join(arguments)});\n}}\n"


def _literal(value: int) -> str:
    return f"{value}L" if abs(value) >= 1 << 31 else str(value)
