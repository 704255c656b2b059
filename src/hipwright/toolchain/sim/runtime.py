"""Builds the executor of AMD machine code (`sim_rt/`) once for each version of its text, compiler and machine."""

from __future__ import annotations

import contextlib
import platform
from pathlib import Path

from hipwright.errors import ToolchainError
from hipwright.records import Build, content_key
from hipwright.sandbox import Limits, run_tool
from hipwright.toolchain import clang
from hipwright.toolchain.cache import BuildCache

RUNTIME = Path(__file__).parents[1] / "sim_rt"
"""The executor's text."""
_LIMITS = Limits(wall_s=600.0, cpu_s=240.0, memory_mb=4096)
_FLAGS = (
    *("-x", "c++", "-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti"),
    *("-fno-math-errno", "-ffp-contract=off", "-fno-strict-aliasing", "-fno-stack-protector", "-nostdinc"),
    *("-nostdinc++", "-fno-color-diagnostics", "-c"),
)
_LINK = ("-shared", "-z", "now", "-z", "noexecstack", "-z", "nostart-stop-gc", "--strip-debug")
_MACHINES = {"x86_64": ("x86", ("-march=x86-64-v3",)), "aarch64": ("aarch64", ())}
_SCRIPT = 'zig=$0; "$zig" clang "$@" -o sim.o && "$zig" ld.lld {} -o sim.so sim.o'
NAME = "simulator"
"""The target that the executor's own build is filed under."""


def library(cache: BuildCache, *, unsafe: bool = False) -> Path:
    """The executor's shared library. Raises ToolchainError where it cannot be built (about 15 s, once)."""
    key = content_key("simulator", fingerprint())
    if (known := cache.load(key)) and known.ok:
        with contextlib.suppress(KeyError):
            cache.get(known.blob)
            return cache.path(known.blob)
    data = shared_library(RUNTIME / "run.cc", unsafe=unsafe)
    blob = cache.put(data)
    cache.store(key, Build(target=NAME, ok=True, blob=blob))
    return cache.path(blob)


def fingerprint() -> str:
    """A key of all that determines the executor."""
    return content_key(platform.machine(), clang.find().id, clang.digest(RUNTIME), *_FLAGS, *_LINK, _SCRIPT)


def shared_library(source: Path, flags: tuple[str, ...] = (), *, unsafe: bool = False) -> bytes:
    """A shared library of one C++ source, or of another language that `flags` name. It may include the executor's text.

    Raises ToolchainError where it cannot be built.
    """
    machine = platform.machine()
    if machine not in _MACHINES or platform.system() != "Linux":
        raise ToolchainError(f"the simulator runs on x86-64 and aarch64 Linux, not on {platform.system()} {machine}")
    short, march = _MACHINES[machine]
    found = clang.find()
    headers = Path(found.folder) / "lib"
    libc = [f"{short}-linux-gnu", "generic-glibc", f"{short}-linux-any", "any-linux-any"]
    includes = [str(headers / "include"), *(str(headers / "libc/include" / name) for name in libc)]
    argv = ["-target", f"{machine}-linux-gnu", *march, *_FLAGS, *flags]
    argv += [word for path in includes for word in ("-isystem", path)]
    result = run_tool(
        ["/bin/sh", "-c", _SCRIPT.format(" ".join(_LINK)), found.program, *argv, str(source)],
        files={},
        outputs=["sim.so"],
        ro=[Path(found.folder), RUNTIME, source.parent],
        env={"ZIG_GLOBAL_CACHE_DIR": "zig-cache", "ZIG_LOCAL_CACHE_DIR": "zig-cache"},
        limits=_LIMITS,
        unsafe=unsafe,
    )
    if "sim.so" not in result.files:
        if result.timed_out:
            hint = "the machine is busy: run it again when less else runs"
            raise ToolchainError(f"building the simulator took more than {_LIMITS.wall_s:.0f} s", hint=hint)
        raise ToolchainError(f"the simulator does not compile: {result.stderr[-2000:]}", hint=clang.FIX)
    return result.files["sim.so"]
