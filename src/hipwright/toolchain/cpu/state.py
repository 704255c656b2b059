"""Module variables that kernels write: state between calls, which a program may not have (read from optimised IR).

Followed are the addresses of variables through pointer arithmetic, selections and phis; an address that is
stored or handed to a call counts as written. LDS is not a module variable in this sense.
"""

from __future__ import annotations

import re

from hipwright.toolchain.cpu.ir import NAME, IrFunction, IrModule

_LOCAL = re.compile(rf"^\s*(%{NAME}) = ")
_USED = re.compile(rf"[@%]{NAME}")
_PASSES_ON = (
    "getelementptr",
    "select ",
    "phi ",
    "bitcast ",
    "freeze ",
    "ptrtoint ",
    "inttoptr ",
    "add ",
    "insertvalue ",
)
_HARMLESS = re.compile(r"call void @llvm\.(?:lifetime|assume|dbg|prefetch|experimental\.noalias)")


def kept(module: IrModule) -> str | None:
    """The refusal of the first variable that outlives a launch and is written by one, None where there is none."""
    held = {f"@{name}" for name, value in module.globals.items() if _is_state(name, value)}
    if not held:
        return None
    for function in module.functions:
        if name := _written(function, held):
            return (
                f"{function.name} writes the device variable {name}: a program keeps nothing between calls; make the "
                "memory in the plan (torch.zeros) and pass it"
            )
    return None


def _is_state(name: str, value: str) -> bool:
    words = value.split('"')[0].split()
    return "global" in words and "external" not in words and 'section "' not in value and not name.startswith("llvm.")


def _written(function: IrFunction, held: set[str]) -> str | None:
    homes = {name: name for name in held}  # value -> the variable its address lies in
    body = function.lines[1:]
    for _ in range(len(body)):  # phis look ahead: until nothing is added
        before = len(homes)
        for line in body:
            home = _LOCAL.match(line)
            if home and home.group(1) not in homes and any(word in line for word in _PASSES_ON):
                source = next((homes[u] for u in _USED.findall(line.partition("=")[2]) if u in homes), None)
                if source:
                    homes[home.group(1)] = source
        if len(homes) == before:
            break
    for line in body:
        touched = [homes[u] for u in _USED.findall(line) if u in homes]
        if touched and _writes(line, homes):
            return touched[0].lstrip("@")
    return None


def _writes(line: str, homes: dict[str, str]) -> bool:
    text = line.strip()
    if text.startswith("store ") or " = atomicrmw " in line or " = cmpxchg " in line:
        return True
    called = " call " in line or text.startswith(("call ", "tail call ", "invoke "))
    if not called or _HARMLESS.search(line):
        return False
    if copied := re.search(r"@llvm\.mem(?:cpy|move)[^(]*\((.*?),(.*)", line):
        return any(u in homes for u in _USED.findall(copied.group(1)))
    return True
