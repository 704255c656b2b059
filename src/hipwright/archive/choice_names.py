"""Present names of choices in records of version 0.1. Readers of records translate; nothing is rewritten.

0.2.0 renames knobs and structural choices to the field's terms (docs/glossary.md), and the note "mind" of a proposal to
"author". A name of 0.1 is never used again with another meaning, so translating twice changes nothing. Programs keep
the knobs that their own text declares.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

KNOBS = {
    "FULL_K_K": "WHOLE_K",
    "FULL_K_M": "WHOLE_M",
    "FULL_K_N": "WHOLE_N",
    "COOP_BLOCKS": "TEAM",
    "LDS_TILES": "STASH",
    "RNN_RESIDENT": "RNN_KEEP",
    "TRANSPOSE_TILE": "TURN_TILE",
    "VECS": "PACKS",
}
"""{knob: its name in 0.1}. A knob that kernels do not share has a number at its end: "TEAM_2"."""
STRUCTURES = {
    "channels_last": "layout",
    "column_sums": "columns",
    "concat": "joined",
    "cooperative": "team",
    "intermediate": "again",
    "lds_cache": "stash",
    "peel": "edges",
    "row_cache": "cache",
    "stencil_width": "side",
}
"""{first part of a structural choice's key: its name in 0.1}, as in "cache:softmax_kernel"."""
VALUES = {("column_sums", "fused"): "on the way"}
"""{(first part of the key, value): the value in 0.1}."""

_KNOBS = {old: new for new, old in KNOBS.items()}
_STRUCTURES = {old: new for new, old in STRUCTURES.items()}
_VALUES = {(kind, old): new for (kind, new), old in VALUES.items()}
_NUMBER = re.compile(r"_\d+$")


def current_choices(choices: Mapping[str, Any]) -> dict[str, Any]:
    """The choices by their present names; those that have these already stay as they are."""
    return dict(_renamed(key, value, _KNOBS, _STRUCTURES, _VALUES) for key, value in choices.items())


def first_options(options: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """{choice: options} as 0.1 named them, for keys made of these names."""
    found = {}
    for key, values in options.items():
        pairs = [_renamed(key, value, KNOBS, STRUCTURES, VALUES) for value in values]
        found[pairs[0][0]] = [value for _, value in pairs]
    return found


def current_notes(notes: Mapping[str, Any]) -> dict[str, Any]:
    """A proposal's notes with "author" for "mind", in the notes of the screener and the bottleneck too."""
    out = {}
    for key, value in notes.items():
        nested = key in ("screener", "bottleneck") and isinstance(value, dict)
        out["author" if key == "mind" else key] = current_notes(value) if nested else value
    return out


def _renamed(
    key: str, value: Any, knobs: Mapping[str, str], structures: Mapping[str, str], values: Mapping[Any, Any]
) -> tuple[str, Any]:
    """(key, value) by the given tables; a table of values is asked by the present name of the kind."""
    kind, colon, subject = key.partition(":")
    if not colon:
        name, number = _NUMBER.sub("", key), _NUMBER.search(key)
        return knobs.get(name, name) + (number.group() if number else ""), value
    if isinstance(value, str):
        value = values.get((_STRUCTURES.get(kind, kind), value), value)
    return f"{structures.get(kind, kind)}:{subject}", value
