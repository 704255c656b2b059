"""The folder of `hipwright model --out`: model.json, model.html, and a folder for each region that was searched."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from hipwright.api.files import prepare_folder, write_files
from hipwright.api.plain import finite
from hipwright.api.whole.describe import gate_line, places, speed_line, times_line
from hipwright.api.whole.improve import ModelRequest
from hipwright.api.whole.outcome import ModelOutcome, RegionOutcome
from hipwright.api.whole.search import ran_on

FORMAT = 1
FILE = "model.json"


def write_outcome(outcome: ModelOutcome, request: ModelRequest, folder: Path) -> None:
    """Writes the files, each atomically. `take.load_parts` reads model.json and the programs."""
    from hipwright.report.models.page import render_model

    prepare_folder(folder)
    for one in outcome.regions:
        if one.result is not None:
            place = folder / one.folder
            prepare_folder(place)
            one.result.write(place)
            write_files(place, {"task.py": one.region.text})
    plain = {"format": FORMAT, "model": request.source.shown, "command": command(request), **outcome.to_dict()}
    plain["programs"] = [_program(one, request) for one in outcome.kept]
    page = render_model(
        {**finite(plain), "lines": _lines(outcome), "rows": [_row(outcome, x) for x in outcome.regions]}
    )
    write_files(folder, {FILE: json.dumps(finite(plain), indent=2) + "\n", "model.html": page})


def command(request: ModelRequest) -> str:
    """The command line that does it again."""
    words = ["hipwright", "model", request.source.shown]
    words += [word for name in request.targets for word in ("--target", name)]
    words += ["--budget", str(request.budget), "--regions", str(request.regions), "--seed", str(request.seed)]
    return shlex.join(words)


def _program(one: RegionOutcome, request: ModelRequest) -> dict[str, Any]:
    """What a kept program needs to be put into a model again."""
    assert one.result is not None
    return {
        "folder": one.folder,
        "paths": list(one.region.paths),
        "targets": ran_on(one.result),
        "searched": list(request.targets),
    }


def _lines(outcome: ModelOutcome) -> list[str]:
    return [line for line in (gate_line(outcome), speed_line(outcome), times_line(outcome)) if line]


def _row(outcome: ModelOutcome, one: RegionOutcome) -> dict[str, Any]:
    before, after = outcome.shares(one)
    result = one.result
    return {
        "place": places(one.region.paths),
        "kind": one.region.calls[0].kind,
        "calls": len(one.region.calls),
        "before": before,
        "after": after,
        "factor": one.factor,
        "basis": one.basis,
        "kept": one.kept,
        "why": one.why,
        "report": f"{one.folder}/report.html" if result is not None else "",
        "run": result.run if result is not None else "",
    }
