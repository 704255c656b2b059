"""Device functions and structures of kernels by rows, by name: their text, and what each stands on."""

from __future__ import annotations

from hipwright.engine.emit.odd_tiles import LOAD_INNER, LOAD_ODD, STORE_INNER
from hipwright.engine.emit.reduce_tiles import (
    BLOCK_REDUCE,
    BLOCK_REDUCE_EACH,
    COLUMN_REDUCE,
    JOIN_WAVES,
    KNOWN_WITHIN,
    PACKS_TESTED,
    SCAN_TILE,
    SUM_BEFORE,
    TAKE_TICKET,
    TEAM_COLLECT,
    TEAM_LAST,
    TEAM_MEET,
)
from hipwright.engine.emit.run_tiles import PACKS_BACK, RUNS
from hipwright.engine.emit.state_tiles import (
    EXPONENTIALS,
    EXPONENTIALS_APART,
    EXPONENTIALS_BLOCK,
    MOMENTS,
    MOMENTS_APART,
    MOMENTS_BLOCK,
    MOMENTS_LANES,
    SHUFFLE_EXPONENTIALS,
)
from hipwright.engine.emit.team_tiles import STASH_PACK, STASH_RUNS, STASH_TILE, TEAM_GATHER, TEAM_HAND
from hipwright.engine.emit.tiles import (
    LOAD_COLUMNS,
    LOAD_TILE,
    LOAD_WORDS,
    STAY_PACKED,
    STORE_COLUMNS,
    STORE_TILE,
    TILE,
    TILE_COUNT,
    WHOLE_PACKS,
    WRITE_BFLOAT16,
    WRITE_HALF,
)

STRUCTURES = {
    "Tile": TILE, "Moments": MOMENTS, "moments_with": MOMENTS_APART, "moments_lanes": MOMENTS_LANES,
    "moments_block": MOMENTS_BLOCK, "Exponentials": EXPONENTIALS, "exponentials_with": EXPONENTIALS_APART,
    "shuffle_exponentials": SHUFFLE_EXPONENTIALS, "exponentials_block": EXPONENTIALS_BLOCK,
    "write_float16": WRITE_HALF, "write_bfloat16": WRITE_BFLOAT16, "load_words": LOAD_WORDS,
    "load_tile": LOAD_TILE, "load_odd": LOAD_ODD,
    "store_tile": STORE_TILE, "load_inner": LOAD_INNER, "store_inner": STORE_INNER,
    "stay_packed": STAY_PACKED,
    "tile_count": TILE_COUNT, "whole_packs": WHOLE_PACKS, "packs_back": PACKS_BACK, "load_columns": LOAD_COLUMNS,
    "store_columns": STORE_COLUMNS, "known_within": KNOWN_WITHIN,
    "packs_tested": PACKS_TESTED,
    "block_reduce": BLOCK_REDUCE, "block_reduce_each": BLOCK_REDUCE_EACH,
    "column_reduce": COLUMN_REDUCE, "team_meet": TEAM_MEET, "team_last": TEAM_LAST,
    "team_collect": TEAM_COLLECT, "team_hand": TEAM_HAND, "team_gather": TEAM_GATHER,
    "stash_pack": STASH_PACK, "stash_tile": STASH_TILE, "stash_runs": STASH_RUNS,
    "take_ticket": TAKE_TICKET,
    "scan_tile": SCAN_TILE, "join_waves": JOIN_WAVES,
    "sum_before": SUM_BEFORE, **RUNS,
}  # fmt: skip
"""In the order in which a program holds them."""

NEEDS = {
    "load_tile": ("Tile", "load_words"), "load_odd": ("Tile", "load_tile", "load_words"),
    "store_tile": ("Tile",), "load_inner": ("Tile",), "store_inner": ("Tile",), "load_columns": ("Tile",),
    "store_columns": ("Tile",),
    "whole_packs": ("Tile",), "packs_back": ("Tile",),
    "write_float16": ("Tile",), "write_bfloat16": ("Tile",), **dict.fromkeys(RUNS, ("Tile",)),
    "moments_lanes": ("Moments",), "moments_block": ("Moments", "moments_lanes"),
    "Exponentials": ("shuffle_exponentials", "nan_max"), "moments_with": ("apart",), "exponentials_with": ("apart",),
    "exponentials_block": ("Exponentials",), "stash_pack": ("Tile",),
    "stash_tile": ("stash_pack",), "stash_runs": ("stash_pack",),
    "block_reduce_each": ("shuffle_xor",), "team_collect": ("lane_reduce",), "team_gather": ("block_reduce",),
    "sum_before": ("block_reduce",),
}  # fmt: skip
