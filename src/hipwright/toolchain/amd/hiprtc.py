"""Compiles HIP source for an AMD GPU with ROCm: hipRTC in a warm session, else hipcc, else the ziglang wheel's clang.

Three routes, of which the first that is available and applies is used:

1. hipRTC (libhiprtc.so): a library call in a contained session. HIP's own device headers are built in, but no others:
   a source that includes more takes the next route.
2. hipcc --genco: ROCm's compiler driver, contained, with ROCm's own headers.
3. The clang of the ziglang wheel, with hipwright's headers (toolchain/amd/offline.py): the same code object as
   for the offline targets. It needs no ROCm beyond the runtime.

A route that fails by itself, not on the source, is skipped, and the build's log says so. None needs a GPU.
"""

from __future__ import annotations

import ctypes
import re
import time
from collections.abc import Callable, Mapping
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hipwright.errors import HipwrightError, ToolchainError
from hipwright.records import Build, content_key
from hipwright.sandbox import Limits, WorkerTimeout, Zygote, run_tool
from hipwright.targets import OFFLINE, ROCM
from hipwright.tensors import HostTensor, Tree
from hipwright.toolchain import device_headers
from hipwright.toolchain.amd import bundle, codeobject, rocm_paths
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.pool import COMPILE_LIMIT_S, CompilePool

SERVICE = "hipwright.toolchain.amd.hiprtc:HiprtcService"
SOURCE = "kernel.hip"
BUILT_IN = {"hip/hip_runtime.h", "hip/hip_fp16.h", "hip/hip_bfloat16.h", "hip/hip_vector_types.h"}
"""Headers that hipRTC has built in; with ROCm's include folder, every header under hip/ is available."""
_FLAGS = ("-O3", "-std=c++17")
_HIPCC = ("--genco", "--no-offload-compress", *_FLAGS)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"\n]*)", re.MULTILINE)
_COMPILATION = 6  # hiprtcResult: the source is at fault; all other errors are the library's
_RESULTS = {
    1: "HIPRTC_ERROR_OUT_OF_MEMORY",
    2: "HIPRTC_ERROR_PROGRAM_CREATION_FAILURE",
    3: "HIPRTC_ERROR_INVALID_INPUT",
    4: "HIPRTC_ERROR_INVALID_PROGRAM",
    5: "HIPRTC_ERROR_INVALID_OPTION",
    6: "HIPRTC_ERROR_COMPILATION",
    7: "HIPRTC_ERROR_BUILTIN_OPERATION_FAILURE",
    11: "HIPRTC_ERROR_INTERNAL_ERROR",
    100: "HIPRTC_ERROR_LINKING",
}


class HiprtcService:
    """The service of a session: hipRTC, loaded once. init: library (path), headers (ROCm's include folder or "")."""

    def __init__(self, init: dict[str, Any], _: Tree) -> None:
        try:
            self._rtc = ctypes.CDLL(init["library"])
            for name, arguments in _ARGUMENTS.items():
                getattr(self._rtc, name).argtypes = arguments
        except (OSError, AttributeError) as error:
            raise ToolchainError(f"cannot use hipRTC: {error}", hint=rocm_paths.FIX) from None
        self._headers = str(init["headers"])

    def compile(self, header: dict[str, Any], _: Tree) -> tuple[dict[str, Any], Tree]:
        """header: source, options. ({ok, log}, the code object). ToolchainError where the source is not at fault."""
        program = c_void_p()
        self._check(self._create(program, header["source"]), "hiprtcCreateProgram")
        try:
            options = [option.encode() for option in header["options"]]
            options += [f"-I{self._headers}".encode()] if self._headers else []
            result = self._rtc.hiprtcCompileProgram(program, len(options), (c_char_p * len(options))(*options))
            log = self._text(program, "hiprtcGetProgramLog").decode(errors="replace")
            if result == _COMPILATION:
                return {"ok": False, "log": log}, None
            self._check(result, f"hiprtcCompileProgram: {log[-300:].strip()}")
            code = np.frombuffer(self._text(program, "hiprtcGetCode"), np.uint8)
            return {"ok": True, "log": log}, HostTensor.of(code)
        finally:
            self._rtc.hiprtcDestroyProgram(byref(program))

    def version(self, _: dict[str, Any], __: Tree) -> tuple[dict[str, Any], Tree]:
        """{major, minor} of hipRTC."""
        major, minor = c_int(), c_int()
        self._check(self._rtc.hiprtcVersion(byref(major), byref(minor)), "hiprtcVersion")
        return {"major": major.value, "minor": minor.value}, None

    def _create(self, program: c_void_p, source: str) -> int:
        texts: list[bytes] = []
        names: list[bytes] = []
        if not self._headers:  # the content is built in; the names must resolve
            names = [name.encode() for name in sorted(BUILT_IN)]
            texts = [b"#pragma once\n"] * len(names)
        arrays = [(c_char_p * max(len(part), 1))(*part) for part in (texts, names)]
        result = self._rtc.hiprtcCreateProgram(byref(program), source.encode(), SOURCE.encode(), len(names), *arrays)
        return int(result)

    def _text(self, program: c_void_p, what: str) -> bytes:
        """The bytes of the log or of the code."""
        size = c_size_t()
        self._check(getattr(self._rtc, f"{what}Size")(program, byref(size)), f"{what}Size")
        buffer = ctypes.create_string_buffer(max(size.value, 1))
        if size.value:
            self._check(getattr(self._rtc, what)(program, buffer), what)
        return buffer.raw[: size.value].rstrip(b"\0") if what.endswith("Log") else buffer.raw[: size.value]

    def _check(self, result: int, doing: str) -> None:
        if result:
            raise ToolchainError(f"hipRTC failed: {doing}: {_RESULTS.get(result, f'error {result}')}")


