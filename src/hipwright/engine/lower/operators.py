"""Every operator that the engine lowers, by its ATen name. Each module of this package fills its part of the table."""

from __future__ import annotations

from collections.abc import Mapping

from hipwright.engine.lower import core, indexing, loss, norms, pointwise, reduce, statistics, views, window
from hipwright.engine.lower.core import Handler

FAMILIES = {
    "indexing": indexing,
    "losses": loss,
    "normalisations": norms,
    "pointwise": pointwise,
    "reductions": reduce,
    "statistics": statistics,
    "views": views,
    "windows": window,
}
TABLE: Mapping[str, Handler] = core.TABLE
