"""The operators that lower to expressions: ATen's, and the engine's own that attention kernels read."""

from __future__ import annotations

from collections.abc import Mapping

from hipwright.engine.lower import operators
from hipwright.engine.lower.table import Handler
from hipwright.engine.templates.attention import scores

TABLE: Mapping[str, Handler] = {**operators.TABLE, **scores.OPERATORS}
