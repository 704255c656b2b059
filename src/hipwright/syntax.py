"""`ast.parse` for a process of many threads.

Before 3.11.8, CPython counts the depth of the tree it builds in one variable for all threads. A garbage collection
lets another thread build its tree in the middle of the first, and one of the two ends with a SystemError "AST
constructor recursion depth mismatch" (python/cpython issue 106905).
"""

from __future__ import annotations

import ast
import threading
from typing import Literal, overload

_one_at_a_time = threading.RLock()  # a finalizer may parse during its own thread's parse
_TRIES = 20  # other parsers in this process, such as torch's, do not use the lock


@overload
def parse(text: str, mode: Literal["exec"] = "exec") -> ast.Module: ...
@overload
def parse(text: str, mode: Literal["eval"]) -> ast.Expression: ...
def parse(text: str, mode: Literal["exec", "eval"] = "exec") -> ast.Module | ast.Expression:
    """The syntax tree of Python text.

    Raises what `ast.parse` raises: SyntaxError, ValueError, MemoryError and RecursionError for invalid text or too deep
    nesting.
    """
    for left in reversed(range(_TRIES)):
        try:
            with _one_at_a_time:
                return ast.parse(text) if mode == "exec" else ast.parse(text, mode=mode)
        except SystemError:
            if not left:
                raise
    raise AssertionError("unreachable")
