"""One GPU of this machine, and one task on it: build, verify, time.

`Gpu` holds what is warm for all tasks: compilers, candidate workers, the zygotes. `GpuTask` adds a task's reference and
baselines, in a process of their own, and lends an evaluator its three verbs. A timing has the GPU to itself.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from hipwright.errors import InfrastructureError
from hipwright.evaluate.gate import Gate as Door
from hipwright.program import Parsed
from hipwright.records import Build, Program, Verdict, content_key
from hipwright.task import Outline, TaskHandle
from hipwright.toolchain.cache import BuildCache

if TYPE_CHECKING:
    from hipwright.measure.bench import BenchResult
    from hipwright.sandbox import Zygote
    from hipwright.toolchain.pool import CompilePool
    from hipwright.verify import Oracle

Kind = Literal["cuda", "rocm"]
Gate = Literal["full", "fast"]


class GpuTask:
    """Placeholder until the worker's client is there."""
