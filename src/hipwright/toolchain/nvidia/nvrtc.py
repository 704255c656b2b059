"""The `cuda` target: compiles HIP source to a cubin by NVRTC with hipwright's headers; no nvcc, zig wheel or GPU.

The compiler runs in warm contained sessions (nvrtc_service.py). A wrong source returns Build(ok=False) with messages
that use the HIP string's line numbers. See docs/cuda-target.md.
"""

from __future__ import annotations

import ctypes.util
import functools
import hashlib
import os
import re
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hipwright.errors import BadInput, ToolchainError
from hipwright.records import Build, KernelResources, Record, content_key
from hipwright.sandbox import MakeZygote, WorkerDied, WorkerTimeout, Zygote
from hipwright.targets import CUDA, TARGETS
from hipwright.tensors import HostTensor
from hipwright.toolchain import clang, pch
from hipwright.toolchain.amd.offline import include_outside
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.nvidia import ptx
from hipwright.toolchain.pool import CompilePool

SERVICE = "hipwright.toolchain.nvidia.nvrtc_service:NvrtcService"
FIX = "pip install nvidia-cuda-nvrtc nvidia-cuda-runtime, or install torch for CUDA"
LOG_LIMIT = 6000  # characters
_RETRY = "try again; report it if it stays"
OWN = "hw_"  # prefix of a kernel whose name is a CUDA function's too

# CUDA's precise math: no --use_fast_math. No warnings of unused variables and of CUDA's own deprecations.
_FLAGS = (
    "-std=c++17",
    "-default-device",
    "--device-int128",
    "--ptxas-options=-v",
    "-diag-suppress=69,177,550,1444",
)
_PREFIX = ("hw/nvidia_base.h", "hip/hip_runtime.h", "hip/hip_fp16.h", "hip/hip_bf16.h", "hip/hip_bfloat16.h")
_CLASH = re.compile(r'more than one instance of overloaded function "(\w+)" has "C" linkage')
_AMD_NAME = re.compile(r'identifier "(__builtin_amdgcn_\w+|__ockl_\w+|__ocml_\w+|__llvm_amdgcn_\w+)"')
_AMD_TYPE = re.compile(r'unknown attribute "(ext_vector_type|amdgpu_\w+|address_space)"')
_NOISE = re.compile(r'ptxas (info|\s+\.)|Remark: The warnings can|"kernel.hip": using precompiled header')
_STARVED = re.compile(
    r"unable to obtain mapped memory|No space left|out of memory|cannot create temporary", re.IGNORECASE
)
_OUR_NAME = re.compile(r"\bhw_((?:u?(?:char|short|int|long|longlong)|float|double)[1-4]|dim3|min|max|ballot|any|all)\b")


class NvrtcInstallation(Record, frozen=True, kw_only=True):
    """An installed NVRTC. library, builtins: files; include: the folder of cuda_fp16.h; id: for cache keys."""

    library: str
    builtins: str
    include: str
    id: str


@functools.cache
def find() -> NvrtcInstallation:
    """NVRTC and NVIDIA's headers: pip packages, torch's own, CUDA_HOME, then the system's.

    Raises ToolchainError, with the packages to install, where one of them is missing.
    """
    for library in _libraries():
        include = next((folder for folder in _includes(library) if (folder / "cuda_fp16.h").is_file()), None)
        if include is None:
            raise ToolchainError(f"{library} is here, but not NVIDIA's cuda_fp16.h", hint=FIX)
        builtins = sorted(library.parent.glob("libnvrtc-builtins*.so*"), key=lambda path: "alt" in path.name)
        digest = hashlib.sha256()
        for name in ("cuda_fp16.h", "cuda_bf16.h"):
            digest.update((include / name).read_bytes())
        version = builtins[0].name.partition(".so.")[2] if builtins else ""
        known = f"nvrtc {version or library.name} {library.stat().st_size} headers {digest.hexdigest()[:12]}"
        return NvrtcInstallation(
            library=str(library), builtins=str(builtins[0]) if builtins else "", include=str(include), id=known
        )
    raise ToolchainError("no NVRTC on this machine", hint=FIX)


def compiler_id() -> str:
    """The versions of NVRTC and the headers as one line, for cache keys."""
    return f"{find().id}, own headers {clang.headers_id()}"


def visible() -> tuple[Path, ...]:
    """The folders that a zygote of compile sessions must be able to read."""
    found = find()
    return Path(found.library).parent, Path(found.include), clang.INCLUDE


def zygote(*, unsafe: bool = False, make: MakeZygote = Zygote) -> Zygote:
    """A contained process for a CompilePool of NVRTC sessions. Close it after the pool."""
    return make(("hipwright.toolchain.nvidia.nvrtc_service",), ro=visible(), unsafe=unsafe, name="NVRTC host")


def warm(pool: CompilePool, arch: str) -> None:
    """Start the pool's sessions for an architecture in the background."""
    pool.warm(SERVICE, _init(arch))


