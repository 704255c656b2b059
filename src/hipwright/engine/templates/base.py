"""What all templates share: parameters, index types, names of variables, and stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hipwright.engine.emit.builder import cname, element_text
from hipwright.engine.emit.function import KernelFunction, KernelParameter
from hipwright.engine.emit.header_names import NARROW
from hipwright.engine.emit.statements import Emitter
from hipwright.engine.fuse.groups import Group, GroupMember, as_position, positions
from hipwright.engine.ir.expr import BIT_WORD, ROUNDING, STORAGE, E, indices, walk
from hipwright.engine.ir.index import Atom, Ind, Ix, Sym, Var, divide, ix, modulo, product
from hipwright.engine.ir.index_text import to_c, to_python
from hipwright.engine.ir.rounding import Rounding
from hipwright.engine.ir.shapes import strides
from hipwright.engine.lower.context import LoweringContext
from hipwright.float8 import FLOAT8

INT_LIMIT = 1 << 30
"""Elements up to which a kernel counts in int. Twice as many would fit; the rest is for the last block's overshoot."""
LARGEST_E4M3 = 448.0
"""The largest number of float8_e4m3fn, to which conversion saturates."""
WORDS_ALIGNED = 16
"""Bytes of the boundary at which tensors begin of which words of bits are loaded."""
FAST = {
    name: f"{name}_fast"
    for name in ("exp", "expm1", "sqrt", "sigmoid", "silu", "mish", "elu", "selu", "celu", "softplus")
}
"""Functions that cost a fraction of the exact ones and are off by a few ulp of float."""


def fast_functions(values: Sequence[E]) -> dict[int, str]:
    """{expression id: the fast function}, for calls in values."""
    return {e.id: FAST[e.attr] for e in walk(values) if e.op == "fn" and e.attr in FAST and e.ctype == "float"}


@dataclass(eq=False)
class EmittedKernel:
    """A finished kernel: its text, and how the plan launches it."""

    name: str
    function: KernelFunction | None
    grid: str
    block: str
    arguments: list[str] = field(default_factory=list)  # buffers and sizes, in order
    used: set[str] = field(default_factory=set)
    knobs: set[str] = field(default_factory=set)
    reads: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    static_bounds: str = ""  # launch bounds of the static-shape variant, if other
    lds: str = ""  # dynamic shared memory in bytes, as the plan writes it
    aligned: dict[str, int] = field(default_factory=dict)  # buffers loaded 16 bytes at a time: elements of a load
    device: dict[str, str] = field(default_factory=dict)  # device code of the template's own, by name
    before: list[str] = field(default_factory=list)  # lines of the plan before the launch
    scratch: dict[str, tuple[list[Ix], str]] = field(default_factory=dict)  # memory of its own: name -> shape, dtype
    zeroed: set[str] = field(default_factory=set)
    combining_grid: str = ""  # of a second launch, whose last argument is 1 and that of the first 0; "" for none
    unaligned_rows: bool = False  # whether its rows begin at unaligned addresses
    single: bool = False  # whether it has no static-shape variant: sizes cost it little, and a build of it seconds
    touched: dict[str, Ix] = field(default_factory=dict)  # elements of buffers of which it reads or writes a part
    apart: set[str] = field(default_factory=set)  # kernels that write other parts of the same tensors
    moves: int = 0  # bytes that it reads and writes at capture; 0 where that is not known
    packs: bool = False  # whether it only packs an operand: `prepare` launches it if that is a parameter


@dataclass
class Need:
    """The members that must reach memory, and where: {item name: (buffer, dtype)}."""

    stores: dict[str, tuple[str, str]]
    dtypes: dict[str, str]
    numels: dict[str, Ix]


