"""Whole models by `hipwright model`, end to end: against eager and torch.compile on a GPU.

    python -m benchmarks.corpora.whole [NAME...] [--small] [--target T]... [--budget N] [--regions K] [--out DIR]

Without names all models of `whole_models`. What happens is said on stderr, with seconds. A line a model; then the
geometric mean of the speedup over the better of eager and torch.compile, and the least of them, where they were
measured. A model that fails is a line with the reason; the exit code is 1 then. DIR holds a folder a model, and
whole.json with all figures; models in it are not run again.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

from benchmarks.corpora.whole_models import MODELS
from hipwright.api import targets
from hipwright.api.files import write_file
from hipwright.api.plain import finite
from hipwright.api.whole.describe import gate_line, times_line
from hipwright.api.whole.files import write_outcome
from hipwright.api.whole.improve import ModelRequest, improve_model
from hipwright.api.whole.source import model_source
from hipwright.cli.output import CommandOutput
from hipwright.cli.whole.progress import ModelProgress
from hipwright.errors import HipwrightError

MODULE = "benchmarks.corpora.whole_models"


def main(argv: list[str] | None = None) -> int:
    """Runs the models. Returns 0, 1 where one fails, 2 for bad input."""
    options = _parser().parse_args(argv)
    unknown = sorted(set(options.names) - set(MODELS))
    if unknown:
        print(f"error: no model {unknown[0]!r} (known: {', '.join(MODELS)})", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    rows = {}
    for name in options.names or MODELS:
        rows[name] = _row(name, options)
        print(f"{name:15} {_line(rows[name])}", flush=True)
        write_file(options.out / "whole.json", json.dumps(finite(rows), indent=1) + "\n")
    print(summary(rows))
    return int(any("error" in row for row in rows.values()))


def _row(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The figures of one model, from its folder where they are there already."""
    folder = options.out / name
    if (known := folder / "model.json").is_file():
        found: dict[str, Any] = json.loads(known.read_text(encoding="utf-8"))
        return found
    request = ModelRequest(
        source=model_source(f"{MODULE}:{'small_' if options.small else ''}{name}"),
        targets=targets.choose(options.target),
        budget=options.budget,
        regions=options.regions,
    )
    try:
        outcome = improve_model(request, listener=ModelProgress(CommandOutput()))
    except HipwrightError as error:
        return {"error": error.message}
    write_outcome(outcome, request, folder)
    return {**outcome.to_dict(), "lines": [gate_line(outcome), times_line(outcome)]}


def better(row: dict[str, Any]) -> float | None:
    """The speedup over the better of eager and torch.compile: 1 where nothing is replaced; None without a GPU."""
    if row.get("measured"):
        found: dict[str, float] = row["measured"]["speedup"]
        return min(found[name] for name in ("eager", "compile") if name in found)
    return 1.0 if row.get("times") == "device" else None


def _line(row: dict[str, Any]) -> str:
    if "error" in row:
        return f"failed: {row['error']}"
    speedup, replaced = better(row), sum(region["replaced"] for region in row["regions"])
    shown = f"{speedup:.2f}x of the better" if speedup is not None else "no speed was measured"
    error = f", error {row['gate']['error']:.2g}" if replaced else ""
    spent = sum(row.get("seconds", {}).values())
    return f"{row['status']}: {replaced} of {len(row['regions'])} regions, {shown}{error}, {spent:.0f} s"


def summary(rows: dict[str, dict[str, Any]]) -> str:
    """The geometric mean and the least speedup."""
    found = [speedup for row in rows.values() if (speedup := better(row)) is not None]
    if not found:
        return "no speed was measured: no GPU was used"
    mean = math.exp(sum(map(math.log, found)) / len(found))
    said = "the better of eager and torch.compile (geometric mean)"
    return f"{len(found)} models: {mean:.3f}x {said}, least {min(found):.3f}x"


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.corpora.whole", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    made.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODELS)}")
    made.add_argument("--small", action="store_true", help="small models of the same kinds")
    made.add_argument("--target", action="append", help="as in hipwright model")
    made.add_argument("--budget", type=int, default=40, help="evaluations for a model")
    made.add_argument("--regions", type=int, default=4, help="regions of a model")
    made.add_argument("--out", type=Path, default=Path("whole"), help="the folder")
    return made


if __name__ == "__main__":
    sys.exit(main())
