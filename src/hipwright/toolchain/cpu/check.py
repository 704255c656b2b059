"""The checked build: inserts a call to the runtime before each load, store and atomic of the optimised IR.

It runs after the optimiser, so that the accesses are those of the machine code, with known sizes and lines. Accesses to
a thread's own named local variables are not checked: they cannot leave the stack.
"""

from __future__ import annotations

import re

from hipwright.toolchain.cpu.ir import IrFunction, IrModule, SourceLines, closing, split_commas, take_type

READ, WRITE, ATOMIC = 0, 1, 2  # as in cpu_rt/rt.h
_MEMORY = re.compile(r"@llvm\.mem(cpy|move|set)\.[\w.]*\(")
_ALLOCA = re.compile(r"^\s+(%[-\w.$]+) = alloca ")
_OWN = re.compile(r"@hw_(?!dyn_lds\b)\w+")
# a constant expression (`getelementptr inbounds nuw (...)`) is the operand itself, not an attribute before it
_POINTER = re.compile(r"ptr (?:\w+\([^)]*\) |align \d+ |(?!getelementptr\b)[a-z]+ (?=[^(]))*")


def instrument(module: IrModule, function: IrFunction, lines: SourceLines) -> None:
    """Insert the checks into one function. Raises Unreadable for an access of unknown size."""
    local = {found.group(1) for line in function.lines if (found := _ALLOCA.match(line))}
    out: list[str] = []
    for line in function.lines:
        for pointer, size, access in _accesses(module, line):
            if pointer not in local and not _OWN.search(pointer):
                out.append(f"  call void @hw_check(ptr {pointer}, i64 {size}, i32 {access}, i32 {lines.of(line)})")
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


def _flags(text: str, *words: str) -> tuple[str, int]:
    access = 0
    while (word := text.split(" ", 1)[0]) in words:
        access |= ATOMIC if word in ("atomic", "volatile") else 0
        text = text.split(" ", 1)[1]
    return text, access


def _load(module: IrModule, body: str) -> tuple[str, str, int]:
    text, access = _flags(body[5:], "atomic", "volatile")
    kind, rest = take_type(text)
    return _operand(rest.lstrip(", ")), str(module.size_of(kind)), access | READ


def _store(module: IrModule, body: str) -> tuple[str, str, int]:
    text, access = _flags(body[6:], "atomic", "volatile")
    kind, rest = take_type(text)
    return _operand(split_commas(rest)[1]), str(module.size_of(kind)), access | WRITE


def _atomic(module: IrModule, body: str) -> tuple[str, str, int]:
    parts = split_commas(body)
    kind, _ = take_type(parts[1])
    return _operand(parts[0][parts[0].index("ptr ") :]), str(module.size_of(kind)), WRITE | ATOMIC


def _memory(body: str, what: str, start: int) -> list[tuple[str, str, int]]:
    parts = split_commas(body[start + 1 : closing(body, start)])
    size = parts[2].split()[-1]
    accesses = [(_operand(parts[0]), size, WRITE)]
    return accesses if what == "set" else [(_operand(parts[1]), size, READ), *accesses]


def _operand(text: str) -> str:
    """The pointer itself: `ptr noundef align 4 %x, align 4, !tbaa !5` -> `%x`."""
    text = text.strip()
    first = split_commas(text)[0].strip()
    found = _POINTER.match(first)
    return first[found.end() :].strip() if found else first
