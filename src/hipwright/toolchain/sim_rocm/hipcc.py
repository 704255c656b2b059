"""`hipcc` of the simulated ROCm: the clang of the ziglang wheel, and the simulated GPU's section in the code object.

The options are those that hipwright and its packages pass: --genco, --offload-arch, -D, -I, -idirafter, -include, -o,
one source; --version. Others are ignored, as are the optimization level and the language, which are fixed.
"""

from __future__ import annotations

import os
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


def _run(argv: Sequence[str], folder: Path) -> int:
    caches = dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), str(folder / "zig-cache"))
    return subprocess.run(argv, env={**os.environ, "HOME": str(folder), **caches}, check=False).returncode


def main(argv: Sequence[str]) -> int:
    """The command line; the exit status is clang's."""
    if "--version" in argv:
        print("HIP version: 6.0 (hipwright's simulated ROCm: no AMD compiler)")
        return 0
    source, out, architecture, options = None, Path("a.hsaco"), "", ["-include", "hip/hip_runtime.h"]
    if BUILT_IN not in argv:
        options = []
    words = iter(argv)
    for word in words:
        if word == "-o":
            out = Path(next(words, "a.hsaco"))
        elif word in _WITH_VALUE:
            options += [word, next(words, "")]
        elif word.startswith("--offload-arch="):
            architecture = word.partition("=")[2].partition(":")[0]
        elif word.startswith(("-D", "-I")):
            options.append(word)
        elif not word.startswith("-"):
            source = Path(word)
    if source is None or not architecture:
        print("hipcc: error: a source and --offload-arch are needed", file=sys.stderr)
        return 1
    try:
        return compile_(source, out, architecture, options)
    except ToolchainError as error:
        print(f"hipcc: error: {error.message}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