_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "hiprtcVersion": (POINTER(c_int), POINTER(c_int)),
    "hiprtcCreateProgram": (
        POINTER(c_void_p),
        c_char_p,
        c_char_p,
        c_int,
        POINTER(c_char_p),
        POINTER(c_char_p),
    ),
    "hiprtcCompileProgram": (c_void_p, c_int, POINTER(c_char_p)),
    "hiprtcGetProgramLogSize": (c_void_p, POINTER(c_size_t)),
    "hiprtcGetProgramLog": (c_void_p, c_char_p),
    "hiprtcGetCodeSize": (c_void_p, POINTER(c_size_t)),
    "hiprtcGetCode": (c_void_p, c_char_p),
    "hiprtcDestroyProgram": (POINTER(c_void_p),),
}


# ---------------------------------------------------------------- in the parent


def zygote(*, unsafe: bool = False) -> Zygote:
    """A contained process for a CompilePool of hipRTC sessions; it can read ROCm. The caller closes it."""
    return Zygote(("hipwright.toolchain.amd.hiprtc",), ro=rocm_paths.readable(), unsafe=unsafe, name="hipRTC host")


def build(
    hip: str, defines: Mapping[str, int], *, arch: str, pool: CompilePool, cache: BuildCache, unsafe: bool = False
) -> Build:
    """Compile HIP source for the AMD GPU `arch` ("gfx942", features after a colon are left to the loader).

    A wrong source returns Build(ok=False) with the compiler's messages. Raises ToolchainError, with each route's error,
    when none works, and SandboxMissing where no compiler can be contained.
    """
    base = arch.partition(":")[0]
    routes = _routes(hip, base, pool, cache, unsafe)
    failures: list[str] = []
    for name, identity, compile_ in routes:
        key = content_key(
            ROCM.name,
            hip,
            device_headers.device_headers_id(),
            base,
            *(f"{k}={v}" for k, v in sorted(defines.items())),
            name,
            identity,
        )
        if known := cache.load(key):
            return known
        started = time.perf_counter()
        try:
            built, reproducible = compile_(defines)
        except ToolchainError as error:
            failures.append(f"{name}: {error.message}")
            continue
        notes = [f"built by {name}; {line}" for line in failures]
        log = "\n".join([*notes, built.log]).strip()
        built = msgspec.structs.replace(built, target=ROCM.name, log=log, seconds=time.perf_counter() - started)
        if reproducible:
            cache.store(key, built)
        return built
    raise ToolchainError(f"no compiler for {base}: {'; '.join(failures) or 'none is installed'}", hint=rocm_paths.FIX)


_Compile = Callable[[Mapping[str, int]], tuple[Build, bool]]