def build(
    hip: str, defines: Mapping[str, int], *, arch: str, pool: CompilePool, cache: BuildCache, unsafe: bool = False
) -> Build:
    """Compile HIP source for one NVIDIA architecture ("sm_90"). `blob` is the cubin.

    unsafe: unused; the pool's zygote is contained or not.

    A wrong source returns Build(ok=False). Raises ToolchainError where NVRTC is missing or broken, SandboxMissing where
    it cannot be contained, BadInput for a malformed architecture.
    """
    if not re.fullmatch(r"sm_\d{2,3}[af]?", arch):
        raise BadInput(f"unknown NVIDIA architecture {arch!r}", hint='write it as "sm_90"')
    knobs = "".join(f"#define {name} {value}\n" for name, value in sorted(defines.items()))
    key = content_key("cuda 3", hip, knobs, arch, "\0".join((*_FLAGS, *_PREFIX)), compiler_id())
    if known := cache.load(key):
        return known
    started = time.perf_counter()
    built, reproducible = _build(hip, knobs, arch, pool, cache)
    built = msgspec.structs.replace(built, seconds=time.perf_counter() - started)
    if reproducible:
        cache.store(key, built)
    return built


# ---------------------------------------------------------------- one build


def _build(hip: str, knobs: str, arch: str, pool: CompilePool, cache: BuildCache) -> tuple[Build, bool]:
    """(the build, whether the same source would give it again: not after a timeout)."""
    if refused := include_outside(hip):
        return Build(target=CUDA.name, ok=False, log=refused), True
    try:
        ok, log, code, mixes = _compile_twice(hip, knobs, arch, pool)
        while not ok and (clash := _CLASH.search(log)):
            renamed = _rename(hip, clash[1])
            if renamed == hip:
                break
            hip = renamed
            ok, log, code, mixes = _compile_twice(hip, knobs, arch, pool)
    except WorkerTimeout:
        return Build(target=CUDA.name, ok=False, log=f"the compiler was stopped after {pool.limit_s:.0f} s"), False
    except WorkerDied as error:
        return Build(target=CUDA.name, ok=False, log=f"the compiler crashed: {error.message}"), False
    if not ok:
        return Build(target=CUDA.name, ok=False, log=_explain(log)), True
    try:
        kernels = ptx.with_mix(resources(log), mixes, TARGETS.architecture(arch), OWN)
    except msgspec.ValidationError as error:
        raise ToolchainError(f"the NVRTC session tells no instruction mix: {error}", hint=_RETRY) from None
    return Build(
        target=CUDA.name, ok=True, blob=cache.put(code), kernels=kernels, device_math="host", log=_clean(log)
    ), True


def _compile_twice(hip: str, knobs: str, arch: str, pool: CompilePool) -> tuple[bool, str, bytes, Any]:
    """`_compile`, repeated with fresh sessions where the compiler crashed or lacked memory or disk space.

    Raises ToolchainError where space is lacking again, WorkerDied where it crashes again: on this source.
    """
    for last in (False, True):
        try:
            found = _compile(hip, knobs, arch, pool)
        except WorkerDied:
            if last:
                raise
        else:
            if found[0] or not _STARVED.search(found[1]):
                return found
            if last:
                raise ToolchainError(
                    f"NVRTC has no room to work: {found[1][:200]}", hint="give /tmp and memory more room"
                )
        pool.refresh()
    raise AssertionError("unreachable")


def _compile(hip: str, knobs: str, arch: str, pool: CompilePool) -> tuple[bool, str, bytes, Any]:
    """(compiled?, log, cubin, the session's `ptx.mixes`, not validated)."""
    reply, code = _call("compile", hip, knobs, arch, pool)
    return bool(reply["ok"]), str(reply["log"]), code, reply.get("mixes")


def listing(hip: str, knobs: str, arch: str, pool: CompilePool) -> tuple[bool, str, str]:
    """(compiled?, log, PTX), for inspection of the instructions. Raises the errors of a session's call."""
    reply, text = _call("listing", hip, knobs, arch, pool)
    return bool(reply["ok"]), str(reply["log"]), text.decode(errors="replace")


def _call(method: str, hip: str, knobs: str, arch: str, pool: CompilePool) -> tuple[dict[str, Any], bytes]:
    with_prefix = bool(pch.leading(hip))
    head = "" if with_prefix else f"#include <{_PREFIX[0]}>\n"
    body = f'{head}{knobs}#line 1 "kernel.hip"\n{hip}\n'
    reply, data = pool.call(SERVICE, _init(arch), method, {"body": body, "prefix": with_prefix})
    if not (isinstance(data, list) and len(data) == 1 and isinstance(data[0], HostTensor)):
        raise ToolchainError("the NVRTC session gave no answer", hint=_RETRY)
    return reply, np.asarray(data[0].storage).tobytes()


