"""How a kernel that reduces down columns is laid out by default: neighbouring threads on neighbouring columns."""

from __future__ import annotations

from hipwright.engine.ir.expr import walk
from hipwright.engine.ir.index import Var, ix
from hipwright.engine.layout.pointwise import AT_ONCE, FEW_BLOCKS, MOST_TEAM, RESIDENT, TEAM_KEPT, fills, power
from hipwright.engine.layout.reductions import ReductionPlanner
from hipwright.engine.templates.access import linear
from hipwright.engine.templates.rows.layout import RowLayout

BUSY_COLUMNS = 528
"""Blocks down columns that keep any of today's devices busy. They have 40 registers a thread or more: four of 256
threads on each multiprocessor of an H200. Twice as many were a round and a half."""
FULL_COLUMNS = RESIDENT
"""Packs of columns with which a thread for each fills the device: nobody need share a column, and what lanes add up,
test and exchange for a share of one column would be most of the work."""
SHORT_COLUMN = 1280
"""Rows that the 64 threads down a column of a block of 512 sum in a few steps each."""
SHORT_BAG, PICKED_ROWS = 64, 8
"""Rows up to which few lanes sum a bag, each asking for so many at once: what lanes share costs more than the loads."""


def columns(plan: ReductionPlanner, registers: bool) -> RowLayout:
    """The layout of a kernel whose rows are columns of memory; registers: they stay there between passes."""
    group = plan.group
    stays = [k for k in range(len(group.space)) if k not in group.dims]
    across = plan.c.hint(group.space[stays[-1]])
    vec = plan.vector([across]) if _dense(plan, group.variables[stays[-1]]) else 1
    packs = -(-across // vec)
    share, threads = 32, 256
    kept = max(TEAM_KEPT, 4 * vec)  # four packs under way
    if registers:
        threads, share, kept = _column_block(plan, vec)
    while share > 8 and share >= 2 * packs and packs < 32:
        share //= 2
    if not registers and _short_columns(plan, packs):
        threads, share = 512, 8
    many = plan.rows >= BUSY_COLUMNS * vec * share
    if not registers and many and plan.length <= SHORT_BAG and plan.picks():
        threads, kept = max(64, share * power(-(-plan.length // PICKED_ROWS))), PICKED_ROWS * vec
    elif not registers and plan.rows >= FULL_COLUMNS * vec:
        threads = share = 64
    lanes = threads // share
    items = min(-(-plan.length // lanes), max(kept // vec, 1))
    blocks = -(-plan.rows // (vec * share))
    layout = RowLayout("columns", plan.knob("BLOCK", threads), plan.knob("COLUMNS", share))
    plan.pack(layout, "COLUMN_VEC", vec, items)
    layout.registers = registers
    layout.rest_items = "1" if plan.length <= lanes * items else layout.items
    layout.whole = plan.static is not None and 0 < plan.static <= lanes * max(kept // vec, 1)
    shares = min(BUSY_COLUMNS // max(blocks, 1), plan.length // (lanes * 16))
    if not plan.follows and plan.length >= 512 and not plan.overwrites():
        default = blocks < FEW_BLOCKS and shares >= 2
        if plan.choose(f"team:{plan.body.name}", (False, True), default):
            layout.blocks = _team(plan, blocks, max(shares, 2))
    return layout


def _team(plan: ReductionPlanner, blocks: int, shares: int) -> str:
    """The knob of how many blocks share a column: all of the device, each as many."""
    default = min(shares, 2 * MOST_TEAM)
    return plan.knob("TEAM", default, more=fills(blocks) | {default})


def _short_columns(plan: ReductionPlanner, packs: int) -> bool:
    """Are columns so few and so short that blocks a line of memory wide are enough, and no team need meet?"""
    lines = max(plan.rows // max(plan.c.hint(plan.group.outer[-1]), 1), 1)
    few = packs >= 32 and packs * lines < FEW_BLOCKS * 32
    return few and 512 <= plan.length <= SHORT_COLUMN and plan.rows * plan.length <= 4 * AT_ONCE


def _column_block(plan: ReductionPlanner, vec: int) -> tuple[int, int, int]:
    """(threads, packs side by side, values a thread keeps): the widest rows whose columns stay in registers."""
    for threads, share, most in ((256, 32, 32), (256, 16, 48), (512, 16, 32), (512, 8, 32)):
        kept = max(most // plan.arrays(), TEAM_KEPT)
        if plan.length <= threads // share * (kept // vec) and share * vec >= 32:
            return threads, share, kept
    return 1024, max(32 // vec, 8), TEAM_KEPT


def _dense(plan: ReductionPlanner, variable: Var) -> bool:
    """Do neighbouring columns lie side by side in some access?"""
    values = [m.value for m in plan.group.members]
    positions = [e.attr[1] for e in walk(values) if e.op == "load"]
    found = (linear(p, variable.name) for p in positions)
    return any(f is not None and f[0] == ix(1) for f in found)
