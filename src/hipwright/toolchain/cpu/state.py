"""Finds module variables that kernels write, in optimised IR: a program may not keep state between calls.

Addresses of variables are followed through pointer arithmetic, selections and phis; an address that is stored or passed
to a call counts as written. LDS is not a module variable in this sense.
"""

from __future__ import annotations

import re

from hipwright.toolchain.cpu.ir import NAME, IrFunction, IrModule

_LOCAL = re.compile(rf"^\s*(%{NAME}) = ")
_USED = re.compile(rf"[@%]{NAME}")
_DERIVES = (
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


def persistent_write(module: IrModule) -> str | None:
    """The refusal of the first persistent variable that a kernel writes, None without one."""
    variables = {f"@{name}" for name, value in module.globals.items() if _is_state(name, value)}
    if not variables:
        return None
    for function in module.functions:
        if name := _written(function, variables):
            return (
                f"{function.name} writes the device variable {name}: a program keeps nothing between calls; make the "
                "memory in the plan (torch.zeros) and pass it"
            )
    return None


def _is_state(name: str, value: str) -> bool:
    words = value.split('"')[0].split()
    return "global" in words and "external" not in words and 'section "' not in value and not name.startswith("llvm.")


def _written(function: IrFunction, variables: set[str]) -> str | None:
    origins = {name: name for name in variables}  # value -> the variable whose address it holds
    body = function.lines[1:]
    for _ in range(len(body)):  # phis use later values: repeat until nothing is added
        before = len(origins)
        for line in body:
            defined = _LOCAL.match(line)
            if defined and defined.group(1) not in origins and any(word in line for word in _DERIVES):
                source = next((origins[u] for u in _USED.findall(line.partition("=")[2]) if u in origins), None)
                if source:
                    origins[defined.group(1)] = source
        if len(origins) == before:
            break
    for line in body:
        touched = [origins[u] for u in _USED.findall(line) if u in origins]
        if touched and _writes(line, origins):
            return touched[0].lstrip("@")
    return None


def _writes(line: str, origins: dict[str, str]) -> bool:
    text = line.strip()
    if text.startswith("store ") or " = atomicrmw " in line or " = cmpxchg " in line:
        return True
    called = " call " in line or text.startswith(("call ", "tail call ", "invoke "))
    if not called or _HARMLESS.search(line):
        return False
    if copied := re.search(r"@llvm\.mem(?:cpy|move)[^(]*\((.*?),(.*)", line):
        return any(u in origins for u in _USED.findall(copied.group(1)))
    return True
