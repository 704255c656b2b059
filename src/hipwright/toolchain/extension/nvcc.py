"""Builds native extensions into a shared library with sandboxed compilers: nvcc for device sources, else g++.

`build` compiles the two translation units concurrently and links them. The caller chooses the headers (`Headers`): the
lean ones, or torch's own.
"""

from __future__ import annotations

import functools
import re
import shutil
import sysconfig
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hipwright.errors import ToolchainError
from hipwright.records import Build, content_key
from hipwright.sandbox import Limits, run_tool
from hipwright.targets import CPU, CUDA
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.extension import torchlite

_LOG = 6000  # characters
_LIMITS = Limits(wall_s=300.0, cpu_s=600.0, memory_mb=8192)
_PLACES = ("/usr/local/cuda/bin/nvcc", "/opt/cuda/bin/nvcc")
LIBRARY = "extension.so"


@dataclass(frozen=True)
class Headers:
    """The headers and libraries that the units are built with. visible: folders that the sandbox shows."""

    name: str
    include: tuple[Path, ...] = ()
    defines: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    visible: tuple[Path, ...] = ()
    optimise: str = "-O2"


def find_nvcc() -> Path | None:
    """The path of nvcc, None without one."""
    found = shutil.which("nvcc") or next((p for p in _PLACES if Path(p).is_file()), None)
    return _unwrapped(Path(found)) if found else None


@functools.cache
def _unwrapped(path: Path) -> Path:
    """The nvcc behind a link or a one-line shell wrapper: the sandbox shows only its toolkit's folder."""
    path = path.resolve()
    head = path.read_bytes()[:512]
    match = re.search(rb"exec\s+\"?(/[^\s\"]+/nvcc)", head) if head.startswith(b"#!") else None
    return Path(match[1].decode()).resolve() if match else path


def lean_headers() -> Headers:
    """hipwright's headers, without any of torch."""
    return Headers("lean", include=(torchlite.INCLUDE,), visible=(torchlite.INCLUDE,), optimise="-O1")


def torch_headers(root: Path, name: str, *, abi: int = 1) -> Headers:
    """torch's own headers and libraries. root: the folder of the torch package; name: of the Python module."""
    api = root / "include" / "torch" / "csrc" / "api" / "include"
    python = Path(sysconfig.get_paths()["include"])
    defines = (f"-DTORCH_EXTENSION_NAME={name}", "-DTORCH_API_INCLUDE_EXTENSION_H", f"-D_GLIBCXX_USE_CXX11_ABI={abi}")
    libraries = [
        lib
        for lib in ("c10", "torch_cpu", "torch", "torch_python", "c10_cuda", "torch_cuda")
        if (root / "lib" / f"lib{lib}.so").is_file()
    ]
    link = (f"-L{root / 'lib'}", *(f"-l{lib}" for lib in libraries))
    # last, so that only its hip/ is used, which NVIDIA's compiler does not have
    include = (root / "include", api, python, torchlite.INCLUDE)
    return Headers("real", include, defines, link, (root, python, torchlite.INCLUDE))


def build(
    units: Mapping[str, str],
    headers: Headers,
    *,
    arch: str = "",
    cflags: Sequence[str] = (),
    cuda_cflags: Sequence[str] = (),
    ldflags: Sequence[str] = (),
    cache: BuildCache,
    unsafe: bool = False,
) -> Build:
    """Compile and link; the blob is a shared library. Sources that do not compile return Build(ok=False) with the log.

    arch: "sm_90" style, for a unit cuda.cu. Raises ToolchainError without a compiler, SandboxMissing.
    """
    nvcc = find_nvcc() if torchlite.DEVICE in units else None
    if torchlite.DEVICE in units and nvcc is None:
        raise ToolchainError(
            "nvcc is not installed, so CUDA sources cannot be built here",
            hint="install the CUDA toolkit, or convert the candidate to a program",
        )
    if shutil.which("g++") is None:
        raise ToolchainError("g++ is not installed, so C++ sources cannot be built here", hint="apt-get install g++")
    key = content_key(
        "extension",
        headers.name,
        str(headers),
        arch,
        *units.values(),
        *cflags,
        "\0",
        *cuda_cflags,
        "\0",
        *ldflags,
        _stamp(headers),
    )
    if known := cache.load(key):
        return known
    started = time.perf_counter()
    made = _Job(units, headers, nvcc, arch, tuple(cflags), tuple(cuda_cflags), tuple(ldflags), unsafe).run(cache)
    made = msgspec.structs.replace(made, seconds=time.perf_counter() - started)
    cache.store(key, made)
    return made


