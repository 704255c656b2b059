"""The bounds of a pass's tiles: what a thread takes of a tile, and which of its elements lie within the row."""

from __future__ import annotations

from collections.abc import Callable

from hipwright.engine.fuse.groups import GroupMember
from hipwright.engine.ir.expr import FLOATING
from hipwright.engine.ir.index import divide
from hipwright.engine.templates.base import depends
from hipwright.engine.templates.rows.column_moments import ColumnMoments
from hipwright.engine.templates.rows.long_sums import LongSums
from hipwright.engine.templates.rows.reducers import ReducerState
from hipwright.engine.templates.rows.state import RowState
from hipwright.engine.templates.sweep import Sweep, ThreadTile, offset

PART_NAMES = {2: "half_items", 3: "third_items", 4: "quarter_items"}


class TileBounds:
    """The tiles of one sweep: their sizes and ends. `keep`: whether the tile's values stay in registers."""

    def __init__(
        self, state: RowState, sweep: Sweep, level: int, made: list[ReducerState], full: list[GroupMember], vec: str
    ) -> None:
        self.k, self.sweep, self.level, self.made, self.full, self.vec = state, sweep, level, made, full, vec
        self.emit, self.kind = state.emit, state.body.index_type
        self.segmented = state.layout.segments and sweep is state.row_sweep
        self._set_items(state.items if sweep is state.row_sweep else self._part_items())
        self.values = [s.value for s in made] + [m.value for m in full]
        self.long_sums = LongSums(state.emit, state.layout, made)
        self.column_moments = ColumnMoments(state.emit, state.layout, made)

    def _part_items(self) -> str:
        """The vectors of a part of the row that a thread loads at once: as large a share as the part is of the row."""
        items = self.k.layout.items
        ratio = divide(self.k.width, self.sweep.width).value or 1
        if ratio < 2:
            return items
        if items.isdigit():
            return str(-(-int(items) // ratio))
        name = self.emit.fresh(PART_NAMES.get(ratio, f"items_of_{ratio}"))
        self.emit.line(f"constexpr int {name} = ({items} + {ratio - 1}) / {ratio};  // vectors of a part of the row")
        return name

    def _set_items(self, items: str) -> None:
        """Sets the vectors of a thread's tile; span: the elements of the row that its threads take together."""
        self.items = items
        self.extent = items if self.vec == "1" else f"{items} * {self.vec}"
        along = items if self.k.columns or self.vec == "1" else self.extent
        self.span = f"{self.k.threads.count} * {along}"

    def _typed(self, text: str) -> str:
        return self.k.body.as_index(text)

    @property
    def end(self) -> str:
        """Where the tiles end, as text."""
        return self._typed("bound" if self.segmented else self.sweep.length)

    def thread_tile(self, start: str, line: Callable[[str], None] | None = None) -> ThreadTile:
        """Declares what this thread takes of the tile at `start`; line: how the declarations are emitted."""
        line = line or self.emit.line
        k, columns = self.k, self.k.columns
        scale = "" if columns or self.vec == "1" else f" * {self.vec}"
        lane = f"{k.threads.lane}{scale}"
        line(f"const {self.kind} base = {lane if start == '0' else f'{start} + {lane}'};")
        self.emit.used.add("Tile")
        full = "" if columns or k.peeled else "full"
        if full:
            line(f"const bool full = {self._all_full()};  // whether the row is a whole number of tiles")
        step = self._typed(f"{k.threads.count}{scale}")
        limit = self._typed(self.sweep.max_length)
        return ThreadTile(f"{self.items}, {self.vec}", "base", step, self.end, "width" if columns else "", full, limit)

    def _all_full(self) -> str:
        """Whether the row is a whole number of tiles: a constant at compile time where sizes are."""
        sizes = [self.sweep.length]
        if self.segmented:
            sizes.append(self.emit.position(self.k.segments))
        positive = [f"{_grouped(s)} > 0" for s in sizes if not s.isdigit() or s == "0"]
        return " && ".join([*positive, f"{_grouped(self.sweep.length)} % ({self.span}) == 0"])

    # ------------------------------------------------------------ elements within the row

    def _open_elements(self, keep: bool) -> bool:
        """Opens the loop over the elements within the row; returns whether it is nested in one over vectors.

        A test per vector leaves the elements of a vector side by side; one per element would order them one by one.
        """
        emit, columns = self.emit, self.k.columns
        untested = self._needs_no_test(keep)
        by_vectors = not columns and self.vec != "1" and not untested
        emit.line("#pragma unroll")
        if not by_vectors:
            emit.open(f"for (int k = 0; k < {self.items if columns else self.extent}; ++k)")
            if not untested:
                emit.line(f"if ({self._outside(keep, 'k')}) continue;")
            return False
        length, vector, element = (
            _grouped(self.sweep.known_length),
            self._outside(keep, "vector"),
            self._outside(keep, "k"),
        )
        cut = f"{length} % {self.vec} != 0"
        if not self.sweep.known_length.isdigit() and not self.k.peeled:  # there no element is tested by itself
            emit.used.add("vector_test_pays")
            pays = f"vector_test_pays({length})"
            vector, cut = f"{pays} && ({vector})", f"(!{pays} || {cut})"
        emit.open(f"for (int vector = 0; vector < {self.extent}; vector += {self.vec})")
        emit.line(f"if ({vector}) continue;")
        emit.line("#pragma unroll")
        emit.open(f"for (int k = vector; k < vector + {self.vec}; ++k)")
        if not self.k.peeled:
            emit.line(f"if ({cut} && ({element})) continue;")
        return True

    def _needs_no_test(self, keep: bool) -> bool:
        """Whether elements beyond the row may be computed, because nothing takes their values.

        A test per element costs waiting cooperative blocks registers.
        """
        k, sweep = self.k, self.sweep
        avoid = k.peeled or (k.blocks and self.segmented and k.layout.rest_items == "chunks")
        if not avoid or not all(s.by_tile for s in self.made):
            return False
        stack = [*self.values]
        if any(m.item.name not in sweep.stores for m in self.full):
            return False
        while stack:
            e = stack.pop()
            kept = keep and e.id in k.kept and k.kept[e.id][1] < self.level
            if kept or not depends(e, k.inner, k.memo):
                continue
            loaded = e.op == "load" and e.attr[2] in FLOATING and (e.attr[0], e.attr[1].key) in sweep.tiles
            if not loaded and e.op not in ("bin", "un", "fn", "cast"):
                return False
            stack += e.args
        return True

    def _single_tile(self, keep: bool) -> bool:
        """Whether a row is one tile whose reductions take single elements."""
        k = self.k
        divided = k.columns or k.blocks or self.segmented or k.layout.chunked
        return keep and k.whole and not (divided or any(s.by_tile for s in self.made))

    def _outside(self, keep: bool, k: str) -> str:
        """Whether element k, or the vector that begins at it, lies beyond the row.

        With constant sizes the compiler decides it for all but the last vectors.
        """
        if self.k.columns:
            return self._outside_columns(keep)
        if not self._single_tile(keep):
            return f"{self._skip_certain(keep, k)}{k} >= count"
        distance = self._distance(k)
        outside = f"{self._skip_certain(keep, k)}{distance} >= remaining"
        return f"{distance} >= {_grouped(self.sweep.known_length)} || ({outside})" if self.k.fits else outside

    def _distance(self, k: str) -> str:
        """The distance in the row of a thread's element k from its first; k: "k", or "vector" for a vector's first."""
        step, vec = self.k.threads.count, self.vec
        if vec == "1":
            return f"{k} * {step}"
        return f"{k} / {vec} * ({step} * {vec})" + (f" + {k} % {vec}" if k == "k" else "")

    def _outside_columns(self, keep: bool) -> str:
        """Whether element k of a column lies beyond its end."""
        step, length = self.k.threads.count, _grouped(self.sweep.length)
        if keep and self.k.layout.chunked:
            return f"(done + k + 1) * {step} > {length} && k >= count"
        if keep and not self.k.blocks:
            return f"k * {step} >= {length} || ((k + 1) * {step} > {length} && k >= count)"
        return f"!({self._all_full()}) && k >= count"

    def _skip_certain(self, keep: bool, e: str) -> str:
        """A condition that is false at compile time for the elements that every thread has, or ""."""
        k = self.k
        if not keep or not k.whole or k.blocks or self.segmented or k.layout.chunked:
            return ""
        step = k.threads.count
        if k.columns or self.vec == "1":
            return f"{e} >= {self.sweep.length} / {step} && "
        least = k.peeled.minimum() if k.peeled else self.sweep.length
        return f"{e} >= {least} / ({step} * {self.vec}) * {self.vec} && "

    def _element_index(self) -> str:
        """The index in the row of element k."""
        k = self.k
        if k.columns or self.vec == "1":
            return f"base + k * {k.threads.count}"
        return offset(f"base + k / {self.vec} * ({k.threads.count} * {self.vec}) + k % {self.vec}", self.sweep.offset)


def _grouped(text: str) -> str:
    return f"({text})" if " " in text else text
