"""Pointwise kernels that quantise to 8-bit floats: divisions by a scale, and values that are read back as rounded.

A division is a dozen instructions and a branch, for every element; a scale is the same for all. The last bit of the
quotient decides which code is stored, so it is rounded as a division's (hipwright/shared_division.h). What is stored
and read back is converted in pairs, as the store converts it (hipwright/float8_tile.h).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hipwright.engine.fuse.groups import GroupMember
from hipwright.engine.ir.expr import ROUNDING, E, indices, walk
from hipwright.engine.ir.index import Ind, Var
from hipwright.engine.templates.base import Body
from hipwright.float8 import FLOAT8

PAIRED = ROUNDING["float8_e4m3fn"]
"""The rounding that has a form for tiles: it saturates, as the instructions for pairs do."""


@dataclass
class SharedDivisions:
    """Divisions by numbers that are the same for all elements. divisors: by their ids."""

    divisions: list[E] = field(default_factory=list)
    divisors: dict[int, E] = field(default_factory=dict)

    @classmethod
    def of(cls, body: Body, values: Sequence[E]) -> SharedDivisions:
        """The divisions of a kernel whose results are narrow floats, some of them of 8 bits."""
        dtypes = {dtype for _, dtype in body.need.stores.values()}
        found = cls()
        if not dtypes & set(FLOAT8) or not all(dtype in ROUNDING for dtype in dtypes):
            return found
        for e in walk(values):
            if e.op == "bin" and e.attr == "/" and e.ctype == "float" and _is_shared(e.args[1]):
                found.divisions.append(e)
                found.divisors[e.args[1].id] = e.args[1]
        return found

    @property
    def loads(self) -> list[E]:
        """What the divisors are made of."""
        return [e for e in walk(list(self.divisors.values())) if e.op == "load"]

    @property
    def places(self) -> set[tuple[str, str]]:
        """(buffer, position) of the loads, which every thread may execute."""
        return {(e.attr[0], e.attr[1].key) for e in self.loads}

    def load(self, body: Body) -> None:
        """Writes the loads of the divisors, before everything."""
        for e in self.loads:
            body.emit.bind(e)

    def open(self, body: Body) -> None:
        """Writes the reciprocals, behind the loads of vectors, and opens the block in which all divisors are plain."""
        emit, names = body.emit, dict[int, tuple[str, str]]()
        if not self.divisions:
            return
        for e in self.loads:
            early = emit.bind(e)
            late = emit.fresh(f"{early}_late")
            emit.line(f"const {e.ctype} {late} = behind_loads({early});")
            emit.name(e, late)
        for divisor in self.divisors.values():
            name = emit.bind(divisor)
            reciprocal = emit.fresh(f"{name}_reciprocal")
            emit.line(f"const float {reciprocal} = 1.0f / {name};")
            names[divisor.id] = name, reciprocal
        emit.used |= {"behind_loads", "divide_by", "is_plain_divisor"}
        emit.shared_divisors = {e.id: names[e.args[1].id] for e in self.divisions}
        emit.open(f"if ({' && '.join(f'is_plain_divisor({name})' for name, _ in names.values())})")

    def close(self, body: Body) -> bool:
        """Ends the thread and the blocks where `open` has opened one; False where it has not."""
        emit = body.emit
        if not self.divisions:
            return False
        emit.shared_divisors = {}
        emit.line("return;")
        emit.close()
        emit.close()
        return True


def _is_shared(e: E) -> bool:
    """Whether a value is loaded, from the same place for all elements, and hardly computed with."""
    nodes = list(walk([e]))
    places = [p for node in nodes for p in indices(node)]
    if any(node.op not in ("load", "const", "bin", "un", "cast") for node in nodes):
        return False
    same = not any(isinstance(a, (Var, Ind)) for p in places for a in p.atoms())
    return same and any(node.op == "load" for node in nodes)


@dataclass
class RoundedTiles:
    """passes: the members that are computed one after the other; between two of them the tiles of `source`, which are
    stored, are rounded for the readers of `rounding`.
    """

    passes: list[list[GroupMember]]
    rounding: E | None = None
    source: GroupMember | None = None

    def round(self, body: Body, outs: Mapping[str, str]) -> None:
        """Rounds the tile behind the first pass."""
        emit = body.emit
        if self.rounding is None or self.source is None or emit.known(self.rounding) is not None:
            return
        emit.used.add("round_tile_float8_e4m3fn")
        name = emit.fresh("rounded")
        emit.line(f"const auto {name} = round_tile_float8_e4m3fn({outs[self.source.item.name]});")
        emit.name(self.rounding, f"{name}.v[k]")

    def forget(self, body: Body) -> None:
        """The rounded value has no name any more."""
        if self.rounding is not None:
            body.emit.scopes[-1].pop(self.rounding.id, None)


def rounded_in_pairs(body: Body) -> RoundedTiles:
    """The passes over a thread's elements: two where a stored 8-bit float is read back, and nothing else of what it is
    computed from.
    """
    whole = RoundedTiles([list(body.stored)])
    for source in body.stored:
        if ROUNDING.get(source.item.dtype) != PAIRED or not body.collects_floats(source):
            continue
        found = [e for m in body.stored for e in walk([m.value]) if e.op == "fn" and e.attr == PAIRED]
        rounding = next((e for e in found if e.args[0] is source.value), None)
        readers = [m for m in body.stored if rounding is not None and any(e is rounding for e in walk([m.value]))]
        if rounding is None or any(_otherwise(m.value, rounding) for m in readers):
            continue
        first = [m for m in body.stored if m not in readers]
        return RoundedTiles([first, readers], rounding, source)
    return whole


def _otherwise(value: E, rounding: E) -> bool:
    """Whether a value is computed from more than a rounded one and numbers that are the same for all elements."""
    stack = [value]
    while stack:
        e = stack.pop()
        if e is rounding:
            continue
        if e.op in ("guard", "loop") or any(isinstance(a, (Var, Ind)) for p in indices(e) for a in p.atoms()):
            return True
        stack += e.args
    return False
