"""Checks this machine: what works, what each target can prove here, and how to repair the rest."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from hipwright import config
from hipwright.events import doing
from hipwright.targets import CPU, ROCM, TARGETS, Target

if TYPE_CHECKING:
    from hipwright.toolchain.probe import ToolCheck

NEEDED = ("python", "torch", "clang", "sandbox", "archive", "cache", "disk", CPU.name)
"""The checks without which `optimize` cannot run. The others extend what can be proved."""
FREE_GIB = 1.0


def machine_checks() -> list[ToolCheck]:
    """Checks of everything that hipwright needs: Python, torch, the sandbox, folders, compilers, GPUs, profilers."""
    from hipwright.toolchain import probe

    return [*own_checks(), *probe.checks()]


def own_checks() -> list[ToolCheck]:
    """Checks of Python, torch, the sandbox, and the folders that hipwright writes to."""
    from hipwright.toolchain.probe import ToolCheck

    found = []
    for name, check in _CHECKS.items():
        doing(f"checking {name}")
        ok, detail, fix = check()
        found.append(ToolCheck(name=name, ok=ok, detail=detail, fix="" if ok else fix))
    return found


Found = tuple[bool, str, str]
"""Whether it works, a detail, and how to repair it."""


def _python() -> Found:
    version = ".".join(map(str, sys.version_info[:3]))
    return sys.version_info >= (3, 11), f"{version} ({sys.executable})", "install Python 3.11 or later"


def _torch() -> Found:
    """torch's version and build, read from its files, as importing it takes seconds."""
    fix = "pip install 'hipwright[cpu]', or the torch build for your GPU"
    spec = find_spec("torch")
    if spec is None or not spec.origin:
        return False, "not installed", fix
    version = metadata.version("torch")
    return True, f"{version}, {torch_build(Path(spec.origin).with_name('version.py'))}", fix


def torch_build(version_file: Path) -> str:
    """ "ROCm 6.4", "CUDA 12.8" or "CPU only", from torch/version.py."""
    text = version_file.read_text(errors="replace") if version_file.is_file() else ""
    for runtime in (target.gpu_runtime for target in TARGETS.gpus):
        if match := re.search(rf"^{runtime.torch_version}\b[^=]*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE):
            return f"{runtime.label} {match[1]}"
    return "CPU only"


def _sandbox() -> Found:
    from hipwright.sandbox import available, sandbox_hint

    works, detail = available()
    return works, f"bubblewrap works ({detail})" if works else detail, sandbox_hint()


def _writable(where: Callable[[], Path], variable: str) -> Callable[[], Found]:
    def check() -> Found:
        folder = where()
        parent = next(path for path in (folder, *folder.parents) if path.exists())
        try:
            with tempfile.TemporaryFile(dir=parent):
                return True, str(folder), ""
        except OSError as error:
            return False, f"{folder}: {error.strerror}", f"set ${variable} to a folder you can write"

    return check


def _archive() -> Found:
    """The archive: a folder that can be written, or a database that answers."""
    from hipwright.archive import Archive, NoArchive, shown
    from hipwright.errors import HipwrightError

    place = config.archive()
    if isinstance(place, Path):
        return _writable(config.home, "HIPWRIGHT_HOME")()
    try:
        with Archive(place, create=False) as archive:
            return True, shown(place) + (" (read-only)" if archive.read_only else ""), ""
    except NoArchive:
        return True, f"{shown(place)} answers; the first run makes the archive", ""
    except HipwrightError as error:
        return False, error.message, error.hint


def _disk() -> Found:
    folder = config.home()
    parent = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(parent).free / 2**30
    return free >= FREE_GIB, f"{free:.1f} GiB free", f"free some space: a run writes up to {FREE_GIB:.0f} GiB"


def _cpu() -> Found:
    """A trial kernel through the cpu target's compiler, audit and linker."""
    from hipwright.errors import HipwrightError, SandboxMissing
    from hipwright.sandbox import NEEDS_SANDBOX
    from hipwright.toolchain.cache import BuildCache
    from hipwright.toolchain.cpu import build as cpu
    from hipwright.toolchain.probe import TRIAL

    with tempfile.TemporaryDirectory(prefix="hipwright-doctor-") as folder:
        try:
            build = cpu.build(TRIAL, {}, cache=BuildCache(Path(folder)))
        except SandboxMissing:
            return False, NEEDS_SANDBOX, "see sandbox"
        except HipwrightError as error:
            return False, error.message, error.hint or "see clang and sandbox"
    first = next(iter(build.log.splitlines()), "no message")
    return (
        build.ok,
        "compiles; proves values, bounds and races by running here" if build.ok else first,
        "see clang and sandbox",
    )


def _gpus(target: Target) -> Found:
    from hipwright.device import topology

    found = topology.find(target.name)
    if not found:
        return False, f"no {target.maker} GPU here: no speed is measured on one", target.gpu_runtime.install
    named = {(gpu.name, gpu.architecture, gpu.memory_bytes >> 30) for gpu in found}
    models = ", ".join(f"{name} ({architecture}, {memory} GiB)" for name, architecture, memory in sorted(named))
    proves = "numerics, in software, no speed" if target is ROCM and config.simulated_rocm() else target.proves
    return True, f"{len(found)} found, {models}: --target {target.name} gives {proves}", ""


def _profiler() -> Found:
    """The profiler of this machine's GPUs."""
    from hipwright.device import topology
    from hipwright.errors import HipwrightError
    from hipwright.measure.profiling.vendors import find_tool

    kinds = sorted({gpu.kind for gpu in topology.find()})
    try:
        tools = [str(find_tool(kind)) for kind in kinds]
    except HipwrightError as error:
        return False, f"{error.message}: `hipwright profile` cannot count", error.hint
    return bool(tools), ", ".join(tools) or "no GPU here whose counters it could read", "none needed without a GPU"


_CHECKS: dict[str, Callable[[], Found]] = {
    "python": _python,
    "torch": _torch,
    "sandbox": _sandbox,
    "archive": _archive,
    "cache": _writable(config.cache_dir, "HIPWRIGHT_CACHE"),
    "disk": _disk,
    CPU.name: _cpu,
    **{f"{target.maker.lower()} gpu": partial(_gpus, target) for target in TARGETS.gpus},
    "profiler": _profiler,
}
