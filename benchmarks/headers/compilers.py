"""Ways to compile a source with a header set: like hipcc, like hipRTC, and by the release's own hipRTC library.

The first two use the clang of the ziglang wheel (LLVM 22) without optimisation: they tell whether the headers accept a
source. The third runs AMD's compiler of that release whole, which needs no GPU.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path

from benchmarks.headers.elf import built_in_header
from benchmarks.headers.sets import HeaderSet
from benchmarks.headers.sources import FILE, Source
from hipwright.errors import ToolchainError
from hipwright.targets import OFFLINE
from hipwright.toolchain import clang
from hipwright.toolchain.amd.rocm_source import stand_ins

MODES = ("hipcc", "hiprtc-like", "hiprtc")
WRAPPER = "__clang_hip_runtime_wrapper.h"
TIME_LIMIT_S = 300
_ERROR = re.compile(r"error: (.*)")
_COMMON = ("-x", "hip", "--cuda-device-only", "-nogpuinc", "-nogpulib", "-nostdinc", "-nostdinc++", "-std=c++17", "-O3")
_QUIET = ("-fuse-cuid=none", "-Wno-everything", "-fno-color-diagnostics")
# the compilers of these releases define the macro; LLVM 22 does not any more
_OLD_MACROS = ("-D__AMDGCN_WAVEFRONT_SIZE", "-D__AMDGCN_WAVEFRONT_SIZE__")
_RTC = ("-D__HIPCC_RTC__", "-D__HIP_PLATFORM_AMD__=1")
# the order of hipRTC's built-in header in the neighbouring releases; the macro leaves out what needs C's headers
_BUILT_IN = (
    "hip/hip_runtime.h",
    "hip/amd_detail/device_library_decls.h",
    "hip/amd_detail/amd_warp_functions.h",
    "hip/amd_detail/amd_device_functions.h",
    "hip/amd_detail/amd_hip_unsafe_atomics.h",
    "hip/amd_detail/amd_hip_atomic.h",
    "hip/hip_fp16.h",
)
_RUNTIME = "".join(f"#include <{name}>\n" for name in _BUILT_IN)


class Compiler(ABC):
    """One way to compile for one architecture. `errors` gives the messages of a source, none where it compiles."""

    mode = ""

    def __init__(self, header_set: HeaderSet, arch: str) -> None:
        """Raises ToolchainError where this way does not exist for the set or the architecture."""
        self.set, self.arch = header_set, arch

    @abstractmethod
    def errors(self, source: Source) -> list[str]:
        """The compiler's error messages."""

    @abstractmethod
    def close(self) -> None:
        """Ends what was started, and removes its files."""


class _Clang(Compiler):
    """The ziglang wheel's clang with the set's headers, which are parsed once."""

    def __init__(self, header_set: HeaderSet, arch: str) -> None:
        super().__init__(header_set, arch)
        self._folder = Path(tempfile.mkdtemp(prefix="header-set-"))
        self._program = clang.find().program
        self._flags = [*_COMMON, *_QUIET, f"--offload-arch={arch}"]
        self._flags += [f"{macro}={OFFLINE[arch].wave}" for macro in _OLD_MACROS]
        (self._folder / "first.h").write_text(self.first())
        emit = ["-fsyntax-only", "-Xclang", "-emit-pch", "-Xclang", "-o", "-Xclang", "first.pch", "first.h"]
        done = self._run([*self._flags, *self.first_flags(), *emit])
        if done.returncode:
            self.close()
            raise ToolchainError(f"{header_set.name}, {self.mode}: the headers fail by themselves: {done.stderr[:400]}")

    @abstractmethod
    def first(self) -> str:
        """The text that comes before every source."""

    @abstractmethod
    def first_flags(self) -> list[str]:
        """Arguments for that text: include folders, macros."""

    @abstractmethod
    def flags(self) -> list[str]:
        """Arguments for a source."""

    def errors(self, source: Source) -> list[str]:
        """The compiler's error messages."""
        (self._folder / FILE).write_text(source.text)
        pch = ["-Xclang", "-include-pch", "-Xclang", "first.pch"]
        code = ["-Xclang", "-disable-llvm-passes", "-emit-llvm", "-S", FILE, "-o", os.devnull]
        done = self._run([*self._flags, *self.flags(), *pch, *source.defines, *code])
        return _ERROR.findall(done.stderr) or ([done.stderr[:200] or "no message"] if done.returncode else [])

    def errors_by_line(self, source: Source) -> dict[int, str]:
        """The first message of each line of the source that has any; nothing is generated."""
        (self._folder / FILE).write_text(source.text)
        pch = ["-Xclang", "-include-pch", "-Xclang", "first.pch", "-ferror-limit=0", "-fsyntax-only"]
        done = self._run([*self._flags, *self.flags(), *pch, *source.defines, FILE])
        found = re.findall(rf"^{FILE}:(\d+):\d+: (?:fatal )?error: (.*)", done.stderr, re.MULTILINE)
        return {int(line): said for line, said in reversed(found)}

    def close(self) -> None:
        """Ends what was started."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, arguments: list[str]) -> subprocess.CompletedProcess[str]:
        command = [self._program, "clang", *arguments]
        env = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": "zig", "ZIG_LOCAL_CACHE_DIR": "zig"}
        return subprocess.run(
            command, cwd=self._folder, env=env, capture_output=True, text=True, check=False, timeout=TIME_LIMIT_S
        )


class Hipcc(_Clang):
    """As hipcc: clang's HIP wrapper first, the host's C++ library, the set's hip/ folder."""

    mode = "hipcc"

    def first(self) -> str:
        """The text that comes before every source."""
        return "#include <hip/hip_runtime.h>\n"

    def flags(self) -> list[str]:
        """Arguments for a source."""
        wrapper = self.set.wrapper
        folders = [wrapper / "cuda_wrappers", *_cxx_library(), wrapper, *_c_library(), self.set.include]
        return [part for folder in folders for part in ("-isystem", str(folder))]

    def first_flags(self) -> list[str]:
        """Arguments for the first text."""
        return [*self.flags(), "-include", WRAPPER]


