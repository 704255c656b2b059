"""Every operator that the engine lowers, by its ATen name, and its family."""

from __future__ import annotations

from collections.abc import Mapping

from hipwright.engine.lower import (
    arithmetic,
    creation,
    indexing,
    loss,
    norms,
    pointwise,
    rearrange,
    reduce,
    statistics,
    table,
    views,
)
from hipwright.engine.lower.table import Handler
from hipwright.engine.lower.windows import window

FAMILIES = {
    "indexing": (indexing,),
    "losses": (loss,),
    "norms": (norms,),
    "pointwise": (pointwise, arithmetic, creation),
    "pooling": (window,),
    "reductions": (reduce,),
    "statistics": (statistics,),
    "view": (views, rearrange),
}
TABLE: Mapping[str, Handler] = table.TABLE
_FAMILY = {module.__name__: family for family, modules in FAMILIES.items() for module in modules}


def family(op: str) -> str:
    """The family of an operator, "" for one that is not lowered."""
    handler = TABLE.get(op)
    return _FAMILY.get(handler.__module__, "") if handler is not None else ""