class Body:
    """Builds one kernel for a group."""

    def __init__(self, context: LoweringContext, group: Group, name: str, need: Need) -> None:
        self.c = context
        self.group = group
        self.name = name
        self.need = need
        for member in group.members:
            member.value = _saturating(context, _unrounded(member, need))
        placed = [m for m in group.members if m.item.place]
        values = [*(m.value for m in group.members), *positions(context.arena, placed)]
        self.words = sorted({e.attr[0] for e in walk(values) if e.op == "load" and e.attr[2] == BIT_WORD})
        self.loads = sorted({e.attr[0] for e in walk(values) if e.op == "load"})
        self.stored = [m for m in group.members if m.item.name in need.stores]
        self.overwritten = {need.stores[m.item.name][0] for m in self.stored} & set(self.loads)
        self.active = ""  # the condition of a thread that has a row of its own, where others repeat the last one
        self.index_type = "int" if self._fits() else "long"
        self.emit = Emitter(self._read, self._row, self.index_type)
        self.emit.rounding = Rounding({item.name for item in context.items if item.kind in ("red", "scan")})
        self.rows: dict[str, str] = {}
        self.pointers = self._pointer_names()
        self.taken_symbols = self._symbols(values)
        self.emit.taken |= set(self.pointers.values()) | set(self.taken_symbols)
        self.knobs: set[str] = set()
        self.scratch: list[str] = []  # pointers to memory that blocks of one launch share
        self.extra: list[KernelParameter] = []  # parameters beyond tensors and sizes

    def _fits(self) -> bool:
        return all(self.c.hint(s) < INT_LIMIT for s in self._sizes())

    def _sizes(self) -> list[Ix]:
        """All numbers of elements that the kernel counts or indexes."""
        sizes = [product(self.group.space)] + [self.need.numels[b] for b in self.loads if b in self.need.numels]
        return sizes + [self.need.numels[self.need.stores[m.item.name][0]] for m in self.stored]

    def limits(self) -> list[Ix]:
        """The sizes that must stay below INT_LIMIT because the kernel counts in int."""
        return [s for s in self._sizes() if s.value is None] if self.index_type == "int" else []

    def _pointer_names(self) -> dict[str, str]:
        out: dict[str, str] = {}
        written = [self.need.stores[m.item.name][0] for m in self.stored]
        for buffer in [*self.loads, *written]:
            if buffer in out:
                continue
            name, count = cname(buffer), 1
            while name in out.values():
                count += 1
                name = f"{cname(buffer)}_{count}"
            out[buffer] = name
        return out

    def _symbols(self, values: Sequence[E]) -> list[str]:
        found: set[str] = set()
        texts: list[Ix] = [*self.group.space, *(m.position for m in self.group.members)]
        for e in walk(values):
            texts += indices(e)
        for p in texts:
            for atom in p.atoms():
                if isinstance(atom, Sym):
                    found.add(atom.name)
                elif isinstance(atom, Var) and atom.size is not None:
                    found |= {a.name for a in atom.size.atoms() if isinstance(a, Sym)}
        return sorted(found)

    def _read(self, e: E, position: str) -> str:
        text = element_text(self.pointers[e.attr[0]], position, e.attr[2])
        if guard := self.reading_guard(e.attr[0]):
            return f"({guard} ? {text} : {STORAGE.get(e.attr[2], e.ctype)}(0.0f))"
        return text

    def reading_guard(self, buffer: str) -> str:
        """The condition under which a thread may read a buffer, "" for always: a thread that repeats another's row
        must not read what that one overwrites.
        """
        return self.active if buffer in self.overwritten else ""

    def _row(self, name: str) -> str:
        return self.rows[name]

    # ------------------------------------------------------------ text

    def parameters(self) -> list[KernelParameter]:
        """The kernel's parameters: pointers, sizes, and what a template has added."""
        written = {self.need.stores[m.item.name][0] for m in self.stored}
        out = []
        for buffer, name in self.pointers.items():
            kind = STORAGE[self.need.dtypes[buffer]]
            if buffer not in self.scratch:
                kind = f"{'' if buffer in written else 'const '}{kind}"
            out.append(KernelParameter(f"{kind}*{'' if buffer in self.scratch else ' __restrict__'}", name))
        return [*out, *(KernelParameter(self.index_type, s) for s in self.taken_symbols), *self.extra]

    def as_index(self, text: str) -> str:
        """An index as a value of the kernel's index type."""
        return text if self.index_type == "int" or not text else f"(long)({text})"

    def store(self, member: GroupMember, value: str, position: str) -> str:
        """A store statement; narrow floats convert."""
        buffer = self.need.stores[member.item.name][0]
        return f"{self.pointers[buffer]}[{position}] = {self.as_stored(member, value)};"

    def use_fast_functions(self, values: Sequence[E]) -> None:
        """Uses the device's own instructions for functions where all results are half types, far coarser than their
        error.
        """
        if all(dtype in ("float16", "bfloat16") for _, dtype in self.need.stores.values()):
            self.emit.instead |= fast_functions(values)

    def stored_value(self, member: GroupMember) -> str:
        """A member's value as memory holds it, rounded once; the value of a copy is not converted at all."""
        dtype, e, emit = self.need.stores[member.item.name][1], member.value, self.emit
        rounding = ROUNDING.get(dtype)
        while e.op == "fn" and e.attr == rounding and emit.known(e) is None:
            (e,) = e.args
        if e.op == "load" and e.attr[2] == dtype and emit.known(e) is None:
            return emit.read(e, emit.position(e.attr[1]))
        return self.as_stored(member, emit.text(e)[0])

    def as_stored(self, member: GroupMember, value: str) -> str:
        """A value as memory holds it."""
        dtype = self.need.stores[member.item.name][1]
        return f"{STORAGE[dtype]}({value})" if dtype in ROUNDING else value

    def tile_type(self, member: GroupMember) -> str:
        """The element type of a member's tile until it is stored: floats become narrow in the store."""
        _, dtype = self.need.stores[member.item.name]
        if self.in_floats(member):
            self.emit.used.add(f"{NARROW[STORAGE[dtype]]}.h")
            return "float"
        return STORAGE[dtype]

    def in_floats(self, member: GroupMember) -> bool:
        """Whether the store itself converts floats to a narrow type."""
        return self.need.stores[member.item.name][1] in ROUNDING and member.value.ctype == "float"

    def collects_floats(self, member: GroupMember) -> bool:
        """Whether a vector of a pointwise kernel's results stays in floats until its store: 8-bit floats are converted
        in pairs; copies are not converted at all.
        """
        dtype, e = self.need.stores[member.item.name][1], member.value
        copied = e.op == "load" and e.attr[2] == dtype
        return dtype in FLOAT8 and self.in_floats(member) and not copied

    def vector_type(self, member: GroupMember) -> str:
        """The element type of a vector of a pointwise kernel's results."""
        if self.collects_floats(member):
            return self.tile_type(member)
        return STORAGE[self.need.stores[member.item.name][1]]

    def vector_value(self, member: GroupMember) -> str:
        """A member's value as a vector of a pointwise kernel's results holds it."""
        return self.emit.text(member.value)[0] if self.collects_floats(member) else self.stored_value(member)

    def in_tile(self, member: GroupMember, value: str) -> str:
        """A value as the member's tile holds it."""
        return value if self.in_floats(member) else self.as_stored(member, value)

    def finish(self, grid: str, block: str, comment: str, bounds: str) -> EmittedKernel:
        """The body as an entry kernel; sizes that it does not name are no parameters.

        grid: may hold {total} and {rows}, the number of elements and of rows.
        """
        function = KernelFunction(self.name, comment, bounds, [], self.emit.body)
        self.taken_symbols = [s for s in self.taken_symbols if s in function.names]
        function.parameters = self.parameters()
        arguments = [*self.pointers, *self.taken_symbols]
        written = [self.need.stores[m.item.name][0] for m in self.stored]
        grid = grid.format(total=to_python(product(self.group.space)), rows=to_python(product(self.group.outer)))
        kernel = EmittedKernel(
            self.name, function, grid, block, arguments, self.emit.used, self.knobs, list(self.loads), written
        )
        kernel.aligned = dict.fromkeys(self.words, WORDS_ALIGNED)
        return kernel

    def name_variables(self, which: Sequence[int], prefix: str, flat: str) -> tuple[dict[Var, Ix], list[str]]:
        """Loop variables from one flat counter: (renaming, statements that split the counter)."""
        sizes = [self.group.space[k] for k in which]
        variables = [self.group.variables[k] for k in which]
        if len(which) == 1:
            return {variables[0]: ix(Var(flat, sizes[0]))}, []
        table: dict[Var, Ix] = {}
        lines = []
        counter = ix(Var(flat, product(sizes)))
        for number, (variable, step) in enumerate(zip(variables, strides(sizes), strict=True)):
            new = Var(f"{prefix}{number}", sizes[number])
            quotient = divide(counter, step)
            value = modulo(quotient, sizes[number]) if number else quotient
            lines.append(f"const {self.index_type} {new.name} = {_bare(to_c(value))};")
            table[variable] = ix(new)
        return table, lines

    def rename(self, table: Mapping[Var, Ix]) -> None:
        """Rewrites the members over new variables."""

        def atom(a: Atom) -> Ix | None:
            return table.get(a) if isinstance(a, Var) else None

        members, arena = self.group.members, self.c.arena
        values = arena.rewrite([*(m.value for m in members), *positions(arena, members)], atom, lambda e: None)
        for member, value, position in zip(members, values, values[len(members) :], strict=False):
            member.value, member.position = value, as_position(position)


