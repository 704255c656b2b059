"""Makes a folder laid out like /opt/rocm whose GPU is simulated: `ROCM_PATH` names it (docs/rocm-target.md).

python -m hipwright.toolchain.sim_rocm.folder FOLDER [ARCHITECTURE]
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from hipwright import config
from hipwright.errors import BadInput, HipwrightError
from hipwright.records import Build, content_key
from hipwright.sandbox import python_folders, python_paths
from hipwright.targets import OFFLINE, TARGETS, Architecture
from hipwright.toolchain import clang
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.sim import runtime

RUNTIME = Path(__file__).parents[1] / "sim_rocm_rt"
ARCHITECTURES = tuple(target.architecture.name for target in TARGETS.simulated)
DEFAULT = TARGETS.default_offline[0]
_HIPCC = """#!/bin/sh
HIPWRIGHT_SIMULATED_ROCM="${{0%/*}}/.." PYTHONPATH={path} exec {python} -S -B -m hipwright.toolchain.sim_rocm.hipcc "$@"
"""
_C = ("-x", "c", "-std=gnu11")


def make(folder: Path, architecture: str = DEFAULT, *, cache: BuildCache, unsafe: bool = False) -> Path:
    """Fill a folder with lib/libamdhip64.so, lib/libhiprtc.so and bin/hipcc for one simulated GPU; returns it.

    The libraries are built where the cache lacks them (about 20 s). Raises BadInput for an architecture that is not
    simulated, ToolchainError where they cannot be built.
    """
    if architecture not in ARCHITECTURES:
        raise BadInput(f"{architecture} is not simulated", hint=f"simulated: {', '.join(ARCHITECTURES)}")
    hip = _library("hip.cc", _defines(OFFLINE[architecture]), (), cache, unsafe)
    rtc = _library("hiprtc.c", (), _C, cache, unsafe)
    for name, data in (("libamdhip64.so", hip), ("libhiprtc.so", rtc)):
        path = folder / "lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    python = Path(sys.executable).resolve()
    hipcc = folder / "bin/hipcc"
    hipcc.parent.mkdir(exist_ok=True)
    paths = shlex.quote(":".join(map(str, python_paths())))
    hipcc.write_text(_HIPCC.format(path=paths, python=shlex.quote(str(python))))
    hipcc.chmod(0o755)
    reads = [str(path) for path in dict.fromkeys([*python_folders(), Path(clang.find().folder)])]
    (folder / config.SIMULATED_ROCM).write_text(json.dumps({"architecture": architecture, "reads": reads}) + "\n")
    return folder


def _defines(known: Architecture) -> tuple[str, ...]:
    """What the runtime's library says of its device."""
    figures = {"ELF_MACHINE": known.elf_machine, "UNITS": known.cus, "WAVE": known.wave}
    figures |= {"LDS_BYTES": known.lds_per_block, "MEMORY_BYTES": known.memory_bytes}
    features = ":sramecc+:xnack-" if known.mfma else ""
    texts = {"ARCHITECTURE": known.name, "FEATURES": features}
    return (
        *(f"-D{name}={value}" for name, value in figures.items()),
        *(f'-D{name}="{value}"' for name, value in texts.items()),
    )


def _library(name: str, defines: tuple[str, ...], language: tuple[str, ...], cache: BuildCache, unsafe: bool) -> bytes:
    """A shared library of RUNTIME's sources, from the cache where it was built before."""
    key = content_key("simulated ROCm", name, runtime.fingerprint(), clang.digest(RUNTIME), *defines, *language)
    if (known := cache.load(key)) and known.ok:
        try:
            return cache.get(known.blob)
        except KeyError:
            pass
    data = runtime.shared_library(RUNTIME / name, (*language, *defines), unsafe=unsafe)
    cache.store(key, Build(target=runtime.NAME, ok=True, blob=cache.put(data)))
    return data


def main(arguments: Sequence[str]) -> int:
    """Make the folder that the first argument names; prints how to use it."""
    try:
        if not 1 <= len(arguments) <= 2:
            raise BadInput(
                "a folder is needed", hint="python -m hipwright.toolchain.sim_rocm.folder FOLDER [ARCHITECTURE]"
            )
        folder = make(Path(arguments[0]).absolute(), *arguments[1:], cache=BuildCache(config.cache_dir()))
    except HipwrightError as error:
        print(f"error: {error.fault}: {error.message}\n{error.hint}".strip(), file=sys.stderr)
        return error.exit_code
    print(f"ROCM_PATH={folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
