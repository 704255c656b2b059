"""What a row kernel knows while it writes its passes: which values stay in registers, and which tiles are loaded."""

from __future__ import annotations

from collections.abc import Iterator

from hipwright.engine.fuse.groups import FULL, PART, GroupMember
from hipwright.engine.ir.expr import ROUNDING, STORAGE, E
from hipwright.engine.ir.index import product
from hipwright.engine.templates.access import unconditional_loads
from hipwright.engine.templates.base import Body
from hipwright.engine.templates.rows.layout import RowLayout
from hipwright.engine.templates.rows.reducers import levels, nan_ignoring, pairs
from hipwright.engine.templates.rows.row_cache import RowCache
from hipwright.engine.templates.rows.scope import RowScope, elements
from hipwright.engine.templates.rows.unaligned import PeeledRows

MAX_KEPT = 3
"""Values for each element of a row that may stay in registers."""


class RowState(RowScope):
    """The state of one row kernel. Passes are numbered by `level`."""

    def __init__(self, body: Body, layout: RowLayout) -> None:
        super().__init__(body, layout)
        self.tiles: dict[tuple[str, str], str] = {}  # (buffer, position) -> the tile that holds it
        self.index = ""  # of the element that is being written, in its tile
        self.vector_buffers: set[str] = set()  # buffers that are loaded by vectors
        self.whole_tiles: dict[tuple[str, str], str] = {}  # tiles loaded whole, where the row is processed in chunks
        self.kept_index = ""  # of the element that is being written, in arrays of kept values and whole tiles
        self.prefetched: dict[tuple[str, str], str] = {}  # tiles loaded before the pass that needs them
        self.prefetch_done = False
        self.fits: bool | None = None  # whether a row fits registers in the branch being written; None: no branches
        self.peeled: PeeledRows | None = None
        self.row_cache: RowCache | None = None
        self.items = layout.items
        self.registers = False

    @property
    def whole(self) -> bool:
        """Whether a row is one tile."""
        return self.layout.whole or bool(self.fits)

    @property
    def in_row_cache(self) -> bool:
        """Whether a tile of the row cache is being processed."""
        return self.row_cache is not None and self.row_cache.writing

    # ------------------------------------------------------------ passes

    def _analyse(self) -> None:
        """Determines the pass of each reduction, and which pairs of reductions are online."""
        members = self.group.members
        self.online = {} if self.layout.registers and self.whole and not self.blocks else pairs(members)
        self.levels = levels(members, self.online)
        self.ignoring_nan = nan_ignoring(members, set(self.body.need.stores))

    @property
    def last_level(self) -> int:
        """The number of the last pass."""
        full = [self.levels[f"={m.item.name}"] for m in self.body.stored if m.role in (FULL, PART)]
        reductions = [self.levels[m.item.name] for m in self.group.members if m.role == "red"]
        return max([*full, *reductions])

    def members_at(self, level: int) -> list[GroupMember]:
        """The members that a pass evaluates along the row."""
        reductions = [m for m in self.group.members if m.role == "red" and self.levels[m.item.name] == level]
        reductions = [m for m in reductions if m.item.name not in self.online]
        return reductions + [m for m in self.body.stored if m.role == FULL and self.levels[f"={m.item.name}"] == level]

    def later_loads(self, level: int) -> Iterator[E]:
        """Loads of later passes that no pass before has kept, of whole tensors or of all along the row.

        If so laid out, all others too.
        """
        c, size = self.body.c, product(self.group.space)
        for after in range(level + 1, self.last_level + 1):
            known = {number for number, (_, made, _) in self.kept.items() if made < after}
            for e in unconditional_loads([m.value for m in self.members_at(after)], known):
                numel = self.body.need.numels.get(e.attr[0])
                least = self.row_sweep.width if self.layout.prefetch_shared else size
                if numel is not None and (self.layout.prefetch_operands or c.hint(numel) >= c.hint(least)):
                    yield e

    # ------------------------------------------------------------ kept values

    def _choose_kept(self) -> bool:
        """Chooses values that one pass computes per element and a later one needs; returns whether they are kept.

        Of columns that are held as memory has them, these are loads.
        """
        loads_alone = self.columns and self.layout.chunked
        seen: dict[int, int] = {}
        found: dict[int, E] = {}
        for level in range(self.last_level + 1):
            values = [m.value for m in self.members_at(level)]
            before = {number for number, made in seen.items() if made < level}
            for e in elements(values, self.inner, self.memo, before):
                if loads_alone and e.op != "load":
                    continue
                if seen.setdefault(e.id, level) < level:
                    found[e.id] = e
        if not 0 < len(found) <= MAX_KEPT:
            return False
        for number, e in sorted(found.items()):
            name = self.emit.fresh(f"{e.label or (e.attr[0] if e.op == 'load' else 'kept')}_row")
            self.kept[number] = (e, seen[number], name)
        return True

    def kept_packed(self, e: E) -> bool:
        """Whether a kept value stays as memory has it: narrow floats of a chunked row."""
        return self.layout.chunked and e.op == "load" and e.attr[2] in ROUNDING and e.ctype == "float"

    def kept_type(self, e: E) -> str:
        """The C type in which a kept value stays."""
        return STORAGE[e.attr[2]] if self.kept_packed(e) else e.ctype

    def kept_array(self, name: str) -> str:
        """The array of a kept value for the tile being written."""
        return self.peeled.array(name) if self.peeled else name

    def kept_value(self, e: E, element: str) -> str:
        """A kept value as passes compute with it. element: its place in the array, as text."""
        return f"{e.ctype}({element})" if self.kept_packed(e) else element
