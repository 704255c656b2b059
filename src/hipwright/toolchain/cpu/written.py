"""Which pointer parameters a kernel may write through, by its optimised IR.

A buffer that a launch only reads has no races, so the checked build need not record who read what of it. The answer
errs towards "may write": a parameter is read alone only where everything derived from it is an address that is loaded
from, compared, or converted to an integer, and where the module makes no address from an integer or from memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from hipwright.toolchain.cpu.ir import NAME, IrFunction, closing, split_commas

_POINTER = re.compile(rf"\bptr (?:\w+(?:\([^()]*\))? )*(%{NAME})")
_INCOMING = re.compile(rf"\[ (%{NAME}),")
_RESULT = re.compile(rf"^  (%{NAME}) = ")
_UNTRACED = re.compile(r"\binttoptr\b|\bload (?:volatile |atomic )*ptr\b|\bx ptr>")
_COPIED = re.compile(r"@llvm\.mem(?:cpy|move)\.[\w.]*\(")
_DERIVED = ("getelementptr", "phi", "select", "freeze")
_READ = ("load", "icmp", "ptrtoint", "ret")
_HARMLESS = ("@llvm.lifetime.", "@llvm.assume(", "@llvm.dbg.")


def traced(functions: Iterable[IrFunction]) -> bool:
    """Whether the functions of a module make no address from an integer or from memory: `read_alone` needs that."""
    return not any(_UNTRACED.search(line) for function in functions for line in function.lines if "ptr" in line)


def read_alone(kernel: IrFunction) -> list[int]:
    """The numbers of the kernel's pointer parameters through which it writes nothing, in a module that is `traced`."""
    parents: dict[str, list[str]] = {}
    marked: set[str] = set()
    for line in kernel.lines[1:]:
        if "ptr" in line and line.startswith("  "):
            _note(line, parents, marked)
    waiting = list(marked)
    while waiting:
        fresh = [name for name in parents.get(waiting.pop(), ()) if name not in marked]
        marked.update(fresh)
        waiting += fresh
    names = _parameters(kernel)
    if any(name not in parents and name not in names for name in marked):
        return []  # an address that comes from a call, or was made in another way
    return [number for number, name in enumerate(names) if name and name not in marked]


def _note(line: str, parents: dict[str, list[str]], marked: set[str]) -> None:
    """Adds an instruction's result with the addresses it derives from, or marks those that it may write through."""
    found = _RESULT.match(line)
    body = line[found.end() :] if found else line.strip()
    word = body.split(" ", 1)[0]
    if found and word == "alloca":
        parents[found.group(1)] = []
    elif found and word in _DERIVED:
        sources = _INCOMING.findall(body) if word == "phi" else _POINTER.findall(body)
        parents[found.group(1)] = sources[:1] if word == "getelementptr" else sources
    elif word in _READ or any(name in body for name in _HARMLESS):
        pass
    elif copied := _COPIED.search(body):
        arguments = split_commas(body[copied.end() : closing(body, copied.end() - 1)])
        marked.update(_POINTER.findall(arguments[0].strip()))
    else:
        marked.update(_POINTER.findall(body))


def _parameters(kernel: IrFunction) -> list[str]:
    """The names of the pointer parameters in their places, "" for scalars."""
    head = kernel.lines[0]
    start = head.index("@" + kernel.name + "(") + len(kernel.name) + 1
    inside = head[start + 1 : closing(head, start)]
    texts = [text.strip() for text in split_commas(inside)] if inside.strip() else []
    return [text.rsplit(" ", 1)[-1] if text.startswith("ptr ") else "" for text in texts]