def _init(arch: str) -> dict[str, Any]:
    found, known = find(), TARGETS.architecture(arch)
    isa = known.isa if known is not None and known.name == arch else arch
    options = [f"-arch={isa}", *_FLAGS, f"-I{clang.INCLUDE}", f"-I{found.include}"]
    prefix = "".join(f"#include <{name}>\n" for name in _PREFIX)
    return {"library": found.library, "builtins": found.builtins, "options": options, "prefix": prefix}


def _rename(hip: str, kernel: str) -> str:
    """The source with the prefix OWN before the name of a kernel that clashes with a C function of CUDA."""
    return re.sub(rf"(\b__global__\b[^;{{}}]*?)\b{kernel}(\s*\()", rf"\g<1>{OWN}{kernel}\2", hip)


# ---------------------------------------------------------------- the log

_FUNCTION = re.compile(r"Compiling entry function '(\w+)' for")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(.*)")
_STATIC = re.compile(r"(\d+) bytes smem")


def resources(log: str) -> tuple[KernelResources, ...]:
    """Each kernel's resources by ptxas -v: vgpr = registers a thread, scratch_bytes = the stack frame, spills = 4-byte
    words spilled. `ptx.with_mix` adds those of its PTX."""
    found: list[KernelResources] = []
    name, stack, spilled = "", 0, 0
    for line in log.splitlines():
        if match := _FUNCTION.search(line):
            name, stack, spilled = match[1].removeprefix(OWN), 0, 0
        elif match := _STACK.search(line):
            stack, spilled = int(match[1]), int(match[2]) // 4
        elif (match := _USED.search(line)) and name:
            lds = _STATIC.search(match[2])
            found.append(
                KernelResources(
                    name=name,
                    vgpr=int(match[1]),
                    lds_bytes=int(lds[1]) if lds else 0,
                    scratch_bytes=stack,
                    spills=spilled,
                )
            )
            name = ""
    return tuple(found)


def _explain(log: str) -> str:
    """The messages of a failed build, with a note for names that only AMD's compiler has."""
    amd = dict.fromkeys([*_AMD_NAME.findall(log), *_AMD_TYPE.findall(log)])
    notes = [f"AMD only: {name}, the {CUDA.name} target cannot compile it" for name in amd]
    if not notes and re.search(r"ptxas.*(Parsing error|syntax error|Not a name)", log):
        notes = [f"AMD only: inline assembly of another machine, the {CUDA.name} target cannot compile it"]
    return "\n".join([*notes, _clean(log)])


def _clean(log: str) -> str:
    """NVRTC's messages without ptxas's statistics, this machine's paths and internal names, cut at LOG_LIMIT."""
    lines = [line for line in log.splitlines() if not _NOISE.match(line)]
    text = "\n".join(lines).replace(f"{clang.INCLUDE}/", "").replace(f"{find().include}/", "")
    text = _OUR_NAME.sub(r"\1", re.sub(r"\n{2,}", "\n", text)).strip()
    if len(text) <= LOG_LIMIT:
        return text
    return f"{text[:LOG_LIMIT].strip()}\n[{len(text) - LOG_LIMIT} more characters]"


# ---------------------------------------------------------------- locating NVRTC


def _libraries() -> Iterator[Path]:
    for folder in _nvidia_folders():
        yield from _in(folder / "lib")
    spec = find_spec("torch")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        yield from _in(Path(place) / "lib")
    for root in _cuda_roots():
        yield from _in(root / "lib64")
        yield from _in(root / "lib")
    if name := ctypes.util.find_library("nvrtc"):
        for folder in map(Path, ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/lib/aarch64-linux-gnu")):
            if (folder / name).is_file():
                yield folder / name


def _in(folder: Path) -> list[Path]:
    """The NVRTC libraries of a folder, newest first, without builtins, static and alternative ones."""
    found = [path for path in folder.glob("libnvrtc*.so*") if not re.search(r"builtins|static|alt", path.name)]
    return sorted(found, key=lambda path: [int(n) for n in re.findall(r"\d+", path.name)], reverse=True)


def _includes(library: Path) -> Iterator[Path]:
    """Folders that may hold the headers of a library: beside it, in another pip package, in a toolkit."""
    yield library.parent.parent / "include"
    yield from (folder / "include" for folder in _nvidia_folders())
    yield from (root / "include" for root in _cuda_roots())
    yield Path("/usr/include")


def _nvidia_folders() -> list[Path]:
    """Folders of site-packages/nvidia: cu13 holds everything; older packages (cuda_nvrtc, ...) hold one part each."""
    spec = find_spec("nvidia")
    places = list(spec.submodule_search_locations or ()) if spec else []
    return [folder for place in places for folder in sorted(Path(place).glob("cu*"), reverse=True)]


def _cuda_roots() -> list[Path]:
    named = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    return [Path(root) for root in (*named, "/usr/local/cuda")]
