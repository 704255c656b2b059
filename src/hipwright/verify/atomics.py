"""Detects what leaves the order of additions, and so the last bits, undefined: float atomics in HIP source, and library
operators whose algorithm a device chooses. Does not import torch.

It reads the text and errs towards yes: an atomic counts unless its target is visibly an integer. Without float atomics,
results that differ between two runs are a fault; with them, the tolerance decides.

torch lists such library operators under `torch.use_deterministic_algorithms`: sums by atomics (index_add, scatter_add,
many backward operators), and convolutions, for which cuDNN and MIOpen may choose an algorithm that adds by atomics,
transposed ones above all. Where two calls of a plan with such an operator differ, both are repeated under the library's
deterministic algorithms, and must have equal bits then: the program's own kernels are no less watched.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable

from hipwright.program.blanking import CACHED_LENGTH, blank

_ATOMIC = re.compile(
    r"\b(?:atomic(?:Add|Sub|CAS)|unsafeAtomicAdd|safeAtomicAdd|__(?:hip_)?atomic_(?:fetch_)?(?:add|sub|compare_exchange)\w*"
    r"|__atomic_\w*(?:add|sub|compare_exchange)\w*|atomicrmw|red\.\w+|atom\.\w+)\s*(?:_system|_block)?\s*\("
)
_LIBRARY = re.compile(
    r"conv|_backward$|index_add|index_put|index_reduce|scatter|segment_reduce|embedding_bag|bincount|histc|cumsum|median"
    r"|kthvalue|interpolate|upsample|grid_sample|max_unpool|ctc_loss|^put_?$"
)
DETERMINISTIC = "deterministic"
"""The setting of a call in which library operators use deterministic algorithms."""
_SWAP = re.compile(r"CAS|compare_exchange")
_PUNNED = re.compile(
    r"__(?:float|int|uint|double|longlong|half|ushort|short)_as_|\b(?:reinterpret|bit)_cast\b|\*\s*\)\s*&"
)
_INTEGER = r"(?:(?:unsigned|signed)\s+)?(?:int|long\s+long|long|unsigned|u?int(?:32|64)_t|size_t|uint|ulong)(?:\s+int)?"
_QUALIFIERS = re.compile(r"\b(?:const|volatile|static|__shared__|extern|__device__|__restrict__|inline|constexpr)\b")
_PIECE = re.compile(r"[\w\s:*&]*+[^\w\s:*&]")
_NO_TYPE = re.compile(r"\b(?:return|else|case|goto)\b")
_ROOT = re.compile(r"[\s(&*]*([A-Za-z_]\w*)")


def adds_floats(hip: str) -> bool:
    """Whether the HIP source may add, or swap, floats atomically."""
    return _remembered(hip) if len(hip) <= CACHED_LENGTH else _adds_floats(hip)


def library_adds_in_any_order(functions: Iterable[ast.FunctionDef]) -> bool:
    """Whether a plan's functions name a library operator whose order of additions a device may choose."""
    nodes = (node for function in functions for node in ast.walk(function))
    return any(isinstance(node, ast.Attribute) and _LIBRARY.search(node.attr) for node in nodes)


@functools.lru_cache(maxsize=256)
def _remembered(hip: str) -> bool:
    return _adds_floats(hip)  # one verification asks several times


def _adds_floats(hip: str) -> bool:
    text = blank(hip)
    if not any(stem in text for stem in ("tomic", "red.", "atom.")):
        return False
    for found in _ATOMIC.finditer(text):
        swaps = bool(_SWAP.search(found.group()))
        root = _ROOT.match(text, found.end())
        if root is None or not _integer(text, root.group(1)) or (swaps and _PUNNED.search(text)):
            return True
    return False


def _integer(text: str, name: str) -> bool:
    """Whether a name has a visible declaration, and every one of them is of an integer."""
    between = r"(?:\*\s*(?:__restrict__|const|volatile)?\s*|\s|&)"
    declares = re.compile(rf"([\w:]+(?:\s+\w+)*?)\s*{between}\b{name}\b\s*(?=[,)\[;=({{])")
    # no declaration spans two pieces and few pieces hold the name; on the whole text the pattern takes milliseconds
    declared = [kind for piece in _PIECE.findall(text) if name in piece for kind in declares.findall(piece)]
    kinds = [" ".join(_QUALIFIERS.sub(" ", kind).split()) for kind in declared if not _NO_TYPE.search(kind)]
    return bool(kinds) and all(re.fullmatch(_INTEGER, kind) for kind in kinds)