@functools.cache
def _stamp(headers: Headers) -> str:
    """A key of the lean headers' content; "" for torch's, which their folder names."""
    if headers.name != "lean":
        return ""
    return content_key("torchlite", *(p.read_bytes() for p in sorted(torchlite.INCLUDE.rglob("*")) if p.is_file()))


@dataclass(frozen=True)
class _Job:
    units: Mapping[str, str]
    headers: Headers
    nvcc: Path | None
    arch: str
    cflags: tuple[str, ...]
    cuda_cflags: tuple[str, ...]
    ldflags: tuple[str, ...]
    unsafe: bool

    def run(self, cache: BuildCache) -> Build:
        """Compile both units concurrently, then link."""
        target = CUDA.name if self.nvcc else CPU.name
        with ThreadPoolExecutor(2) as pool:
            results = list(pool.map(self.compile, self.units))
        log = "\n".join(text for _, text in results if text)
        if any(data is None for data, _ in results):
            return Build(target=target, ok=False, log=log)
        objects = {f"{name}.o": data for name, (data, _) in zip(self.units, results, strict=True) if data is not None}
        library, link_log = self.link(objects)
        if library is None:
            return Build(target=target, ok=False, log=link_log)
        return Build(target=target, ok=True, blob=cache.put(library), device_math="host", log=log)

    def compile(self, name: str) -> tuple[bytes | None, str]:
        """(object, log) of one unit."""
        output = f"{name}.o"
        shared = [f"-I{path}" for path in self.headers.include] + list(self.headers.defines)
        own = ["-fvisibility=hidden", "-fno-gnu-unique"]  # so that two extensions in one process share no variables
        if name == torchlite.DEVICE:
            assert self.nvcc is not None
            # host code at -O1, as it only launches; device code at ptxas' default, -O3
            level = "-O1" if self.headers.name == "lean" else "-O2"
            command = [
                str(self.nvcc),
                "-std=c++17",
                "-Xcompiler",
                ",".join(["-fPIC", level, *own]),
                "-w",
                f"-arch={self.arch or 'native'}",
                "--expt-relaxed-constexpr",
                "--expt-extended-lambda",
                *shared,
                *self.cuda_cflags,
            ]
        else:
            command = [
                "g++",
                "-std=c++17",
                "-fPIC",
                *own,
                "-w",
                self.headers.optimise,
                *shared,
                *self.cuda_include(),
                *self.cflags,
            ]
        return self.tool([*command, "-c", name, "-o", output], {name: self.units[name].encode()}, output)

    def cuda_include(self) -> list[str]:
        """The option for the toolkit's headers, for host code that uses streams."""
        return [f"-I{self.nvcc.parents[1] / 'include'}"] if self.nvcc else []

    def link(self, objects: Mapping[str, bytes]) -> tuple[bytes | None, str]:
        """(library, log)."""
        command = ["g++", "-shared", "-Wl,-z,now,-z,relro,-z,noexecstack", *objects, *self.headers.link, *self.ldflags]
        if self.nvcc:
            lib = self.nvcc.parents[1] / "lib64"
            static = self.headers.name == "lean"
            command += [f"-L{lib}", "-lcudart_static" if static else "-lcudart", "-ldl", "-lrt", "-lpthread"]
        return self.tool([*command, "-o", LIBRARY], objects, LIBRARY)

    def tool(self, command: Sequence[str], files: Mapping[str, bytes], output: str) -> tuple[bytes | None, str]:
        """Run one compiler in the sandbox; (its output, its log)."""
        visible = [*self.headers.visible, *([self.nvcc.parents[1]] if self.nvcc else [])]
        done = run_tool(command, files=files, outputs=[output], ro=visible, limits=_LIMITS, unsafe=self.unsafe)
        log = (done.stderr + done.stdout).strip()[:_LOG]
        if done.timed_out:
            log = f"the compiler took more than {_LIMITS.wall_s:.0f} s\n{log}"
        data = done.files.get(output)
        return (data if done.returncode == 0 else None), log or ("" if data else "the compiler gave no output")
