"""Compiles HIP source for an AMD GPU with ROCm: hipRTC in a warm session, else hipcc, else the ziglang wheel's clang.

Three routes, of which the first that is available and applies is used:

1. hipRTC (libhiprtc.so): a library call in a contained session. HIP's own device headers are built in, C's standard
   headers and a few names are stood in for (rocm_source.py): a source that includes more takes the next route.
2. hipcc --genco: ROCm's compiler driver, contained, with ROCm's own headers.
3. The clang of the ziglang wheel, with hipwright's headers (toolchain/amd/offline.py): the same code object as
   for the offline targets. It needs no ROCm beyond the runtime.

Whose fault a failure is: a route that fails by itself, or whose messages lie in its own headers, is skipped, and the
build's log says so. A source that hipRTC refuses is given to the next route: if that takes it, hipRTC's headers were at
fault. What hipcc refuses, or hipRTC and our own clang, is the source's fault. None needs a GPU.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hipwright.errors import HipwrightError, ToolchainError
from hipwright.records import Build, content_key
from hipwright.sandbox import Limits, MakeZygote, WorkerTimeout, Zygote, run_tool
from hipwright.targets import OFFLINE, ROCM
from hipwright.tensors import HostTensor
from hipwright.toolchain import device_headers
from hipwright.toolchain.amd import bundle, codeobject, rocm_paths
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.amd.hiprtc_service import SOURCE
from hipwright.toolchain.amd.rocm_source import rocm_source, stand_ins, without_stand_in
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.pool import COMPILE_LIMIT_S, CompilePool

SERVICE = "hipwright.toolchain.amd.hiprtc_service:HiprtcService"
HIPRTC, HIPCC, CLANG = "hipRTC", "hipcc", "clang, offline"
_FLAGS = ("-O3", "-std=c++17")
_HIPCC = ("--genco", "--no-offload-compress", *_FLAGS)
_ERROR = re.compile(r"^(?:/\S*/)?([^\s:]+):\d+:\d+: (?:fatal )?error: (.*)", re.MULTILINE)
_SOURCES = (SOURCE, "CompileSource")  # hipRTC 5 calls every source so


def zygote(*, unsafe: bool = False, make: MakeZygote = Zygote) -> Zygote:
    """A contained process for a CompilePool of hipRTC sessions; it can read ROCm. The caller closes it."""
    return make(
        ("hipwright.toolchain.amd.hiprtc_service",), ro=rocm_paths.readable(), unsafe=unsafe, name="hipRTC host"
    )


def build(
    hip: str, defines: Mapping[str, int], *, arch: str, pool: CompilePool, cache: BuildCache, unsafe: bool = False
) -> Build:
    """Compile HIP source for the AMD GPU `arch` ("gfx942", features after a colon are left to the loader).

    A wrong source returns Build(ok=False) with the compiler's messages. Raises ToolchainError, with each route's error,
    when none works, and SandboxMissing where no compiler can be contained.
    """
    base = arch.partition(":")[0]
    failures: list[str] = []
    refusals: dict[str, Build] = {}
    for route in _routes(hip, base, pool, cache, unsafe):
        try:
            built = _built(route, hip, defines, base, cache, failures)
        except ToolchainError as error:
            failures.append(f"{route.name}: {error.message}")
            continue
        if built.ok:
            return built
        refusals[route.name] = built
        messages = _ERROR.findall(built.log)
        if route.name != HIPRTC or not messages:
            break
        failures.append(f"{HIPRTC} refuses the source: {messages[0][1]}")  # the next route tells whose fault that is
    if refusals:
        return refusals.get(HIPCC) or next(iter(refusals.values()))
    raise ToolchainError(f"no compiler for {base}: {'; '.join(failures) or 'none is installed'}", hint=rocm_paths.FIX)


def build_by(name: str, hip: str, *, arch: str, pool: CompilePool, cache: BuildCache, unsafe: bool = False) -> Build:
    """Compile by one route (HIPRTC, HIPCC, CLANG). Raises ToolchainError where it is not there, or fails by itself."""
    base = arch.partition(":")[0]
    route = next((one for one in _routes(hip, base, pool, cache, unsafe) if one.name == name), None)
    if route is None:
        raise ToolchainError(f"{name} is not on this machine", hint=rocm_paths.FIX)
    return _built(route, hip, {}, base, cache, [])


@dataclass(frozen=True)
class _Route:
    """A way to a code object. identity: the tool's version.

    compile(defines) returns the build, and whether the same source would always give it.
    """

    name: str
    identity: str
    compile: Callable[[Mapping[str, int]], tuple[Build, bool]]


def _built(
    route: _Route, hip: str, defines: Mapping[str, int], arch: str, cache: BuildCache, failures: list[str]
) -> Build:
    """The build of one route, from the cache if it is there. failures: of routes before, for the log.

    ToolchainError where the compiler, or the headers that are its own, are at fault.
    """
    ids = (device_headers.device_headers_id(), arch, *(f"{k}={v}" for k, v in sorted(defines.items())))
    key = content_key(ROCM.name, hip, *ids, route.name, route.identity)
    if known := cache.load(key):
        return known
    started = time.perf_counter()
    built, reproducible = route.compile(defines)
    if not built.ok and route.name != CLANG:
        _check_fault(built.log)
    notes = [f"built by {route.name}; {line}" for line in failures] if built.ok else []
    log = "\n".join([*notes, built.log]).strip()
    built = msgspec.structs.replace(built, target=ROCM.name, log=log, seconds=time.perf_counter() - started)
    if reproducible:
        cache.store(key, built)
    return built


def _check_fault(log: str) -> None:
    """ToolchainError where no message of a failed build is about the source, or a header is missing."""
    messages = _ERROR.findall(log)
    if missing := next((said for _, said in messages if said.endswith("file not found")), ""):
        raise ToolchainError(f"its headers are incomplete: {missing}")
    if messages and not any(file in _SOURCES for file, _ in messages):
        file, said = messages[0]
        raise ToolchainError(f"its own headers fail: {file}: {said}")


def _routes(hip: str, arch: str, pool: CompilePool, cache: BuildCache, unsafe: bool) -> list[_Route]:
    """Every available route that applies, best first."""
    found: list[_Route] = []
    whole = rocm_source(hip, SOURCE)
    library, hipcc = rocm_paths.library("hiprtc"), rocm_paths.hipcc()
    if library and not without_stand_in(whole):
        found.append(_Route(HIPRTC, _identity(library), lambda d: _by_hiprtc(whole, d, arch, library, pool, cache)))
    if hipcc:
        found.append(_Route(HIPCC, _identity(hipcc), lambda d: _by_hipcc(whole, d, arch, hipcc, cache, unsafe)))
    if arch in OFFLINE:
        found.append(_Route(CLANG, "", lambda d: (amdgpu.build(hip, arch, d, cache=cache, unsafe=unsafe), False)))
    return found


def _identity(path: Path) -> str:
    """Identifies a tool's version for cache keys: its real path, size and modification time."""
    real = path.resolve()
    return f"{real} {real.stat().st_size} {real.stat().st_mtime_ns}"


def _by_hiprtc(
    hip: str, defines: Mapping[str, int], arch: str, library: Path, pool: CompilePool, cache: BuildCache
) -> tuple[Build, bool]:
    options = [f"--offload-arch={arch}", *_FLAGS, *_defined(defines)]
    header = {"source": hip, "options": options, "headers": stand_ins()}
    try:
        reply, code = pool.call(SERVICE, {"library": str(library.resolve())}, "compile", header)
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
        ro=[*rocm_paths.readable(), root],
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
    text = re.sub(r"(?:/[\w.+-]+)+/(?=kernel\.hip|CompileSource)", "", log).strip()
    return (
        text if len(text) <= amdgpu.LOG_LIMIT else f"{text[: amdgpu.LOG_LIMIT]}\n[{len(text) - amdgpu.LOG_LIMIT} more]"
    )
