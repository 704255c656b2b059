"""Runs one stage of a recipe, in this process or in each of accelerate's (`python -m hipwright.train.work`).

A dry run uses the same code with a random two-layer model of the recipe's architecture for one update on the CPU, and
builds the real model on meta devices, sharded as the recipe launches it.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
import time
import warnings
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from hipwright.errors import BadInput, HipwrightError
from hipwright.train.stages.dry import dry_run_work
from hipwright.train.stages.imitation import run_sft
from hipwright.train.stages.preference import run_dpo
from hipwright.train.stages.reinforcement import run_rl
from hipwright.train.stages.stage_work import DONE, Say, StageWork

_RUN = {"sft": run_sft, "dpo": run_dpo, "rl": run_rl, "rft": run_rl}
EXTRA = "train"


def run_stage(work: StageWork, say: Say) -> dict[str, Any]:
    """Runs the stage; returns its figures for --json. Raises BadInput where a package of the trainers is too old, and
    BadInput and InfrastructureError as the trainers do."""
    begun = time.monotonic()
    with suppress(importlib.metadata.PackageNotFoundError):  # run from its source without being installed
        check_versions(importlib.metadata.requires("hipwright") or ())
    if work.dry:
        work = dry_run_work(work)
    with warnings.catch_warnings():
        # peft and TRL call transformers by names that it is about to drop
        warnings.filterwarnings("ignore", ".*will be removed in v6.*", FutureWarning)
        done = _RUN[work.stage](work, say)
    return {"stage": work.stage, **done, "seconds": round(time.monotonic() - begun, 1)}


def check_versions(requirements: Iterable[str]) -> None:
    """Raises BadInput for an installed distribution of another version than the extra `train` requires.

    requirements: as a distribution's metadata lists them (PEP 508). One that is missing is reported where it is used.
    """
    from packaging.requirements import Requirement  # a dependency of transformers

    for line in requirements:
        needed = Requirement(line)
        if (
            needed.marker is None
            or not needed.marker.evaluate({"extra": EXTRA})
            or needed.marker.evaluate({"extra": ""})
        ):
            continue
        with suppress(importlib.metadata.PackageNotFoundError):
            found = importlib.metadata.version(needed.name)
            if not needed.specifier.contains(found, prereleases=True):
                hint = f"pip install '{needed.name}{needed.specifier}'"
                raise BadInput(f"training needs {needed.name}{needed.specifier}; {found} is installed", hint=hint)


def main() -> int:
    """The main function of accelerate's processes: `python -m hipwright.train.work FOLDER/work.json`."""
    work = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=StageWork)
    first = os.environ.get("RANK", "0") == "0"

    def say(text: str) -> None:
        if first:
            print(text, file=sys.stderr, flush=True)

    try:
        done = run_stage(work, say)
    except HipwrightError as error:
        hint = f"\nhint: {error.hint}" if error.hint else ""
        print(f"error: {error.message}{hint}", file=sys.stderr, flush=True)
        return error.exit_code
    if first:
        (work.folder / DONE).write_bytes(msgspec.json.encode(done))
    return 0


if __name__ == "__main__":
    sys.exit(main())
