"""Which choices may relieve what limits a program: an order over the engine's choices for each limit.

The engine author draws from these first (`agents/engine_author.py`), and policies that reason by strategies name them
by the same words. An order is a preference, never a rule: every choice stays reachable.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hipwright.search.operators import Choices, Space, complete

LIMITS = ("memory", "latency", "occupancy", "issue", "lds", "tail")
"""What limits a program (docs/profile.md): bytes of memory or caches, waits that too few operations hide, few resident
waves, instructions or arithmetic, LDS, and a grid that does not fill the device evenly."""

MOVE = "move"
"""The key of an expansion's action that names a move, for policies that choose one."""
_NUMBER = re.compile(r"_\d+$")


@dataclass(frozen=True)
class Move:
    """A way to change a program. kinds: of choices, without the kernel's name and number; towards: values to prefer.

    towards: "up" or "down" along the options of a choice, "any" for another value.
    """

    name: str
    what: str
    kinds: tuple[str, ...]
    towards: Literal["up", "down", "any"] = "any"


_VECTOR = ("VEC", "ROW_VEC", "COLUMN_VEC", "SCAN_VEC")
_UNROLL = (
    "VECS",
    "ROW_ITEMS",
    "SCAN_ITEMS",
    "GEMV_UNROLL",
    "PACKED_UNROLL",
    "SKINNY_UNROLL",
    "FULL_K_UNROLL",
    "FULL_K_LOADS",
)
_BLOCKS = (
    "BLOCK",
    "ROW_BLOCK",
    "SCAN_BLOCK",
    "ATTN_BLOCK",
    "GEMV_BLOCK",
    "DECODE_BLOCK",
    "STENCIL_BLOCK",
    "TINY_BLOCK",
)
_TILES = (
    "GEMM_M",
    "GEMM_N",
    "FULL_K_M",
    "FULL_K_N",
    "SPLIT_M",
    "SPLIT_N",
    "ATTN_ROWS",
    "ATTN_KEYS",
    "RNN_ROWS",
    "RNN_SHARED_ROWS",
)
_STAGING = ("lds_cache", "row_cache", "LDS_TILES", "intermediate", "stages", "SPLIT_STAGES", "TRANSPOSE_TILE")

WIDER = Move("wider accesses", "load and store more bytes with each instruction", _VECTOR, "up")
STAGE = Move("staging", "keep what is read again in registers or LDS", _STAGING)
STREAM = Move(
    "streaming", "read once, fused with its neighbours, in the order of memory", ("fuse", "map", "weights", "join")
)
UNROLL = Move("unrolling", "give each thread several independent loads", _UNROLL, "up")
PREFETCH = Move("prefetch", "copy the next tile while this one is computed", ("stages", "SPLIT_STAGES", "GEMM_K"), "up")
RESIDENT = Move("more waves", "use fewer registers or less LDS for each block", (*_UNROLL, *_TILES), "down")
BLOCKS = Move("block size", "another number of threads in a block", _BLOCKS)
STRENGTH = Move("strength reduction", "do less arithmetic for each element", ("fuse_bias", "epilogue", "hoist", "map"))
PACKED = Move("packed arithmetic", "handle several elements with one instruction", _VECTOR, "up")
MATRIX = Move("matrix units", "another form of the product", ("call", "attention", "epilogue", "SPLIT_DIRECT"))
SWIZZLE = Move("padding", "another layout of LDS, or less of it", ("pad", "lds_cache", "TRANSPOSE_TILE", "map"))
SHUFFLE = Move("shuffles", "reduce in a wave before LDS is used", ("map", "LANES", "COLUMNS"))
SPLIT_WORK = Move(
    "split",
    "divide the work among more blocks",
    ("split", "cooperative", "COOP_BLOCKS", "RNN_SPLIT", "RNN_LANES"),
    "up",
)
PERSIST = Move("persistent blocks", "a block takes several pieces in turn", ("persistent", "VECS", "PLANES", "call"))
SMALLER = Move("smaller tiles", "more, smaller blocks", (*_TILES, *_BLOCKS), "down")

MOVES: Mapping[str, tuple[Move, ...]] = {
    "memory": (WIDER, STAGE, STREAM),
    "latency": (UNROLL, PREFETCH, RESIDENT, BLOCKS),
    "occupancy": (RESIDENT, BLOCKS, UNROLL),
    "issue": (PACKED, STRENGTH, MATRIX),
    "lds": (SWIZZLE, SHUFFLE, RESIDENT),
    "tail": (SPLIT_WORK, SMALLER, PERSIST),
}
"""The moves of each limit, the most promising first."""

EVERY_MOVE: Mapping[str, Move] = {move.name: move for moves in MOVES.values() for move in moves}


def choice_kind(key: str) -> str:
    """A choice's key without the kernel it is of: "map:softmax_2" -> "map", "BLOCK_2" -> "BLOCK",
    "call:linear:split" -> "split"."""
    parts = key.split(":")
    return _NUMBER.sub("", parts[0]) if len(parts) < 3 else parts[-1]


def keys_of(move: Move, space: Mapping[str, Any], kernel: str = "") -> list[str]:
    """The choices of a space that a move may change, those that name the kernel first.

    Without one that names it, all; the order is otherwise that of the move's kinds, then of the keys.
    """
    found = [key for kind in move.kinds for key in sorted(space) if choice_kind(key) == kind]
    mine = [key for key in found if kernel and ":" in key and _names(key, kernel)]
    others = [key for key in found if ":" not in key]
    return [*mine, *others] or found


def moved(
    space: Space, parent: Choices, moves: Sequence[Move], rng: random.Random, kernel: str = ""
) -> tuple[Choices, Move] | None:
    """The parent's choices with one changed by one of the moves, drawn with weight 1/2 of the one before it.

    None where no move has a choice with another value left.
    """
    full = complete(space, parent)
    offers = [(move, found) for move in moves if (found := _offers(space, full, move, kernel))]
    if not offers:
        return None
    move, options = rng.choices(offers, [0.5**place for place in range(len(offers))])[0]
    key, values = rng.choice(options)
    return {**full, key: rng.choice(values)}, move


def _offers(space: Space, full: Choices, move: Move, kernel: str) -> list[tuple[str, list[Any]]]:
    """(choice, values to try) of a move: one or two steps along the options, or any other value."""
    found = []
    for key in keys_of(move, space, kernel):
        options = list(space[key].options)
        place = options.index(full[key])
        values = {
            "up": options[place + 1 : place + 3],
            "down": options[max(place - 2, 0) : place],
            "any": options[:place] + options[place + 1 :],
        }[move.towards if space[key].kind == "knob" else "any"]
        if values:
            found.append((key, values))
    return found


def _names(key: str, kernel: str) -> bool:
    subject = key.split(":")[1]
    return bool(subject) and (subject in kernel or kernel.removesuffix("_exact") in subject)
