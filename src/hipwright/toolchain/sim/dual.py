"""Instructions that RDNA issues in pairs (VOPD): `first :: second`, as two that may follow each other.

Both read their sources before either writes, so the one that the other depends on comes second.
"""

from __future__ import annotations

import re

_REGISTER = re.compile(r"\bv(\d+)\b")
_KEEPS = re.compile(r"v_dual_(?:fmac|dot2acc)")
MARK = "::"


def halves(text: str) -> list[str]:
    """The two instructions of a pair in an order in which neither changes the other's sources; else the text alone."""
    first, second = (part.strip() for part in text.split(MARK, 1))
    if _result(first) not in _sources(second):
        return [_alone(first), _alone(second)]
    if _result(second) not in _sources(first):
        return [_alone(second), _alone(first)]
    return [text]


def _result(text: str) -> str:
    return str(_REGISTER.findall(text)[0])


def _sources(text: str) -> list[str]:
    """The vector registers that an instruction reads."""
    found = _REGISTER.findall(text)
    return found if _KEEPS.match(text) else found[1:]


def _alone(text: str) -> str:
    """The instruction by its name outside a pair; the mask of a selection is VCC."""
    plain = text.replace("v_dual_", "v_", 1)
    return f"{plain}, vcc_lo" if plain.startswith("v_cndmask_b32") and plain.count(",") == 2 else plain
