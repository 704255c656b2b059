"""The compiler of the `cpu` target: HIP source to LLVM IR, IR to a shared library, each in the sandbox."""

from __future__ import annotations

import contextlib
import functools
import platform
import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from hipwright.errors import ToolchainError
from hipwright.records import Build, KernelResources, content_key
from hipwright.sandbox import Limits, ToolResult, run_tool
from hipwright.targets import CPU
from hipwright.toolchain import clang, pch
from hipwright.toolchain.cache import BuildCache

SOURCE = "kernel.hip"
_DYNAMIC = re.compile(
    r"\bextern((?:\s+(?:__align__\s*\([^()]*\)|alignas\s*\([^()]*\)|__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)))*)"
    r"(\s+)__shared__\b"
)
_HERE = Path(__file__).parents[1]
_RUNTIME = _HERE / "cpu_rt"
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
# no optimisation but registers for values that cross blocks: frames stay small, as fibers have little stack
_QUICK = "-O0 -mllvm -optimize-regalloc -mllvm -regalloc=basic"
_RUNTIME_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden", "-fno-stack-protector", "-nostdinc", "-c")


class CompilationTimeout(Exception):
    """A compilation over the time limit: the source is at fault."""


def prepare_source(source: str) -> str:
    """Replace `extern __shared__` (dynamic LDS) by a macro of its own: `__shared__` alone is static LDS here."""
    return _DYNAMIC.sub(r"extern\1\2__hw_dynamic_shared__", source)


_FRONTS: dict[tuple[object, ...], threading.Lock] = {}


def front(source: str, knobs: tuple[str, ...], wave: int, cache: BuildCache, unsafe: bool) -> tuple[str, str]:
    """(LLVM IR or "", the compiler's messages). Cached: the fast and the checked build share it."""
    key = (source, knobs, wave, unsafe)
    lock = _FRONTS.setdefault(key, threading.Lock())
    try:
        with lock:
            return _front(source, knobs, wave, cache, unsafe)
    finally:
        _FRONTS.pop(key, None)


@functools.lru_cache(maxsize=16)
def _front(source: str, knobs: tuple[str, ...], wave: int, cache: BuildCache, unsafe: bool) -> tuple[str, str]:
    common = [*_FLAGS, *_march(), f"-DHW_WAVE={wave}"]
    header, visible = pch.flags(source, common, cache, unsafe=unsafe)
    files = {SOURCE: prepare_source(source).encode()}
    rest = [*knobs, "-I", str(clang.INCLUDE), "-S", "-emit-llvm", "-o", "k.ll", SOURCE]
    script = '"$zig" clang "$@"'
    result = _run(script, [*common, *header, *rest], files | pch.files(source), "k.ll", unsafe, visible)
    if result.returncode and pch.REFUSED.search(result.stderr):
        result = _run(script, [*common, *rest], files, "k.ll", unsafe)
    return result.files.get("k.ll", b"").decode(), _log(result)


def back(
    text: str, kernels: tuple[KernelResources, ...], runtime: bytes, unsafe: bool, *, quick: bool
) -> tuple[bytes, str]:
    """(the shared library or b"", messages): IR to object, and linked with the runtime.

    quick: the code generator does not optimise, which saves more than half of its time; its code is slower.
    """
    names = "".join(f"hw_entry_{k.name}; " for k in kernels)
    version = f"{{ global: hw_run; hw_release; hw_meta; {names}local: *; }};"
    script = '"$zig" clang -target "$1" -x ir -c $2 -Xclang -disable-llvm-passes -fPIC -Wno-override-module '
    script += '-o k.o k.ll && shift 2 && "$zig" ld.lld "$@" -o k.so k.o rt.o'
    files = {"k.ll": text.encode(), "rt.o": runtime, "exports": version.encode()}
    result = _run(script, [_target(), _QUICK if quick else "-O2", *_LINK], files, "k.so", unsafe)
    return result.files.get("k.so", b""), _log(result)


def runtime_object(cache: BuildCache, unsafe: bool) -> bytes:
    """The object file of cpu_rt/rt.c, compiled once for each version of its text (0.6 s)."""
    key = content_key("cpu runtime", fingerprint())
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
        raise CompilationTimeout(
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
def fingerprint() -> str:
    """A key of all that determines the library but the source: runtime, headers, this package, compiler, machine."""
    parts = [
        _target(),
        clang.find().id,
        clang.headers_id(),
        clang.digest(_RUNTIME),
        *_FLAGS,
        *_LINK,
        *_RUNTIME_FLAGS,
        _QUICK,
    ]
    return content_key(*parts, *(path.read_text() for path in sorted(Path(__file__).parent.glob("*.py"))))


def _log(result: ToolResult) -> str:
    """The compiler's messages without this machine's paths, cut at _LOG_LIMIT."""
    text = result.stderr.replace(f"{clang.INCLUDE}/", "").replace("/build/", "").replace("zig: ", "").strip()
    return text if len(text) <= _LOG_LIMIT else f"{text[:_LOG_LIMIT]}\n[{len(text) - _LOG_LIMIT} more characters]"
