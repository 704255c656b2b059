"""The `cpu` target: HIP source -> LLVM IR -> audit -> shared library, every step in the sandbox.

The library holds the kernels and the runtime in cpu_rt/ (fibers, waves, barriers, checks). See docs/cpu-target.md.
"""

from __future__ import annotations

import contextlib
import functools
import json
import platform
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hipwright.errors import ToolchainError
from hipwright.records import Build, KernelResources, content_key
from hipwright.sandbox import Limits, ToolResult, run_tool
from hipwright.targets import CPU
from hipwright.toolchain import clang, pch
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.cpu import audit as cpu_audit
from hipwright.toolchain.cpu import check as cpu_check
from hipwright.toolchain.cpu import state as cpu_state
from hipwright.toolchain.cpu.ir import NAME, IrFunction, IrModule, SourceLines, Unreadable, take_type
from hipwright.toolchain.cpu.sides import DEFINES, Side
from hipwright.toolchain.cpu.sites import Sites

_HERE = Path(__file__).parents[1]
_RUNTIME = _HERE / "cpu_rt"
_SOURCE = "kernel.hip"
_LOG_LIMIT = 6000  # characters
_LIMITS = Limits(wall_s=60.0, cpu_s=60.0, memory_mb=4096)
_MARCH = {"x86_64": ["-march=x86-64-v3"], "aarch64": []}
# Contraction as in hipcc by default (a * b + c may fuse); each half operation rounds, as on the GPU.
_FLAGS = (
    "-x",
    "c++",
    "-std=c++17",
    "-O2",
    *("-nostdinc", "-nostdinc++"),
    "-ffreestanding",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast-honor-pragmas",
    *("-Xclang", "-ffloat16-excess-precision=none"),
    "-fno-strict-aliasing",
    "-fno-finite-loops",
    *(
        "-Xclang",
        "-fconvergent-functions",
    ),  # a call that may hold a barrier is not duplicated, as in a device compilation
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-stack-protector",
    "-fstack-clash-protection",
    "-fno-asynchronous-unwind-tables",
    "-fno-vectorize",
    "-fno-slp-vectorize",
    "-gline-tables-only",
    "-ferror-limit=10",
    "-fno-color-diagnostics",
    "-Wno-ignored-attributes",
    "-Wno-unused-value",
    *("-mllvm", "-inline-threshold=4000"),
)
_LINK = (
    "-shared",
    *(word for name in ("now", "relro", "noexecstack", "nostart-stop-gc") for word in ("-z", name)),
    *("-init=hw_none", "-fini=hw_none", "--strip-debug", "--version-script=exports", "--undefined-version"),
)
_RUNTIME_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden", "-fno-stack-protector", "-nostdinc", "-c")
_DYNAMIC = re.compile(
    r"\bextern((?:\s+(?:__align__\s*\([^()]*\)|alignas\s*\([^()]*\)|__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)))*)"
    r"(\s+)__shared__\b"
)
_LDS = re.compile(r'section "hw_lds"')
_REFERENCE = re.compile(rf"@({NAME})")


class _CompilationTimeout(Exception):
    """A compilation over the time limit: the source is at fault."""


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
    key = content_key(CPU.name, source, "\0".join(knobs), f"wave={wave} checked={checked} {side}", _fingerprint())
    if known := cache.load(key):
        return known
    started = time.perf_counter()
    try:
        made = _build(source, (*knobs, *DEFINES[side]), wave, checked, cache, unsafe)
    except _CompilationTimeout as error:  # not cached: the machine may have been busy
        return Build(target=CPU.name, ok=False, log=str(error), seconds=time.perf_counter() - started)
    made = msgspec.structs.replace(made, seconds=time.perf_counter() - started)
    cache.store(key, made)
    return made


def _build(source: str, knobs: tuple[str, ...], wave: int, checked: bool, cache: BuildCache, unsafe: bool) -> Build:
    ir, log = _front(source, knobs, wave, cache, unsafe)
    if not ir:
        return Build(target=CPU.name, ok=False, log=log)
    module = IrModule.parse(ir)
    try:
        if why := cpu_audit.refusal(module) or cpu_state.persistent_write(module):
            raise Unreadable(why)
        resources, text = _lower(module, wave, checked)
        library, log_of_link = _back(text, resources, _runtime_object(cache, unsafe), unsafe)
        if library and (why := cpu_audit.check_library(library)):
            raise Unreadable(why)
    except Unreadable as error:
        return Build(target=CPU.name, ok=False, log=f"refused: {error}")
    if not library:
        return Build(target=CPU.name, ok=False, log=log_of_link)
    return Build(target=CPU.name, ok=True, blob=cache.put(library), kernels=resources, device_math="own", log=log)


def prepare_source(source: str) -> str:
    """Replace `extern __shared__` (dynamic LDS) by a macro of its own: `__shared__` alone is static LDS here."""
    return _DYNAMIC.sub(r"extern\1\2__hw_dynamic_shared__", source)


# ---------------------------------------------------------------- lowering the IR


def _lower(module: IrModule, wave: int, checked: bool) -> tuple[tuple[KernelResources, ...], str]:
    lines = SourceLines(module.metadata, _SOURCE)
    _merge_dynamic_lds(module)
    lds = {name: module.size_of(_variable_type(value)) for name, value in module.globals.items() if _LDS.search(value)}
    kernels = module.kernels()
    resources = tuple(KernelResources(name=k.name, lds_bytes=_static_lds(module, k, lds)) for k in kernels)
    meta: dict[str, Any] = {"wave": wave, "checked": checked, "kernels": {}}
    entries = []
    for kernel, resource in zip(kernels, resources, strict=True):
        params = kernel.params()
        entries.append(_entry(kernel.name, params))
        meta["kernels"][kernel.name] = {"lds": resource.lds_bytes, "params": [kind for kind, _ in params]}
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


