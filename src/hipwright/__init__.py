"""hipwright: fast, verified HIP kernels for AMD GPUs from PyTorch code.

`optimize` puts a verified program in place of a module, `evaluate` judges a program, `load` reads what was saved, and
`kernel` decorates a function (docs/library.md). Importing this package takes less than 0.2 s
and imports neither torch nor an LLM library: each public name is imported when it is first used. Type checkers read
`__init__.pyi`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.2.0"

_HOMES = {
    "backend": "hipwright.api.dynamo.entry",
    "compiled_graphs": "hipwright.api.dynamo.entry",
    "Evaluation": "hipwright.records",
    "Program": "hipwright.records",
    "Result": "hipwright.api.result",
    "Task": "hipwright.records",
    "evaluate": "hipwright.api.evaluate",
    "kernel": "hipwright.api.library",
    "load": "hipwright.api.library",
    "optimize": "hipwright.api.library",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """A public name from the module that defines it (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'hipwright' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