class HiprtcLike(_Clang):
    """As hipRTC: its built-in header first, no other folder, hipwright's stand-ins for the headers by name."""

    mode = "hiprtc-like"

    def first(self) -> str:
        """The text that comes before every source."""
        return built_in_header(self.set.built_in) if self.set.built_in else _RUNTIME

    def flags(self) -> list[str]:
        """Arguments for a source."""
        folder = self._folder / "stand-ins"
        for name, text in stand_ins().items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return [*_RTC, "-I", str(folder)]

    def first_flags(self) -> list[str]:
        """Arguments for the first text."""
        if self.set.built_in:
            return [*_RTC]
        return [*_RTC, "-isystem", str(self.set.wrapper), "-isystem", str(self.set.include), "-include", WRAPPER]


class Hiprtc(Compiler):
    """The release's own hipRTC library."""

    mode = "hiprtc"

    def __init__(self, header_set: HeaderSet, arch: str) -> None:
        super().__init__(header_set, arch)
        if header_set.hiprtc is None:
            raise ToolchainError(f"{header_set.name} has no hipRTC library")
        self._process: subprocess.Popen[str] | None = None
        self.version = str(json.loads(self._started.stdout.readline() or "{}").get("version", ""))  # type: ignore[union-attr]
        if not self.version:
            self.close()
            raise ToolchainError(f"{header_set.name}: this Python does not run with the set's C library")
        if probe := self.errors(Source("", "probe", 'extern "C" __global__ void k(int* x) { *x = 1; }\n', ())):
            raise ToolchainError(f"{header_set.name}: hipRTC {self.version} does not know {arch}: {probe[0]}")

    @property
    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        return self._process

    @cached_property
    def _command(self) -> list[str]:
        folders = [self.set.libraries, Path(str(sysconfig.get_config_var("LIBDIR"))), *_system_libraries()]
        loader = self.set.folder / "usr/lib64/ld-linux-x86-64.so.2"
        loader = loader if loader.exists() else self.set.folder / "lib64/ld-linux-x86-64.so.2"
        library = [str(Path(__file__).with_name("hiprtc_process.py")), str(self.set.hiprtc)]
        path = ":".join([*map(str, folders[:1]), *map(str, self._more()), *map(str, folders[1:])])
        return [str(loader), "--library-path", path, str(Path(sys.executable).resolve()), *library]

    def _more(self) -> list[Path]:
        """Older releases of Debian keep the C library in /lib."""
        return [self.set.folder / "lib/x86_64-linux-gnu"]

    def errors(self, source: Source) -> list[str]:
        """The compiler's error messages."""
        options = [f"--offload-arch={self.arch}", "-O3", "-std=c++17", *source.defines]
        job = {"source": source.text, "options": options, "headers": stand_ins()}
        process = self._started
        assert process.stdin is not None and process.stdout is not None
        try:
            print(json.dumps(job), file=process.stdin, flush=True)
            answer = json.loads(process.stdout.readline())
        except (BrokenPipeError, json.JSONDecodeError):  # it crashed on this source
            self.close()
            return ["hipRTC ended its process"]
        return [] if answer["result"] == 0 else _ERROR.findall(answer["log"]) or [f"result {answer['result']}"]

    def close(self) -> None:
        """Ends what was started."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


COMPILERS: dict[str, type[Compiler]] = {kind.mode: kind for kind in (Hipcc, HiprtcLike, Hiprtc)}


def _cxx_library() -> list[Path]:
    """The newest libstdc++ headers here, as hipcc finds them. ToolchainError without any."""
    found = sorted(Path("/usr/include/c++").glob("[0-9]*"), key=lambda path: int(path.name.split(".")[0]))
    if not found:
        raise ToolchainError("hipcc's mode needs libstdc++'s headers", hint="scripts/system-deps.sh g++")
    return [found[-1], *Path("/usr/include").glob(f"*-linux-gnu/c++/{found[-1].name}")]


def _c_library() -> list[Path]:
    return [*Path("/usr/include").glob("*-linux-gnu"), Path("/usr/include")]


def _system_libraries() -> list[Path]:
    return [*Path("/usr/lib").glob("*-linux-gnu"), *Path("/lib").glob("*-linux-gnu")]