def _unrounded(member: GroupMember, need: Need) -> E:
    """A member's value without the rounding that its store does anyway."""
    dtype, e = need.stores.get(member.item.name, ("", ""))[1], member.value
    rounding = ROUNDING.get(dtype)
    if rounding and e.op == "fn" and e.attr == rounding and e.args[0].ctype == "float":
        e = e.args[0]
        return _unclamped(e, LARGEST_E4M3) if dtype == "float8_e4m3fn" else e
    return e


def _saturating(c: LoweringContext, value: E) -> E:
    """A value whose roundings to float8_e4m3fn are of unclamped numbers, as those that are stored are."""
    rounding = ROUNDING["float8_e4m3fn"]
    if not any(e.op == "fn" and e.attr == rounding for e in walk([value])):
        return value

    def call(e: E) -> E | None:
        if e.attr != rounding:
            return None
        bare = _unclamped(e.args[0], LARGEST_E4M3)
        return None if bare is e.args[0] else c.arena.make("fn", [bare], e.ctype, rounding)

    return c.arena.rewrite([value], lambda atom: None, lambda load: None, call=call)[0]


def _unclamped(e: E, limit: float) -> E:
    """A value without clamps at a format's largest number or beyond it: saturating does the same."""
    while e.op == "fn" and e.attr in ("nan_min", "nan_max") and e.args[1].op == "const":
        if e.args[1].attr * (1 if e.attr == "nan_min" else -1) < limit:
            break
        e = e.args[0]
    return e


def _bare(text: str) -> str:
    """The text without one pair of parentheses around everything."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for k, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0 and k < len(text) - 1:
            return text
    return text[1:-1]


def depends(e: E, names: set[str], memo: dict[int, bool]) -> bool:
    """Whether e uses one of the variables."""
    if e.id not in memo:
        memo[e.id] = any(
            isinstance(a, Var) and a.name in names for p in indices(e) for a in p.atoms() if not isinstance(a, Ind)
        ) or any(depends(a, names, memo) for a in e.args)
    return memo[e.id]


def fused(group: Group) -> str:
    """The operators that a kernel fuses, for its comment."""
    names: list[str] = []
    for item in group.items:
        for label in [
            item.node,
            *(e.label for m in group.members if m.item is item for e in walk([m.value]) if e.label),
        ]:
            if label and label not in names and not label.startswith("getitem"):
                names.append(label)
    return ", ".join(names)
