"""The checked build: inserts a call to the runtime before each load, store and atomic of the optimised IR.

It runs after the optimiser, so that the accesses are those of the machine code, with known sizes and lines. Accesses to
a thread's own named local variables are not checked: they cannot leave the stack.
"""

from __future__ import annotations

import re

from hipwright.toolchain.cpu.ir import NAME, IrFunction, IrModule, SourceLines, closing, split_commas, take_type

READ, WRITE, ATOMIC, RMW = 0, 1, 2, 4  # bits of an access, as in cpu_rt/rt.h
_ORDER, _SCOPE, _ALIGN = 4, 8, 12  # shifts
_WAVE, _BLOCK, _DEVICE = 0, 1, 2
_ORDERS = {"unordered": 0, "monotonic": 0, "acquire": 2, "release": 3, "acq_rel": 4, "seq_cst": 5}  # as __ATOMIC_*
_MEMORY = re.compile(r"@llvm\.mem(cpy|move|set)\.[\w.]*\(")
_ALLOCA = re.compile(r"^\s+(%[-\w.$]+) = alloca ")
_OWN = re.compile(r"@hw_(?!dyn_lds\b)\w+")
# a constant expression (`getelementptr inbounds nuw (...)`) is the operand itself, not an attribute before it
_POINTER = re.compile(r"ptr (?:\w+\([^)]*\) |align \d+ |(?!getelementptr\b)[a-z]+ (?=[^(]))*")
_NAMED = re.compile(rf"[%@]{NAME}")
_PROMISE = re.compile(r", align (\d+)\b")
_PARAMETER_PROMISE = re.compile(r"\balign (\d+) ")
_FENCE = re.compile(r'^  fence (?:syncscope\("([^"]*)"\) )?(\w+)')
_SYNCSCOPE = re.compile(r'\bsyncscope\("([^"]*)"\)')
_ORDER_WORD = re.compile(rf"\b({'|'.join(_ORDERS)})\b")


def instrument(module: IrModule, function: IrFunction, lines: SourceLines) -> None:
    """Insert the checks into one function. Raises Unreadable for an access of unknown size."""
    local = {found.group(1) for line in function.lines if (found := _ALLOCA.match(line))}
    out: list[str] = []
    for line in function.lines:
        for pointer, size, access in _accesses(module, line):
            if pointer not in local and not _OWN.search(pointer):
                out.append(f"  call void @hw_check(ptr {pointer}, i64 {size}, i32 {access}, i32 {lines.of(line)})")
        if (found := _FENCE.match(line)) and found.group(1) != "singlethread":
            out.append(f"  call void @hw_fence(i32 {_ORDERS[found.group(2)]}, i32 {_scope(found.group(1))})")
        out.append(line)
    function.lines[:] = out


def _accesses(module: IrModule, line: str) -> list[tuple[str, str, int]]:
    """(pointer operand, size operand, access) of one instruction."""
    if not line.startswith("  "):
        return []
    body = line.strip()
    if " = " in body and body[0] == "%":
        body = body.partition(" = ")[2]
    word = body.split(" ", 1)[0]
    if word == "load":
        return [_load(module, body)]
    if word == "store":
        return [_store(module, body)]
    if word in ("atomicrmw", "cmpxchg"):
        return [_atomic(module, body)]
    if "@llvm.mem" in body and (found := _MEMORY.search(body)):
        return _memory(body, found.group(1), found.end() - 1)
    return []


def _scope(name: str | None) -> int:
    """The scope of a syncscope's name, None for an instruction without one."""
    if name is None or not name.startswith(("workgroup", "wavefront", "singlethread")):
        return _DEVICE
    return _BLOCK if name.startswith("workgroup") else _WAVE


def _promise(found: re.Match[str] | None) -> int:
    """The bits of an access for an alignment that an instruction promises."""
    return (int(found.group(1)).bit_length() - 1) << _ALIGN if found else 0


def _synchronisation(text: str) -> int:
    """The bits of an atomic access for its order and scope."""
    order, scope = _ORDER_WORD.findall(text.partition("!")[0]), _SYNCSCOPE.search(text)
    strongest = max((_ORDERS[word] for word in order), default=0)
    return ATOMIC | strongest << _ORDER | _scope(scope.group(1) if scope else None) << _SCOPE


def _without_flags(text: str) -> tuple[str, int]:
    """A load's or store's operands, and the bits of an atomic one. A volatile access is like any other."""
    access = 0
    while (word := text.split(" ", 1)[0]) in ("atomic", "volatile"):
        access |= _synchronisation(text) if word == "atomic" else 0
        text = text.split(" ", 1)[1]
    return text, access | _promise(_PROMISE.search(text))


def _load(module: IrModule, body: str) -> tuple[str, str, int]:
    text, access = _without_flags(body[5:])
    kind, rest = take_type(text)
    return _operand(rest.lstrip(", ")), str(module.size_of(kind)), access | READ


def _store(module: IrModule, body: str) -> tuple[str, str, int]:
    text, access = _without_flags(body[6:])
    kind, rest = take_type(text)
    return _operand(split_commas(rest)[1]), str(module.size_of(kind)), access | WRITE


def _atomic(module: IrModule, body: str) -> tuple[str, str, int]:
    parts = split_commas(body)
    kind, _ = take_type(parts[1])
    access = WRITE | RMW | _synchronisation(body) | _promise(_PROMISE.search(body))
    return _operand(parts[0][parts[0].index("ptr ") :]), str(module.size_of(kind)), access


def _memory(body: str, what: str, start: int) -> list[tuple[str, str, int]]:
    parts = split_commas(body[start + 1 : closing(body, start)])
    size = parts[2].split()[-1]
    accesses = [(_operand(parts[0]), size, WRITE | _promise(_PARAMETER_PROMISE.search(parts[0])))]
    if what == "set":
        return accesses
    return [(_operand(parts[1]), size, READ | _promise(_PARAMETER_PROMISE.search(parts[1]))), *accesses]


def _operand(text: str) -> str:
    """The pointer itself: `ptr noundef align 4 %x, align 4, !tbaa !5` -> `%x`."""
    text = text.strip()
    first = split_commas(text)[0].strip()
    found = _POINTER.match(first)
    operand = first[found.end() :].strip() if found else first
    named = _NAMED.match(operand)  # of an atomic, the order follows
    return named.group(0) if named else operand
