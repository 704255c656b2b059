"""Compiles HIP source for one GPU, with a cache: hipRTC or hipcc on AMD, NVRTC on NVIDIA.

The compilers' libraries are called through ctypes. Sources: NVRTC and hipRTC user guides, "Basic Usage".
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from pathlib import Path
from typing import Any

INCLUDE = Path(__file__).parent / "include"  # HIP's device headers for NVRTC
# built into hipRTC; hip_bf16.h is named for CUDA alone, as the programs bring its type along
HIP_BUILT_IN = ("hip/hip_bf16.h", "hip/hip_bfloat16.h", "hip/hip_fp16.h", "hip/hip_runtime.h", "hip/hip_vector_types.h")
_SPECIFIC = {"sm_90": "sm_90a"}  # with the instructions of that architecture alone
_CLASH = re.compile(r'more than one instance of overloaded function "(\w+)" has "C" linkage')
_INCLUDES = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"\n]*)", re.MULTILINE)
_SOURCE = "kernels.hip"


class BuildError(RuntimeError):
    """There is no compiler, or the compiler rejects the source; the message says which, and what to do."""


def build(source: str, defines: Mapping[str, int], arch: str) -> bytes:
    """Machine code of HIP source for `arch` ("sm_90" or "gfx942"), from the cache if it was built before."""
    compile_, identity = _compiler(arch)
    parts = (source, repr(sorted(defines.items())), arch, identity)
    path = cache_dir() / f"{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:40]}.bin"
    known = _load(path)
    if known is None:
        known = compile_(source, defines, arch)
        _store(path, known)
    return known


def cache_dir() -> Path:
    """$HIPWRIGHT_OPS_CACHE, else a folder in the user's cache."""
    named = os.environ.get("HIPWRIGHT_OPS_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(named) if named else base / "hipwright-ops"


def _load(path: Path) -> bytes | None:
    """The cached code, or None if the file is missing or damaged: its first 32 bytes must be the digest of the rest."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    return data[32:] if data[:32] == hashlib.sha256(data[32:]).digest() else None


def _store(path: Path, code: bytes) -> None:
    """Writes the file atomically. Errors are ignored: without a cache each process builds again."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as stream:
            stream.write(hashlib.sha256(code).digest() + code)
        Path(temporary).replace(path)
    except OSError:
        return


def _compiler(arch: str) -> tuple[Any, str]:
    """(compile function, identity of the compiler for the cache key) for an architecture."""
    if arch.startswith("sm_"):
        library, include = nvrtc()
        return _by_nvrtc, f"{library} {library.stat().st_size} {include} {_headers_id()}"
    return _by_hip, _hip_identity()


# ---------------------------------------------------------------- a compiler as a library


class _Rtc:
    """NVRTC or hipRTC: the same functions under two prefixes."""

    def __init__(self, library: Path, prefix: str, code: str) -> None:
        self._library, self._prefix, self._code = ctypes.CDLL(str(library)), prefix, code
        handle = POINTER(c_void_p)
        types: dict[str, tuple[Any, ...]] = {
            "CreateProgram": (handle, c_char_p, c_char_p, c_int, POINTER(c_char_p), POINTER(c_char_p)),
            "CompileProgram": (c_void_p, c_int, POINTER(c_char_p)),
            "DestroyProgram": (handle,),
        }
        for what in ("ProgramLog", code):
            types |= {f"Get{what}Size": (c_void_p, POINTER(c_size_t)), f"Get{what}": (c_void_p, c_char_p)}
        for name, arguments in types.items():
            getattr(self._library, prefix + name).argtypes = arguments

    def compile(self, source: str, options: list[str], headers: tuple[str, ...] = ()) -> tuple[bool, str, bytes]:
        """(whether it compiled, log, code).

        headers: names that are built into the compiler, declared as empty files.
        """
        program = c_void_p()
        empty = (c_char_p * max(len(headers), 1))(*([b"#pragma once\n"] * len(headers)))
        names = (c_char_p * max(len(headers), 1))(*(name.encode() for name in headers))
        called = _SOURCE.encode()
        status = self._call("CreateProgram", byref(program), source.encode(), called, len(headers), empty, names)
        if status:
            raise BuildError(f"{self._prefix} cannot create a program (result {status})")
        try:
            args = (c_char_p * len(options))(*(option.encode() for option in options))
            status = self._call("CompileProgram", program, len(options), args)
            log = self._text(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            return status == 0, log, b"" if status else self._text(program, self._code)
        finally:
            self._call("DestroyProgram", byref(program))

    def _text(self, program: c_void_p, what: str) -> bytes:
        size = c_size_t()
        self._call(f"Get{what}Size", program, byref(size))
        data = ctypes.create_string_buffer(max(size.value, 1))
        self._call(f"Get{what}", program, data)
        return data.raw[: size.value]

    def _call(self, name: str, *arguments: Any) -> int:
        return int(getattr(self._library, self._prefix + name)(*arguments))


# ---------------------------------------------------------------- NVIDIA


@functools.cache
def nvrtc() -> tuple[Path, Path]:
    """(the NVRTC library, the folder with cuda_fp16.h): from torch or pip packages, else from a CUDA toolkit."""
    for library in _nvrtc_libraries():
        folders = [library.parent.parent / "include", *(f / "include" for f in _cuda_folders())]
        include = next((f for f in folders if (f / "cuda_fp16.h").is_file()), None)
        if include is not None:
            for builtins in sorted(library.parent.glob("libnvrtc-builtins.so*")):  # NVRTC loads it by its bare name
                ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
            return library, include
    raise BuildError("no NVRTC with its headers: pip install nvidia-cuda-nvrtc nvidia-cuda-runtime, or set CUDA_HOME")


def _cuda_folders() -> list[Path]:
    packages = [folder for place in sys.path for folder in sorted(Path(place or ".").glob("nvidia/cu*"), reverse=True)]
    named = [Path(os.environ[n]) for n in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(n)]
    return [*packages, *named, Path("/usr/local/cuda"), Path("/usr")]


def _nvrtc_libraries() -> Iterator[Path]:
    for folder in _cuda_folders():
        for name in ("lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"):
            found = [f for f in (folder / name).glob("libnvrtc.so*") if f.is_file()]
            yield from sorted(found, key=lambda f: [int(n) for n in re.findall(r"\d+", f.name)], reverse=True)


@functools.cache
def _headers_id() -> str:
    files = sorted(path for path in INCLUDE.rglob("*") if path.is_file())
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:16]


def _by_nvrtc(source: str, defines: Mapping[str, int], arch: str) -> bytes:
    library, include = nvrtc()
    compiler = _Rtc(library, "nvrtc", "CUBIN")
    options = [
        f"-arch={_SPECIFIC.get(arch, arch)}",
        "-std=c++17",
        "-default-device",
        "--device-int128",
        "-diag-suppress=69,177,550,1444",
        f"-I{INCLUDE}",
        f"-I{include}",
    ]
    head = "#include <hw/nvidia_base.h>\n" + "".join(f"#define {k} {int(v)}\n" for k, v in sorted(defines.items()))
    while True:
        ok, log, code = compiler.compile(f'{head}#line 1 "{_SOURCE}"\n{source}\n', options)
        clash = None if ok else _CLASH.search(log)
        renamed = _rename(source, clash[1]) if clash else source
        if ok or renamed == source:
            break
        source = renamed
    if not ok:
        raise BuildError(f"NVRTC refuses the source:\n{log[:4000]}")
    return code


def _rename(source: str, kernel: str) -> str:
    """The source with a kernel renamed to "hw_" + name, where CUDA has a C function of that name."""
    return re.sub(rf"(\b__global__\b[^;{{}}]*?)\b{kernel}(\s*\()", rf"\g<1>hw_{kernel}\2", source)


# ---------------------------------------------------------------- AMD


def _rocm_folders() -> list[Path]:
    named = [Path(os.environ[n]) for n in ("ROCM_PATH", "ROCM_HOME", "HIP_PATH") if os.environ.get(n)]
    return [*named, Path("/opt/rocm"), *sorted(Path("/opt").glob("rocm-*"), reverse=True)]


def _hiprtc() -> Path | None:
    """The hipRTC library: of torch's ROCm wheel, else of ROCm."""
    torch_lib = [Path(place or ".") / "torch" / "lib" for place in sys.path]
    folders = [*torch_lib, *(folder / "lib" for folder in _rocm_folders())]
    return next((f for folder in folders for f in sorted(folder.glob("libhiprtc.so*")) if f.is_file()), None)


def _hipcc() -> str | None:
    return shutil.which("hipcc") or next(
        (str(f / "bin" / "hipcc") for f in _rocm_folders() if (f / "bin" / "hipcc").is_file()), None
    )


def _hip_identity() -> str:
    tools = [path for path in (_hiprtc(), Path(_hipcc() or "")) if path and path.is_file()]
    return " ".join(f"{path.resolve()} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in tools)


def _by_hip(source: str, defines: Mapping[str, int], arch: str) -> bytes:
    """Compiles by hipRTC where it has the headers that the source includes, else by hipcc.

    hipRTC's headers are built in, and ROCm's folder would define the same names again: it is not passed.
    """
    library, driver = _hiprtc(), _hipcc()
    flags = [f"--offload-arch={arch}", "-O3", "-std=c++17", *(f"-D{k}={int(v)}" for k, v in sorted(defines.items()))]
    if library is not None and set(_INCLUDES.findall(source)) <= set(HIP_BUILT_IN):
        ok, log, code = _Rtc(library, "hiprtc", "Code").compile(source, flags, HIP_BUILT_IN)
        if ok:
            return code
        if driver is None:
            raise BuildError(f"hipRTC refuses the source:\n{log[:4000]}")
    if driver is None:
        raise BuildError("no HIP compiler: install ROCm's hipRTC or hipcc, or set ROCM_PATH")
    return _by_hipcc(driver, source, flags)


def _by_hipcc(driver: str, source: str, flags: list[str]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / _SOURCE, Path(folder) / "kernels.hsaco"
        path.write_text(source)
        args = [driver, "--genco", "--no-offload-compress", *flags, str(path), "-o", str(out)]
        done = subprocess.run(args, capture_output=True, text=True, check=False)
        if done.returncode or not out.is_file():
            raise BuildError(f"hipcc refuses the source:\n{done.stderr[:4000]}")
        return out.read_bytes()