def _routes(hip: str, arch: str, pool: CompilePool, cache: BuildCache, unsafe: bool) -> list[tuple[str, str, _Compile]]:
    """(name, tool version, compile) of every available route that applies, best first.

    compile(defines) returns the build, and whether the same source would always give it.
    """
    found: list[tuple[str, str, _Compile]] = []
    whole = device_headers.inlined_for(hip, SOURCE)
    library, folder, hipcc = rocm_paths.library("hiprtc"), rocm_paths.headers(), rocm_paths.hipcc()
    if library and (folder or set(_INCLUDE.findall(whole)) <= BUILT_IN):
        init = {"library": str(library.resolve()), "headers": str(folder or "")}
        found.append(("hipRTC", _identity(library), lambda d: _by_hiprtc(whole, d, arch, init, pool, cache)))
    if hipcc:
        found.append(("hipcc", _identity(hipcc), lambda d: _by_hipcc(whole, d, arch, hipcc, cache, unsafe)))
    if arch in OFFLINE:
        found.append(("clang, offline", "", lambda d: (amdgpu.build(hip, arch, d, cache=cache, unsafe=unsafe), False)))
    return found


def _identity(path: Path) -> str:
    """Identifies a tool's version for cache keys: its real path, size and modification time."""
    real = path.resolve()
    return f"{real} {real.stat().st_size} {real.stat().st_mtime_ns}"


def _by_hiprtc(
    hip: str, defines: Mapping[str, int], arch: str, init: dict[str, Any], pool: CompilePool, cache: BuildCache
) -> tuple[Build, bool]:
    options = [f"--offload-arch={arch}", *_FLAGS, *_defined(defines)]
    try:
        reply, code = pool.call(SERVICE, init, "compile", {"source": hip, "options": options})
    except WorkerTimeout:
        log = f"the compiler was stopped after {pool.limit_s:.0f} s"
        return Build(target=ROCM.name, ok=False, log=log), False
    except ToolchainError:
        raise
    except HipwrightError as error:  # the session died: a crash of the compiler is not evidence against the source
        raise ToolchainError(f"hipRTC's session ended: {error.message}") from None
    log = _clean(str(reply.get("log", "")))
    if not reply.get("ok"):
        return Build(target=ROCM.name, ok=False, log=log), True
    if not isinstance(code, HostTensor):
        raise ToolchainError("hipRTC's session returned no code object")
    return _finished(code.storage.tobytes(), arch, log, cache), True


def _by_hipcc(
    hip: str, defines: Mapping[str, int], arch: str, hipcc: Path, cache: BuildCache, unsafe: bool
) -> tuple[Build, bool]:
    root = hipcc.resolve().parents[1]
    result = run_tool(
        [str(hipcc), *_HIPCC, f"--offload-arch={arch}", *_defined(defines), SOURCE, "-o", "kernel.hsaco"],
        files={SOURCE: hip.encode()},
        outputs=["kernel.hsaco"],
        ro=[*rocm_paths.roots(), root],
        env={"ROCM_PATH": str(root), "HIP_PLATFORM": "amd"},
        limits=Limits(wall_s=COMPILE_LIMIT_S),
        unsafe=unsafe,
    )
    log = _clean(result.stderr)
    if result.timed_out:
        return Build(target=ROCM.name, ok=False, log=f"hipcc was stopped after {COMPILE_LIMIT_S:.0f} s\n{log}"), False
    code = result.files.get("kernel.hsaco")
    if result.returncode or code is None:
        if "error:" in log:
            return Build(target=ROCM.name, ok=False, log=log), True
        raise ToolchainError(f"hipcc ended with {result.returncode}: {log[-300:] or 'no message'}")
    return _finished(code, arch, log, cache), True


def _finished(data: bytes, arch: str, log: str, cache: BuildCache) -> Build:
    try:
        code = bundle.extract(data, arch)
        kernels = bundle.resources(code, arch)
        if arch in OFFLINE and codeobject.machine(code) != OFFLINE[arch].elf_machine:
            raise ValueError("made for another GPU")
    except ValueError as error:
        raise ToolchainError(f"its output for {arch} cannot be used: {error}") from None
    return Build(target=ROCM.name, ok=True, blob=cache.put(code), kernels=kernels, device_math="ocml", log=log)


def _defined(defines: Mapping[str, int]) -> list[str]:
    return [f"-D{name}={value}" for name, value in sorted(defines.items())]


def _clean(log: str) -> str:
    """The compiler's messages without this machine's paths, cut at LOG_LIMIT."""
    text = re.sub(r"(?:/[\w.+-]+)+/(?=kernel\.hip)", "", log).strip()
    return (
        text if len(text) <= amdgpu.LOG_LIMIT else f"{text[: amdgpu.LOG_LIMIT]}\n[{len(text) - amdgpu.LOG_LIMIT} more]"
    )
