"""The table of the simulator's instructions in docs/sim-instructions.md: which exist, which are tested. Needs no GPU.

    python -m benchmarks sim-instructions [--json]

Runs tests/sim, which notes what each snippet holds, and writes the page. An instruction is named as gfx9 has it;
toolchain/sim/forms.py maps the other architectures' names to it. "Tested" means: a snippet of tests/sim executes it and
its result is compared with what NumPy or Python computes by the ISA documents.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.common import ROOT
from hipwright import config
from hipwright.errors import HipwrightError

PAGE = ROOT / "docs/sim-instructions.md"
NOTED = "HIPWRIGHT_SIM_TESTED"
FAMILIES = {
    "scalar": ("s_",),
    "vector comparisons": ("v_cmp",),
    "vector float32": ("f32",),
    "vector float64": ("f64",),
    "vector 16 and 8 bits": ("f16", "16", "fp8", "bf8"),
    "vector integers, bits, lanes": ("v_",),
    "LDS and lanes": ("ds_",),
    "global, flat, scratch": ("load_", "store_", "atomic_"),
    "matrices": ("mfma", "wmma"),
}
HEAD = """# Instructions of the simulator

Written by `python -m benchmarks sim-instructions`, which runs `tests/sim`. Names are those of gfx9 without encoding;
`load_`, `store_` and `atomic_` stand for global, flat and scratch (`load_lds_` for global alone), `mfma` for all dense
shapes of float32, float16, bfloat16, float64, int8 and 8-bit floats, and gfx950's scaled ones of 8, 6 and 4 bits,
`wmma` for 16x16x16 with float32 or int32 sums. **Tested**: a snippet executes
it, and the result is compared with what NumPy or Python computes by the ISA documents. *Untested* ones are written from
the same documents and run where a program has them; any other instruction is refused by name
([sim-target.md](sim-target.md)).
"""


def add_options(options: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    options.add_argument("--json", action="store_true")


def supported() -> list[str]:
    """The instructions that the executor has, `unsupported` left out."""
    from hipwright.toolchain.cache import BuildCache
    from hipwright.toolchain.sim import runtime

    library = ctypes.CDLL(str(runtime.library(BuildCache(config.cache_dir()))))
    library.sim_handler.restype = ctypes.c_char_p
    names = {library.sim_handler(i).decode() for i in range(library.sim_handlers())}
    return sorted(names - {"unsupported"})


def tested() -> set[str]:
    """What the snippets of tests/sim hold. Raises HipwrightError where a test fails."""
    with TemporaryDirectory() as folder:
        note = Path(folder) / "names"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            str(ROOT / "tests/sim"),
            "--deselect",
            "tests/sim/test_table.py",
        ]
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, NOTED: str(note)}, capture_output=True, check=False)
        if done.returncode:
            raise HipwrightError(f"tests/sim fails: {done.stdout.decode()[-500:]}")
        return set(note.read_text(encoding="utf-8").split())


def family_of(name: str) -> str:
    """The first family whose mark a name has."""
    if name.startswith("v_") and not name.startswith("v_cmp"):
        marks = list(FAMILIES.items())[2:5]
        return next((family for family, ends in marks if name.endswith(ends)), "vector integers, bits, lanes")
    return next(family for family, marks in FAMILIES.items() if name.startswith(marks))


def page(names: list[str], known: set[str]) -> str:
    """The page's text."""
    lines = [HEAD, "| family | tested | untested |", "|---|---|---|"]
    for family in FAMILIES:
        ours = [name for name in names if family_of(name) == family]
        good, rest = [n for n in ours if n in known], [n for n in ours if n not in known]
        lines.append(f"| {family}: {len(good)} of {len(ours)} tested | {' '.join(good)} | {' '.join(rest)} |")
    return "\n".join(lines) + "\n"


def run(options: argparse.Namespace) -> int:
    """Writes the page and prints the sums."""
    names, known = supported(), tested()
    PAGE.write_text(page(names, known), encoding="utf-8")
    count = len(known & set(names))
    if options.json:
        print(json.dumps({"supported": len(names), "tested": count, "untested": sorted(set(names) - known)}))
    else:
        print(f"{count} of {len(names)} instructions are tested; written to {PAGE.relative_to(ROOT)}")
    return 0