# ---------------------------------------------------------------- tools


@functools.lru_cache(maxsize=16)
def _front(source: str, knobs: tuple[str, ...], wave: int, cache: BuildCache, unsafe: bool) -> tuple[str, str]:
    """(LLVM IR or "", the compiler's messages). Cached: the fast and the checked build share it."""
    common = [*_FLAGS, *_march(), f"-DHW_WAVE={wave}"]
    header, visible = pch.flags(source, common, cache, unsafe=unsafe)
    files = {_SOURCE: prepare_source(source).encode()}
    rest = [*knobs, "-I", str(clang.INCLUDE), "-S", "-emit-llvm", "-o", "k.ll", _SOURCE]
    script = '"$zig" clang "$@"'
    result = _run(script, [*common, *header, *rest], files | pch.files(source), "k.ll", unsafe, visible)
    if result.returncode and pch.REFUSED.search(result.stderr):
        result = _run(script, [*common, *rest], files, "k.ll", unsafe)
    return result.files.get("k.ll", b"").decode(), _log(result)


def _back(text: str, kernels: tuple[KernelResources, ...], runtime: bytes, unsafe: bool) -> tuple[bytes, str]:
    """(the shared library or b"", messages): IR to object, and linked with the runtime."""
    names = "".join(f"hw_entry_{k.name}; " for k in kernels)
    version = f"{{ global: hw_run; hw_release; hw_meta; {names}local: *; }};"
    script = '"$zig" clang -target "$1" -x ir -c -O2 -Xclang -disable-llvm-passes -fPIC -Wno-override-module '
    script += '-o k.o k.ll && shift && "$zig" ld.lld "$@" -o k.so k.o rt.o'
    files = {"k.ll": text.encode(), "rt.o": runtime, "exports": version.encode()}
    result = _run(script, [_target(), *_LINK], files, "k.so", unsafe)
    return result.files.get("k.so", b""), _log(result)


def _runtime_object(cache: BuildCache, unsafe: bool) -> bytes:
    """The object file of cpu_rt/rt.c, compiled once for each version of its text (0.6 s)."""
    key = content_key("cpu runtime", _fingerprint())
    if (known := cache.load(key)) and known.ok:
        with contextlib.suppress(KeyError):
            return cache.get(known.blob)
    library = Path(clang.find().folder) / "lib"
    machine = {"x86_64": "x86", "aarch64": "aarch64"}[platform.machine()]
    libc = [f"{machine}-linux-gnu", "generic-glibc", f"{machine}-linux-any", "any-linux-any"]
    includes = [str(library / "include"), *(str(library / "libc/include" / name) for name in libc)]
    argv = [*_RUNTIME_FLAGS, *_march(), *(word for path in includes for word in ("-isystem", path))]
    result = _run('"$zig" clang "$@"', [*argv, str(_RUNTIME / "rt.c"), "-o", "rt.o"], {}, "rt.o", unsafe)
    if "rt.o" not in result.files:
        raise ToolchainError(f"the cpu runtime does not compile: {_log(result)}", hint=clang.FIX)
    data = result.files["rt.o"]
    cache.store(key, Build(target=CPU.name, ok=True, blob=cache.put(data)))
    return data


def _run(
    script: str, argv: list[str], files: Mapping[str, bytes], output: str, unsafe: bool, visible: Sequence[Path] = ()
) -> ToolResult:
    found = clang.find()
    result = run_tool(
        ["/bin/sh", "-c", f"zig=$0; {script}", found.program, *argv],
        files=files,
        outputs=[output],
        ro=[Path(found.folder), _HERE, *visible],
        env={"ZIG_GLOBAL_CACHE_DIR": "zig-cache", "ZIG_LOCAL_CACHE_DIR": "zig-cache"},
        limits=_LIMITS,
        unsafe=unsafe,
    )
    if result.timed_out:
        raise _CompilationTimeout(
            f"the compiler was stopped after {_LIMITS.wall_s:.0f} s: the source takes too long to compile"
        )
    if result.returncode == 127:
        raise ToolchainError(f"the compiler does not run: {_log(result)}", hint=clang.FIX)
    return result


@functools.cache
def _target() -> str:
    machine = platform.machine()
    if machine not in _MARCH or platform.system() != "Linux":
        raise ToolchainError(f"the cpu target runs on x86-64 and aarch64 Linux, not on {platform.system()} {machine}")
    return f"{machine}-linux-gnu"


def _march() -> list[str]:
    return ["-target", _target(), *_MARCH[platform.machine()]]


@functools.cache
def _fingerprint() -> str:
    """A key of all that determines the library but the source: runtime, headers, this package, compiler, machine."""
    parts = [_target(), clang.find().id, clang.headers_id(), clang.digest(_RUNTIME), *_FLAGS, *_LINK, *_RUNTIME_FLAGS]
    return content_key(*parts, *(path.read_text() for path in sorted(Path(__file__).parent.glob("*.py"))))


def _log(result: ToolResult) -> str:
    """The compiler's messages without this machine's paths, cut at _LOG_LIMIT."""
    text = result.stderr.replace(f"{clang.INCLUDE}/", "").replace("/build/", "").replace("zig: ", "").strip()
    return text if len(text) <= _LOG_LIMIT else f"{text[:_LOG_LIMIT]}\n[{len(text) - _LOG_LIMIT} more characters]"
