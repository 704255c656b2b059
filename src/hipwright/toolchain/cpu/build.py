"""The `cpu` target: HIP source -> LLVM IR -> audit -> shared library, every step in the sandbox.

The library holds the kernels and the runtime in cpu_rt/ (fibers, waves, barriers, checks). See docs/cpu-target.md.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from hipwright.records import Build, KernelResources, content_key
from hipwright.targets import CPU
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.cpu import audit as cpu_audit
from hipwright.toolchain.cpu import check as cpu_check
from hipwright.toolchain.cpu import state as cpu_state
from hipwright.toolchain.cpu.compiler import SOURCE, CompilationTimeout, back, fingerprint, front, runtime_object
from hipwright.toolchain.cpu.ir import NAME, IrFunction, IrModule, SourceLines, Unreadable, take_type
from hipwright.toolchain.cpu.sides import DEFINES, Side
from hipwright.toolchain.cpu.sites import Sites
from hipwright.toolchain.cpu.written import read_alone, traced

_LDS = re.compile(r'section "hw_lds"')
_REFERENCE = re.compile(rf"@({NAME})")


def build(
    source: str,
    defines: Mapping[str, int],
    *,
    wave: int = 64,
    checked: bool = False,
    side: Side = "",
    cache: BuildCache,
    unsafe: bool = False,
) -> Build:
    """Compile HIP source for this machine's processor; the blob is a shared library for device.cpu.CpuLauncher.

    wave: lanes of a wave, 64 or 32. side: what device headers compile (sides.py). checked: every memory access is
    checked against the launch's buffers and for data races. A source that does not compile, or is refused
    ("refused: ..."), returns Build(ok=False) with the log. Raises ToolchainError when there is no compiler,
    SandboxMissing when it cannot be contained.
    """
    if wave not in (32, 64):
        raise ValueError(f"a wave has 32 or 64 lanes, not {wave}")
    knobs = tuple(f"-D{name}={value}" for name, value in sorted(defines.items()))
    key = content_key(CPU.name, source, "\0".join(knobs), f"wave={wave} checked={checked} {side}", fingerprint())
    if known := cache.load(key):
        return known
    started = time.perf_counter()
    try:
        made = _build(source, (*knobs, *DEFINES[side]), wave, checked, cache, unsafe)
    except CompilationTimeout as error:  # not cached: the machine may have been busy
        return Build(target=CPU.name, ok=False, log=str(error), seconds=time.perf_counter() - started)
    made = msgspec.structs.replace(made, seconds=time.perf_counter() - started)
    cache.store(key, made)
    return made


def _build(source: str, knobs: tuple[str, ...], wave: int, checked: bool, cache: BuildCache, unsafe: bool) -> Build:
    ir, log = front(source, knobs, wave, cache, unsafe)
    if not ir:
        return Build(target=CPU.name, ok=False, log=log)
    module = IrModule.parse(ir)
    try:
        if why := cpu_audit.refusal(module) or cpu_state.persistent_write(module):
            raise Unreadable(why)
        resources, text = _lower(module, wave, checked)
        library, log_of_link = back(text, resources, runtime_object(cache, unsafe), unsafe, quick=checked)
        if library and (why := cpu_audit.check_library(library)):
            raise Unreadable(why)
    except Unreadable as error:
        return Build(target=CPU.name, ok=False, log=f"refused: {error}")
    if not library:
        return Build(target=CPU.name, ok=False, log=log_of_link)
    return Build(target=CPU.name, ok=True, blob=cache.put(library), kernels=resources, device_math="own", log=log)


# ---------------------------------------------------------------- lowering the IR


def _lower(module: IrModule, wave: int, checked: bool) -> tuple[tuple[KernelResources, ...], str]:
    lines = SourceLines(module.metadata, SOURCE)
    _merge_dynamic_lds(module)
    lds = {name: module.size_of(_variable_type(value)) for name, value in module.globals.items() if _LDS.search(value)}
    kernels = module.kernels()
    resources = tuple(KernelResources(name=k.name, lds_bytes=_static_lds(module, k, lds)) for k in kernels)
    meta: dict[str, Any] = {"wave": wave, "checked": checked, "kernels": {}}
    entries, can_tell = [], checked and traced(module.functions)
    for kernel, resource in zip(kernels, resources, strict=True):
        params = kernel.params()
        entries.append(_entry(kernel.name, params))
        meta["kernels"][kernel.name] = {"lds": resource.lds_bytes, "params": [kind for kind, _ in params]}
        if can_tell:
            meta["kernels"][kernel.name]["read_alone"] = read_alone(kernel)
    if checked:
        for function in module.functions:
            cpu_check.instrument(module, function, lines)
    sites = Sites(lines)
    for index, function in enumerate(module.functions):
        sites.number(function, min(index, 63))
    meta["loops"] = sites.loops
    _place_variables(module)
    text = module.text()
    for helper, kind in (("hw_loop", "i32, i32"), ("hw_check", "ptr, i64, i32, i32"), ("hw_fence", "i32, i32")):
        if f"@{helper}(" in text and helper not in module.declared:
            text += f"declare hidden void @{helper}({kind})\n"
    return resources, "\n".join([text, sites.table(), _constant("hw_meta", json.dumps(meta)), *entries, ""])


def _merge_dynamic_lds(module: IrModule) -> None:
    """Make all `extern __shared__` arrays names of the one dynamic LDS buffer."""
    names = [name for name, value in module.globals.items() if '"hw_dyn"' in value]
    if not names:
        return
    pattern = re.compile("|".join(rf"@{re.escape(name)}(?![-\w.$])" for name in names))
    module.rest = [line for line in module.rest if not any(line.startswith(f"@{name} = ") for name in names)]
    module.rest.append("@hw_dyn_lds = external hidden global [0 x i8], align 16")
    for function in module.functions:
        function.lines[1:] = [pattern.sub("@hw_dyn_lds", line) for line in function.lines[1:]]
    for i, line in enumerate(module.rest):
        if line.startswith("@"):
            module.rest[i] = pattern.sub("@hw_dyn_lds", line)


def _variable_type(value: str) -> str:
    rest = re.split(r"\b(?:global|constant) ", value, maxsplit=1)[1]
    return take_type(rest)[0]


def _static_lds(module: IrModule, kernel: IrFunction, lds: Mapping[str, int]) -> int:
    """Bytes of the `__shared__` variables that a kernel and the functions it calls refer to."""
    functions = {f.name: f for f in module.functions}
    reached, waiting = {kernel.name}, [kernel.name]
    while waiting:
        function = functions.get(waiting.pop())
        if function is None:
            continue
        for line in function.lines[1:]:
            if "@" in line:
                fresh = set(_REFERENCE.findall(line)) - reached
                reached |= fresh
                waiting += fresh
    return sum(size for name, size in lds.items() if name in reached)


def _entry(name: str, params: list[tuple[str, str]]) -> str:
    """IR of a function that loads the arguments from 8-byte slots and calls the kernel."""
    body, passed = [], []
    for i, (kind, extension) in enumerate(params):
        stored = "i8" if kind == "i1" else kind
        body.append(f"  %p{i} = getelementptr inbounds i64, ptr %slots, i64 {i}")
        body.append(f"  %v{i} = load {stored}, ptr %p{i}, align 8")
        if kind == "i1":
            body.append(f"  %t{i} = trunc i8 %v{i} to i1")
        passed.append(f"{kind} {extension} %{'t' if kind == 'i1' else 'v'}{i}")
    call = f"  call void @{name}({', '.join(passed)})"
    return "\n".join([f"define void @hw_entry_{name}(ptr %slots) {{", *body, call, "  ret void", "}"])


def _place_variables(module: IrModule) -> None:
    """Put module variables into sections with known bounds, by which the checked build recognises them."""
    for i, line in enumerate(module.rest):
        found = re.match(rf"^@({NAME}) = .*?\b(global|constant) ", line)
        if not found or " external " in f" {line}" or 'section "' in line or found.group(1).startswith("llvm."):
            continue
        value, options = _split_initialiser(line)
        section = "hw_data" if found.group(2) == "global" else "hw_const"
        module.rest[i] = f'{value}, section "{section}"{options}'


def _split_initialiser(line: str) -> tuple[str, str]:
    found = re.search(r"((?:, (?:comdat(?:\(\$[^)]*\))?|align \d+|no_sanitize\w+|sanitize\w+|!dbg !\d+))*)$", line)
    assert found is not None  # the pattern matches the empty string
    return line[: found.start()], found.group(1)


def _constant(name: str, text: str) -> str:
    data = text.encode() + b"\0"
    quoted = "".join(chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\{c:02X}" for c in data)
    return f'@{name} = constant [{len(data)} x i8] c"{quoted}", align 8'
