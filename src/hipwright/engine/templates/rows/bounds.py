"""Where the tiles of a pass end: what a thread takes of one, and which of its elements lie within the row, as text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hipwright.engine.fuse.groups import GroupMember
from hipwright.engine.ir.expr import FLOATING
from hipwright.engine.templates.base import depends
from hipwright.engine.templates.rows.reducers import ReducerState
from hipwright.engine.templates.sweep import Sweep, ThreadTile, offset

if TYPE_CHECKING:
    from hipwright.engine.templates.rows.kernel import RowKernel


class TileBounds:
    """One sweep's tiles, their sizes and ends."""

    def __init__(
        self, kernel: RowKernel, sweep: Sweep, level: int, made: list[ReducerState], full: list[GroupMember], vec: str
    ) -> None:
        self.k, self.sweep, self.level, self.made, self.full, self.vec = kernel, sweep, level, made, full, vec
        self.emit, self.kind = kernel.emit, kernel.body.index_type
        self.segmented = kernel.layout.segments and sweep is kernel.row_sweep
        self._size(kernel.items if sweep is kernel.row_sweep else kernel.layout.items)
        self.values = [s.value for s in made] + [m.value for m in full]

    # ------------------------------------------------------------ loops

    def _size(self, items: str) -> None:
        self.items = items
        self.extent = items if self.vec == "1" else f"{items} * {self.vec}"
        along = items if self.k.columns or self.vec == "1" else self.extent
        self.span = f"{self.k.threads.count} * {along}"  # elements of the row that a block takes at a time

    def _typed(self, text: str) -> str:
        return self.k.body.as_index(text)

    @property
    def end(self) -> str:
        """Where tiles end, as text."""
        return self._typed("bound" if self.segmented else self.sweep.length)

    def share(self, start: str, line: Callable[[str], None] | None = None) -> ThreadTile:
        """What this thread takes of a tile; line: how its declarations are written."""
        line = line or self.emit.line
        k, columns = self.k, self.k.columns
        scale = "" if columns or self.vec == "1" else f" * {self.vec}"
        lane = f"{k.threads.lane}{scale}"
        line(f"const {self.kind} base = {lane if start == '0' else f'{start} + {lane}'};")
        self.emit.used.add(("Tile", ""))
        full = "" if columns or k.edges else "full"
        if full:
            line(f"const bool full = {self._full()};  // does every tile end within the row?")
        step = self._typed(f"{k.threads.count}{scale}")
        most = self._typed(self.sweep.most)
        return ThreadTile(f"{self.items}, {self.vec}", "base", step, self.end, "width" if columns else "", full, most)

    def _full(self) -> str:
        """A test that costs nothing where sizes are constants, and then takes all others away."""
        sizes = [self.sweep.length]
        if self.segmented:
            sizes.append(self.emit.position(self.k.segments))
        some = [f"{_grouped(s)} > 0" for s in sizes if not s.isdigit() or s == "0"]
        return " && ".join([*some, f"{_grouped(self.sweep.length)} % ({self.span}) == 0"])

    def _open_elements(self, keep: bool) -> bool:
        """Open the loop over elements that lie within the row; by packs where a row's end may cut none.

        A test a pack leaves the elements of a pack side by side; one an element would put them one after another.
        """
        emit, columns = self.emit, self.k.columns
        by_packs = not columns and self.vec != "1" and not self._harmless(keep)
        emit.line("#pragma unroll")
        if not by_packs:
            emit.open(f"for (int k = 0; k < {self.items if columns else self.extent}; ++k)")
            if not self._harmless(keep):
                emit.line(f"if ({self._outside(keep, 'k')}) continue;")
            return False
        length, pack, element = _grouped(self.sweep.known), self._outside(keep, "pack"), self._outside(keep, "k")
        cut = f"{length} % {self.vec} != 0"
        if not self.sweep.known.isdigit():
            emit.used.add(("vector_test_pays", ""))
            tested = f"vector_test_pays({length})"
            pack, cut = f"{tested} && ({pack})", f"(!{tested} || {cut})"
        emit.open(f"for (int pack = 0; pack < {self.extent}; pack += {self.vec})")
        emit.line(f"if ({pack}) continue;")
        emit.line("#pragma unroll")
        emit.open(f"for (int k = pack; k < pack + {self.vec}; ++k)")
        if not self.k.edges:
            emit.line(f"if ({cut} && ({element})) continue;")
        return True

    def _harmless(self, keep: bool) -> bool:
        """May threads compute what no store takes? A test an element costs a waiting team registers."""
        k, sweep = self.k, self.sweep
        needless = k.edges or (k.team and self.segmented and k.layout.rest == "few")
        if not needless or not all(s.by_tile for s in self.made):
            return False
        stack = [*self.values]
        if any(m.item.name not in sweep.stores for m in self.full):
            return False
        while stack:
            e = stack.pop()
            stays = keep and e.id in k.kept and k.kept[e.id][1] < self.level
            if stays or not depends(e, k.inner, k.memo):
                continue
            packed = e.op == "load" and e.attr[2] in FLOATING and (e.attr[0], e.attr[1].key) in sweep.packs
            if not packed and e.op not in ("bin", "un", "fn", "cast"):
                return False
            stack += e.args
        return True

    def _alone(self, keep: bool) -> bool:
        """Is a row one tile, taken element by element?"""
        k = self.k
        parts = k.columns or k.team or self.segmented or k.layout.parts
        return keep and k.whole and not (parts or any(s.by_tile for s in self.made))

    def _outside(self, keep: bool, k: str) -> str:
        """Does element k lie behind the row? Of constant sizes the compiler sees which k do, and which may."""
        if self.k.columns:
            return self._outside_columns(keep)
        if not self._alone(keep):
            return f"{self._sure(keep, k)}{k} >= count"
        offset = self._offset(k)
        may = f"{self._sure(keep, k)}{offset} >= left"
        return f"{offset} >= {_grouped(self.sweep.known)} || ({may})" if self.k.fits else may

    def _offset(self, k: str) -> str:
        """How far element k of this thread's lies behind its first: `pack` is the first of a pack."""
        step, vec = self.k.threads.count, self.vec
        if vec == "1":
            return f"{k} * {step}"
        return f"{k} / {vec} * ({step} * {vec})" + (f" + {k} % {vec}" if k == "k" else "")

    def _outside_columns(self, keep: bool) -> str:
        """The same down a column."""
        step, length = self.k.threads.count, _grouped(self.sweep.length)
        if keep and not self.k.team:
            return f"k * {step} >= {length} || ((k + 1) * {step} > {length} && k >= count)"
        return f"!({self._full()}) && k >= count"

    def _sure(self, keep: bool, e: str) -> str:
        """A test that leaves out the elements e that every thread has, where that is known when compiling."""
        k = self.k
        if not keep or not k.whole or k.team or self.segmented or k.layout.parts:
            return ""
        step = k.threads.count
        if k.columns or self.vec == "1":
            return f"{e} >= {self.sweep.length} / {step} && "
        least = k.edges.least() if k.edges else self.sweep.length
        return f"{e} >= {least} / ({step} * {self.vec}) * {self.vec} && "

    def _index(self) -> str:
        k = self.k
        if k.columns or self.vec == "1":
            return f"base + k * {k.threads.count}"
        return offset(f"base + k / {self.vec} * ({k.threads.count} * {self.vec}) + k % {self.vec}", self.sweep.shift)


def _grouped(text: str) -> str:
    return f"({text})" if " " in text else text
