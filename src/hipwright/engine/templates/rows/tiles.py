"""The tiles of one pass over a row: what a thread loads, the loop over its elements, and what it stores."""

from __future__ import annotations

from hipwright.engine.fuse.groups import GroupMember
from hipwright.engine.templates.rows.bounds import TileBounds
from hipwright.engine.templates.rows.row_cache import TILE_NUMBER
from hipwright.engine.templates.rows.run_sums import bind_gathered
from hipwright.engine.templates.sweep import ThreadTile

CACHE_LOOP = "for (int cached = 0; cached < cached_tiles; ++cached)"


class Tiles(TileBounds):
    """The tiles of one sweep: the first, which may stay in registers, those in the row cache, and the rest."""

    # ------------------------------------------------------------ the tiles in order

    def first(self) -> None:
        """Writes the first tile, whose values stay in registers."""
        emit = self.emit
        self._prefetch()
        emit.open("")
        start = "0"
        if self.segmented:
            self._declare_segment("block_rank" if self.k.blocks else "0")
            start = "start"
        elif self.k.blocks:
            emit.line(f"const {self.kind} start = {self._typed(f'block_rank * ({self.span})')};")
            start = "start"
        if self.k.layout.chunked:
            self._first_in_chunks(start)
        else:
            self._tile(start, keep=True)
        emit.close()

    def _prefetch(self) -> None:
        """Loads what later passes need of all rows, before the first pass waits for its reductions."""
        k, sweep, body = self.k, self.sweep, self.k.body
        bounded = k.layout.launch_bounds or k.layout.static_bounds or not (k.whole or k.layout.prefetch)
        divided = k.blocks or k.columns or k.peeled or self.segmented
        if bounded or divided or k.prefetch_done or sweep is not k.row_sweep:
            return
        k.prefetch_done = True
        scale = "" if self.vec == "1" else f" * {self.vec}"
        lane, step = f"({self.kind}){k.threads.lane}{scale}", self._typed(f"{k.threads.count}{scale}")
        tile = ThreadTile(f"{self.items}, {self.vec}", lane, step, self._typed(sweep.length), full=self._all_full())
        for e in k.later_loads(self.level):
            access = sweep.access(e.attr[1], columns=False)
            if access is not None and (e.attr[0], e.attr[1].key) not in k.prefetched:
                k.prefetched[e.attr[0], e.attr[1].key] = sweep.load_tile(body, e, access, tile)

    def _first_in_chunks(self, start: str) -> None:
        """Writes the first tile a few vectors at a time: kept values are loaded at once, all else with its chunk."""
        k, emit, sweep, items = self.k, self.emit, self.sweep, self.items
        packed = [name for e, level, name in k.kept.values() if self._stays_packed(level) and k.kept_packed(e)]
        if any(level == self.level for _, level, _ in k.kept.values()):
            tile = self.thread_tile(start)
            known = {n for n, (_, level, _) in k.kept.items() if level < self.level}
            sweep.tiles = {}
            sweep.load_tiles(k.body, self.values, known, tile)
            k.whole_tiles = sweep.tiles
        end = self._typed("bound" if self.segmented else sweep.length)
        emit.taken.add("done")
        emit.line("#pragma unroll")
        emit.open(f"for (int done = 0; done < {items}; done += chunk_items)")
        self._set_items("chunk_items")
        step = k.threads.count if k.columns else f"({k.threads.count} * {self.vec})"
        first = f"{start} + done * {step}".removeprefix("0 + ")
        emit.line(f"if ({first} >= {end}) break;")
        self._tile(first, keep=True)
        emit.close()
        self._set_items(items)
        k.whole_tiles = {}
        for name in packed:
            emit.used.add("keep_packed")
            emit.line(f"keep_packed({name});")

    def _stays_packed(self, made: int) -> bool:
        """Whether what pass `made` keeps is packed again behind this pass: no float of it stays for the next."""
        return made == self.level or (self.k.columns and made < self.level < self.k.last_level)

    def rest(self, *, after_first: bool) -> None:
        """Writes the loop over all tiles, or over those after the first and those in the row cache."""
        emit, kind, blocks, layout = self.emit, self.kind, self.k.blocks, self.k.layout
        first_blocks, first_tiles = ("(block_rank + blocks)", "1") if after_first else ("block_rank", "0")
        begin = first_blocks if blocks else first_tiles
        begin = "(block_rank + blocks * (1 + cached_tiles))" if after_first and self.k.row_cache else begin
        span = self.span
        self.long_sums.open()
        self.column_moments.open()
        chunks = after_first and layout.rest_items == "chunks"
        if after_first and layout.rest_items and not self.segmented and not chunks:
            self._set_items(layout.rest_items)
        if self.segmented:
            emit.open(f"for ({kind} t = {begin}; t < {self._tile_count()}; t += {'blocks' if blocks else '1'})")
            self._declare_segment("t")
        else:
            start = begin if begin == "0" else self._typed(f"{begin} * ({span})".removeprefix("1 * "))
            step = self._typed(f"blocks * ({self.span})" if blocks else self.span)
            emit.open(f"for ({kind} start = {start}; start < {self.sweep.length}; start += {step})")
        if chunks:
            self._set_items("chunk_items")
            end = "bound" if self.segmented else self.sweep.length
            emit.taken.add("chunk_start")
            condition = f"chunk_start < start + {span} && chunk_start < {end}"
            emit.open(f"for ({kind} chunk_start = start; {condition}; chunk_start += {self._typed(self.span)})")
            self._tile("chunk_start", keep=False)
            emit.close()
        else:
            self._tile("start", keep=False)
        emit.close()
        self.long_sums.close()
        self.column_moments.close()

    def _tile_count(self) -> str:
        segments = self.emit.position(self.k.segments)
        return f"({segments}) * (({self.sweep.length} + {self.span} - 1) / ({self.span}))"

    def _declare_start(self, number: str) -> None:
        """Declares where tile `number` starts."""
        if self.segmented:
            self._declare_segment(number)
            return
        self.emit.line(f"const {self.kind} start = {self._typed(f'{number} * ({self.span})')};")

    def _declare_segment(self, number: str) -> None:
        """Declares the segment of the row that tile `number` belongs to, and where in it the tile starts."""
        emit, kind = self.emit, self.kind
        emit.line(f"const {kind} per_segment = ({self.sweep.length} + {self.span} - 1) / ({self.span});")
        emit.taken.add("per_segment")
        emit.line(f"const {kind} segment = {number} / per_segment;")
        emit.line(f"const {kind} start = {number} % per_segment * ({self.span});")
        segments = self.emit.position(self.k.segments)
        emit.line(f"const {kind} bound = segment < {segments} ? {self.sweep.length} : 0;")
        for line in self.k.segment_lines:
            emit.line(line)

    # ------------------------------------------------------------ the row cache

    def fill_row_cache(self) -> None:
        """Starts copying all tiles of the row cache, and waits for none."""
        cache = self.k.row_cache
        assert cache is not None
        cache.open_loop(CACHE_LOOP)
        self._declare_start(TILE_NUMBER)
        cache.copy(self.thread_tile("start", self.emit.line_if_used))
        self.emit.close()

    def cached(self) -> None:
        """Writes the loop over the tiles of the row cache, a few vectors at a time."""
        k, emit, cache = self.k, self.emit, self.k.row_cache
        assert cache is not None
        if self.level == 0:
            emit.line("cp_async_wait_all();")
        cache.open_loop(CACHE_LOOP)
        self._declare_start(TILE_NUMBER)
        cache.open_loop(f"for (int vec0 = 0; vec0 < {k.layout.items}; vec0 += chunk_items)")
        emit.line(f"const {self.kind} chunk_start = start + vec0 * ({k.layout.threads} * {k.vec});")
        emit.line(f"if (chunk_start >= {self.end}) break;")
        cache.writing = True
        items = self.items
        self._set_items("chunk_items")
        self._tile("chunk_start", keep=True)
        self._set_items(items)
        cache.writing = False
        emit.close()
        emit.close()

    # ------------------------------------------------------------ head and tail of unaligned rows

    def peeled_elements(self, *, keep: bool) -> None:
        """Writes the elements of head and tail: each as a tile of one."""
        k, emit, sweep, peeled = self.k, self.emit, self.k.row_sweep, self.k.peeled
        assert peeled is not None
        lane = k.threads.lane
        peeled.writing, k.index, k.kept_index = True, "0", "0"
        emit.open(f"if ({lane} < {sweep.max_length} - interior)")
        emit.line_if_used("constexpr int count = 1;")
        emit.line_if_used(f"const {self.kind} {sweep.variable} = {lane} < head ? {lane} : {lane} + interior;")
        for line in sweep.splits:
            emit.line_if_used(line)
        self._declare_state_tiles("1")
        if keep:
            self._name_kept()
        for s in self.made:
            s.add(emit, "", "0", "r")
        for member in self.full:
            self._store(member)
        self._add_state_tiles("")
        emit.close()
        peeled.writing = False

    # ------------------------------------------------------------ one tile

    def _tile(self, start: str, *, keep: bool) -> None:
        """Writes one tile: loads, the loop over its elements, and stores."""
        k, emit, sweep, columns = self.k, self.emit, self.sweep, self.k.columns
        known = {n for n, (_, made, _) in k.kept.items() if made < self.level or k.in_row_cache} if keep else set()
        tile = self.thread_tile(start)
        if self._single_tile(keep):
            span = self._typed(self.span)
            remaining = f"full ? {span} : {tile.bound} - base" if tile.full else f"{tile.bound} - base"
            emit.line(f"const {self.kind} remaining = {remaining};  // elements of the row from this thread's first on")
        else:
            emit.used.add("valid_elements")
            arguments = ", ".join(["base", tile.step, tile.bound, *filter(None, (tile.full,))])
            emit.line(f"const int count = valid_elements<{self.items}, {'1' if columns else self.vec}>({arguments});")
        sweep.tiles = {**k.prefetched, **k.whole_tiles} if keep and sweep is k.row_sweep else {}
        sweep.load_tiles(k.body, self.values, known, tile)
        k.tiles = sweep.tiles
        k.vector_buffers |= {buffer for buffer, _ in sweep.tiles}
        own = [m for m in self.full if m.item.name not in k.group.column_sums]
        sweep.declare_stores(k.body, own, self.extent, columns)
        if not columns:
            self._declare_state_tiles(self.extent)
        self._elements(keep)
        if not columns:
            self._add_state_tiles("")
        sweep.store_tiles(k.body, tile, k.threads.guard)
        sweep.tiles, sweep.stores = {}, {}
        k.tiles = {}

    def _elements(self, keep: bool) -> None:
        """Writes the loop over the tile's elements; down each column for the columns mapping."""
        k, emit, columns = self.k, self.emit, self.k.columns
        if columns:
            self.column_moments.open_tile(self.items)
            k.open_columns()
            self._declare_state_tiles(self.items)
            k.hoist(self.values, self.level if keep else 0)
        nested = self._open_elements(keep)
        emit.line_if_used(f"const {self.kind} {self.sweep.variable} = {self._element_index()};")
        for line in self.sweep.splits:
            emit.line_if_used(line)
        k.index = ("k" if self.vec == "1" else f"k * {self.vec} + v") if columns else "k"
        done = "done" if self.vec == "1" else f"done * {self.vec}"
        k.kept_index = f"{done} + {k.index}" if k.layout.chunked else k.index
        if keep:
            self._name_kept()
        for s in self.made:
            if k.group.run is not None:
                bind_gathered(emit, s.value)
            flat = "r" if not self.segmented else f"segment * {self.sweep.length} + r"
            s.add(emit, "[v]" if columns else "", "k", flat)
        for member in self.full:
            self._store(member)
        emit.close()
        if nested:
            emit.close()
        if columns:
            self._add_state_tiles("[v]")
            emit.close()
            self.column_moments.close_tile()

    def _declare_state_tiles(self, size: str) -> None:
        """Declares the values that states take a tile at a time."""
        for s in self.made:
            if s.by_tile:
                self.emit.line(f"{s.ctype} {s.name}_tile[{size}];")
        self.long_sums.open_tile()

    def _add_state_tiles(self, column: str) -> None:
        for s in self.made:
            if s.by_tile and not self.column_moments.add(s, f"{self._all_full()} ? {self.items} : count"):
                self.emit.line(f"{s.name}{column} = {s.add_tile}({s.name}{column}, {s.name}_tile, count);")
        self.long_sums.close_tile(column)

    def _name_kept(self) -> None:
        """Names the values that earlier passes kept; computes and stores those that this pass keeps."""
        k, element = self.k, f"[{self.k.kept_index}]"
        if k.row_cache and k.in_row_cache:
            for e, _, name in k.kept.values():
                self.emit.name(e, k.row_cache.element(e, name, self.vec))
            return
        for e, made, name in k.kept.values():
            if made < self.level:
                self.emit.name(e, k.kept_value(e, f"{k.kept_array(name)}{element}"))
        for e, made, name in k.kept.values():
            if made == self.level:
                packed = k.kept_packed(e)
                text = self.emit.read(e, self.emit.position(e.attr[1])) if packed else self.emit.text(e)[0]
                self.emit.line(f"{k.kept_array(name)}{element} = {text};")
                self.emit.name(e, k.kept_value(e, f"{k.kept_array(name)}{element}"))

    def _store(self, member: GroupMember) -> None:
        """Writes one element of a member to its column sum, its tile, or memory."""
        k, emit = self.k, self.emit
        if k.column_sums and member.item.name in k.column_sums.names:
            emit.line(f"{k.column_sums.names[member.item.name]}.v[{k.index}] += {emit.text(member.value)[0]};")
            return
        found = self.sweep.stores.get(member.item.name)
        if found:
            text = k.body.in_tile(member, emit.text(member.value)[0])
            emit.line(f"{found[0]}.v[{k.index}] = {text};")
            return
        guards = [g for g in (k.threads.guard, "v < width" if k.columns else "") if g]
        if guards:
            emit.open(f"if ({' && '.join(guards)})")
        emit.line(k.body.store(member, emit.text(member.value)[0], emit.position(member.position)))
        if guards:
            emit.close()
