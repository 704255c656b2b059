"""The tiles of one pass over a row, as text: what a thread asks for, the loop over its elements, what it writes."""

from __future__ import annotations

from hipwright.engine.fuse.groups import GroupMember
from hipwright.engine.templates.rows.bounds import TileBounds
from hipwright.engine.templates.sweep import ThreadTile


class Tiles(TileBounds):
    """The tiles of one sweep: the first, which may stay in registers, and the rest."""

    def _ahead(self) -> None:
        """Ask for what later passes read of all rows before the first waits for its reductions."""
        k, sweep, body = self.k, self.sweep, self.k.body
        bounded = k.layout.bounds or k.layout.exact_bounds or not (k.whole or k.layout.ahead)
        parted = k.team or k.columns or k.edges or self.segmented
        if bounded or parted or k.asked or sweep is not k.row_sweep:
            return
        k.asked = True
        scale = "" if self.vec == "1" else f" * {self.vec}"
        lane, step = f"({self.kind}){k.threads.lane}{scale}", self._typed(f"{k.threads.count}{scale}")
        share = ThreadTile(f"{self.items}, {self.vec}", lane, step, self._typed(sweep.length), full=self._full())
        for e in k.later(self.level):
            place = sweep.place(e.attr[1], columns=False)
            if place is not None and (e.attr[0], e.attr[1].key) not in k.ahead:
                k.ahead[e.attr[0], e.attr[1].key] = sweep.ask(body, e, place, share)

    def first(self) -> None:
        """The first tile, whose values stay."""
        emit = self.emit
        self._ahead()
        emit.open("")
        start = "0"
        if self.segmented:
            self._segment("part" if self.k.team else "0")
            start = "start"
        elif self.k.team:
            emit.line(f"const {self.kind} start = {self._typed(f'part * ({self.span})')};")
            start = "start"
        if self.k.layout.parts:
            self._in_parts(start)
        else:
            self._tile(start, keep=True)
        emit.close()

    def _in_parts(self, start: str) -> None:
        """The first tile a few packs at a time: what stays is asked for at once, all else when its turn comes."""
        k, emit, sweep, items = self.k, self.emit, self.sweep, self.items
        made = [name for e, level, name in k.kept.values() if level == self.level and k.as_read(e)]
        if any(level == self.level for _, level, _ in k.kept.values()):
            share = self.share(start)
            known = {n for n, (_, level, _) in k.kept.items() if level < self.level}
            sweep.packs = {}
            sweep.read(k.body, self.values, known, share)
            k.held = sweep.packs
        end = self._typed("bound" if self.segmented else sweep.length)
        emit.taken.add("held")
        emit.line("#pragma unroll")
        emit.open(f"for (int held = 0; held < {items}; held += few)")
        self._size("few")
        first = f"{start} + held * ({k.threads.count} * {self.vec})".removeprefix("0 + ")
        emit.line(f"if ({first} >= {end}) break;")
        self._tile(first, keep=True)
        emit.close()
        self._size(items)
        k.held = {}
        for name in made:
            emit.used.add(("keep_packed", ""))
            emit.line(f"keep_packed({name});")

    def rest(self, *, after_first: bool) -> None:
        """All tiles, or those after the first."""
        emit, kind, team = self.emit, self.kind, self.k.team
        begin = {(False, False): "0", (False, True): "1", (True, False): "part", (True, True): "(part + team)"}[
            bool(team), after_first
        ]
        begin = "(part + team * (1 + stashed))" if after_first and self.k.stash else begin
        skipped = self.span
        few = after_first and self.k.layout.rest == "few"
        if after_first and self.k.layout.rest and not self.segmented and not few:
            self._size(self.k.layout.rest)
        if self.segmented:
            emit.open(f"for ({kind} t = {begin}; t < {self._tiles()}; t += {'team' if team else '1'})")
            self._segment("t")
        else:
            start = begin if begin == "0" else self._typed(f"{begin} * ({skipped})".removeprefix("1 * "))
            step = self._typed(f"team * ({self.span})" if team else self.span)
            emit.open(f"for ({kind} start = {start}; start < {self.sweep.length}; start += {step})")
        if few:
            self._size("few")
            end = "bound" if self.segmented else self.sweep.length
            emit.taken.add("at")
            emit.open(f"for ({kind} at = start; at < start + {skipped} && at < {end}; at += {self._typed(self.span)})")
            self._tile("at", keep=False)
            emit.close()
        else:
            self._tile("start", keep=False)
        emit.close()

    def begin(self, number: str) -> None:
        """Where tile `number` starts."""
        if self.segmented:
            self._segment(number)
            return
        self.emit.line(f"const {self.kind} start = {self._typed(f'{number} * ({self.span})')};")

    def few(self, start: str) -> None:
        """A few packs of a tile that stays."""
        items = self.items
        self._size("few")
        self._tile(start, keep=True)
        self._size(items)

    def _tiles(self) -> str:
        segments = self.emit.position(self.k.segments)
        return f"({segments}) * (({self.sweep.length} + {self.span} - 1) / ({self.span}))"

    def _segment(self, number: str) -> None:
        """Which run of the row tile `number` belongs to, and where in it."""
        emit, kind = self.emit, self.kind
        emit.line(f"const {kind} per_segment = ({self.sweep.length} + {self.span} - 1) / ({self.span});")
        emit.taken.add("per_segment")
        emit.line(f"const {kind} segment = {number} / per_segment;")
        emit.line(f"const {kind} start = {number} % per_segment * ({self.span});")
        inside = self.emit.position(self.k.segments)
        emit.line(f"const {kind} bound = segment < {inside} ? {self.sweep.length} : 0;")
        for line in self.k.segment_lines:
            emit.line(line)

    # ------------------------------------------------------------ one tile

    def _tile(self, start: str, *, keep: bool) -> None:
        k, emit, sweep, columns = self.k, self.emit, self.sweep, self.k.columns
        known = {n for n, (_, made, _) in k.kept.items() if made < self.level or k.stashing} if keep else set()
        share = self.share(start)
        if self._alone(keep):
            span = self._typed(self.span)
            left = f"full ? {span} : {share.bound} - base" if share.full else f"{share.bound} - base"
            emit.line(f"const {self.kind} left = {left};  // in the row from this thread's first")
        else:
            emit.used.add(("valid_elements", ""))
            counted = ", ".join(["base", share.step, share.bound, *filter(None, (share.full,))])
            emit.line(f"const int count = valid_elements<{self.items}, {'1' if columns else self.vec}>({counted});")
        sweep.packs = {**k.ahead, **k.held} if keep and sweep is k.row_sweep else {}
        sweep.read(k.body, self.values, known, share)
        k.packs = sweep.packs
        k.packed |= {buffer for buffer, _ in sweep.packs}
        own = [m for m in self.full if m.item.name not in k.group.crossed]
        sweep.declare_stores(k.body, own, self.extent, columns)
        if not columns:
            self._declare_tiles(self.extent)
        self._elements(keep)
        if not columns:
            self._take_tiles("")
        sweep.write(k.body, share, k.threads.guard)
        sweep.packs, sweep.stores = {}, {}
        k.packs = {}

    def _declare_tiles(self, size: str) -> None:
        for s in self.made:
            if s.by_tile:
                self.emit.line(f"{s.ctype} {s.name}_tile[{size}];")

    def _elements(self, keep: bool) -> None:
        """The loop over the tile's elements; down each column for the columns mapping."""
        k, emit, columns = self.k, self.emit, self.k.columns
        if columns:
            k.open_columns()
            self._declare_tiles(self.items)
            k.hoist(self.values, self.level if keep else 0)
        by_packs = self._open_elements(keep)
        emit.line_if_used(f"const {self.kind} {self.sweep.variable} = {self._index()};")
        for line in self.sweep.splits:
            emit.line_if_used(line)
        k.place = ("k" if self.vec == "1" else f"k * {self.vec} + v") if columns else "k"
        k.held_place = ("held + k" if self.vec == "1" else f"held * {self.vec} + k") if k.layout.parts else k.place
        if keep:
            self._keep()
        for s in self.made:
            flat = "r" if not self.segmented else f"segment * {self.sweep.length} + r"
            s.take(emit, "[v]" if columns else "", "k", flat)
        for member in self.full:
            self._store(member)
        emit.close()
        if by_packs:
            emit.close()
        if columns:
            self._take_tiles("[v]")
            emit.close()

    def one(self, keep: bool) -> None:
        """An element by itself, whose place in the row is known; its tile has `count` values."""
        self._declare_tiles("1")
        if keep:
            self._keep()
        for s in self.made:
            s.take(self.emit, "", "0", "r")
        for member in self.full:
            self._store(member)
        self._take_tiles("")

    def _take_tiles(self, place: str) -> None:
        for s in self.made:
            if s.by_tile:
                self.emit.line(f"{s.name}{place} = {s.with_tile}({s.name}{place}, {s.name}_tile, count);")

    def _keep(self) -> None:
        """Names for what earlier passes kept; what this pass keeps is computed and stored."""
        k, place = self.k, f"[{self.k.held_place}]"
        if k.stash and k.stashing:
            for e, _, name in k.kept.values():
                self.emit.name(e, k.stash.text(e, name, self.vec))
            return
        for e, made, name in k.kept.values():
            if made < self.level:
                self.emit.name(e, k.kept_text(e, f"{k.stays(name)}{place}"))
        for e, made, name in k.kept.values():
            if made == self.level:
                raw = k.as_read(e)
                text = self.emit.read(e, self.emit.position(e.attr[1])) if raw else self.emit.text(e)[0]
                self.emit.line(f"{k.stays(name)}{place} = {text};")
                self.emit.name(e, k.kept_text(e, f"{k.stays(name)}{place}"))

    def _store(self, member: GroupMember) -> None:
        k, emit = self.k, self.emit
        if k.crossing and member.item.name in k.crossing.names:
            emit.line(f"{k.crossing.names[member.item.name]}.v[{k.place}] += {emit.text(member.value)[0]};")
            return
        found = self.sweep.stores.get(member.item.name)
        if found:
            text = k.body.in_tile(member, emit.text(member.value)[0])
            emit.line(f"{found[0]}.v[{k.place}] = {text};")
            return
        guards = [g for g in (k.threads.guard, "v < width" if k.columns else "") if g]
        if guards:
            emit.open(f"if ({' && '.join(guards)})")
        emit.line(k.body.store(member, emit.text(member.value)[0], emit.position(member.position)))
        if guards:
            emit.close()
