"""`hipcc` of the simulated ROCm: the clang of the ziglang wheel, and the simulated GPU's section in the code object.

The options are those that hipwright and its packages pass: --genco, --offload-arch, -D, -I, -idirafter, -include, -o,
one source; --version. Others are ignored, as are the optimisation level and the language, which are fixed. Without
--genco a .cpp file is a program for the host: it is built by the system's C++ compiler, so it holds no kernels, and is
linked with the folder's library.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hipwright.errors import ToolchainError
from hipwright.toolchain import clang
from hipwright.toolchain.amd import offline
from hipwright.toolchain.sim_rocm import image

BUILT_IN = "--built-in-headers"
"""As hipRTC: the source need not include HIP's header."""
ROOT = "HIPWRIGHT_SIMULATED_ROCM"
"""The variable by which bin/hipcc tells its folder."""
_WITH_VALUE = ("-idirafter", "-include", "-I", "-D")
_SECTION = f'\n\t.section "{image.SECTION}","",@progbits\n\t.incbin "section"\n'


def compile_(source: Path, out: Path, architecture: str, options: Sequence[str]) -> int:
    """Compile a source to a code object that the simulated GPU runs; returns the exit status. Messages go to stderr."""
    zig = clang.find().program
    with tempfile.TemporaryDirectory(prefix="hipcc-") as name:
        folder = Path(name)
        front = [*offline.FLAGS, offline.code_object_format(), f"--offload-arch={architecture}", *options]
        target = ("-target", "amdgcn-amd-amdhsa", f"-mcpu={architecture}", "-c", "-x", "assembler")
        text, whole, made = folder / "kernel.s", folder / "whole.s", folder / "kernel.o"
        if status := _run([zig, "clang", *front, "-I", str(clang.INCLUDE), "-S", str(source), "-o", str(text)], folder):
            return status
        (folder / "section").write_bytes(image.section(text.read_text()))
        whole.write_text(text.read_text() + _SECTION)
        if status := _run([zig, "clang", *target, "-I", str(folder), str(whole), "-o", str(made)], folder):
            return status
        return _run([zig, "ld.lld", "-shared", "--no-undefined", str(made), "-o", str(out)], folder)


def build_program(source: Path, out: Path, options: Sequence[str]) -> int:
    """Build a program for the host that calls HIP's runtime; returns the exit status. Messages go to stderr."""
    compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if compiler is None:
        raise ToolchainError("a C++ compiler of the system is needed for programs on the host")
    library = Path(os.environ[ROOT]) / "lib"
    link = [f"-L{library}", f"-Wl,-rpath,{library.resolve()}", "-lamdhip64"]
    front = ["-std=c++17", "-O2", "-I", str(Path(__file__).parent / "include"), *options]
    return subprocess.run([compiler, *front, str(source), "-o", str(out), *link], check=False).returncode


def _run(argv: Sequence[str], folder: Path) -> int:
    caches = dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), str(folder / "zig-cache"))
    return subprocess.run(argv, env={**os.environ, "HOME": str(folder), **caches}, check=False).returncode


def main(argv: Sequence[str]) -> int:
    """The command line; the exit status is clang's."""
    if "--version" in argv:
        print("HIP version: 6.0 (hipwright's simulated ROCm: no AMD compiler)")
        return 0
    source, out, architecture, options = None, None, "", ["-include", "hip/hip_runtime.h"]
    if BUILT_IN not in argv:
        options = []
    words = iter(argv)
    for word in words:
        if word == "-o":
            out = Path(next(words, ""))
        elif word in _WITH_VALUE:
            options += [word, next(words, "")]
        elif word.startswith("--offload-arch="):
            architecture = word.partition("=")[2].partition(":")[0]
        elif word.startswith(("-D", "-I")):
            options.append(word)
        elif not word.startswith("-"):
            source = Path(word)
    host = source is not None and source.suffix == ".cpp" and "--genco" not in argv
    if source is None or not (architecture or host):
        print("hipcc: error: a source and --offload-arch are needed", file=sys.stderr)
        return 1
    try:
        if host:
            return build_program(source, out or Path("a.out"), options)
        return compile_(source, out or Path("a.hsaco"), architecture, options)
    except ToolchainError as error:
        print(f"hipcc: error: {error.message}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
