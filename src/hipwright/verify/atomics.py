"""Do a program's kernels add floats atomically? Then the order of additions, and the last bits, are open. No torch.

Read from the text, so it errs towards yes: an atomic counts unless its target is seen to be an integer. A no makes
results that differ between two runs a fault; a yes leaves them to the tolerance.
"""

from __future__ import annotations

import re

from hipwright.program.signature import blank

_ATOMIC = re.compile(
    r"\b(?:atomic(?:Add|Sub|CAS)|unsafeAtomicAdd|safeAtomicAdd|__(?:hip_)?atomic_(?:fetch_)?(?:add|sub|compare_exchange)\w*"
    r"|__atomic_\w*(?:add|sub|compare_exchange)\w*|atomicrmw|red\.\w+|atom\.\w+)\s*(?:_system|_block)?\s*\("
)
_SWAP = re.compile(r"CAS|compare_exchange")
_PUNNED = re.compile(
    r"__(?:float|int|uint|double|longlong|half|ushort|short)_as_|\b(?:reinterpret|bit)_cast\b|\*\s*\)\s*&"
)
_INTEGER = r"(?:(?:unsigned|signed)\s+)?(?:int|long\s+long|long|unsigned|u?int(?:32|64)_t|size_t|uint|ulong)(?:\s+int)?"
_QUALIFIERS = re.compile(r"\b(?:const|volatile|static|__shared__|extern|__device__|__restrict__|inline|constexpr)\b")
_NO_TYPE = re.compile(r"\b(?:return|else|case|goto)\b")
_ROOT = re.compile(r"[\s(&*]*([A-Za-z_]\w*)")


def adds_floats(hip: str) -> bool:
    """Whether the HIP source may add, or swap, floats atomically."""
    text = blank(hip)
    for found in _ATOMIC.finditer(text):
        swaps = bool(_SWAP.search(found.group()))
        root = _ROOT.match(text, found.end())
        if root is None or not _integer(text, root.group(1)) or (swaps and _PUNNED.search(text)):
            return True
    return False


def _integer(text: str, name: str) -> bool:
    """Whether every declaration of a name that can be seen is of an integer, and there is one."""
    between = r"(?:\*\s*(?:__restrict__|const|volatile)?\s*|\s|&)"
    declared = re.findall(rf"([\w:]+(?:\s+\w+)*?)\s*{between}\b{name}\b\s*(?=[,)\[;=({{])", text)
    kinds = [" ".join(_QUALIFIERS.sub(" ", kind).split()) for kind in declared if not _NO_TYPE.search(kind)]
    return bool(kinds) and all(re.fullmatch(_INTEGER, kind) for kind in kinds)
