"""Faults planted in machine code: how many of them the verifier finds on a simulated target. Needs no GPU.

    python -m benchmarks sim-faults [--target gfx942@sim] [--each 2] [--only TASK] [--out DIR] [--json]

One instruction of clang's assembly for a task's first program is changed (a wait, a register, a constant, a lane
control, an offset, a branch, a barrier, ...), and the program is verified with that machine code. Only lines that run
count: first a trap is planted there. A fault that passes has "no effect" where every output of every case has the same
value as without it (a barrier that nothing needs), else it was "missed". DIR keeps a line for each fault, and the same
command goes on where the last one stopped. The exit code is 1 where fewer than 95 % of those with an effect were found.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, positive
from hipwright import config
from hipwright.api.files import prepare_folder
from hipwright.targets import TARGETS

TASKS = (
    "bias_gelu",
    "layernorm_residual",
    "causal_softmax",
    "batchnorm_train",
    "cumsum_gate",
    "mlp_gelu",
    "small_cnn",
    "sdpa_block",
    "bucket_codes",
    "topk_routing",
)
WANTED = 0.95


def add_options(options: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    options.add_argument("--target", default="gfx942@sim", choices=[target.name for target in TARGETS.simulated])
    options.add_argument("--each", type=positive, default=2, help="faults of each kind, a task")
    options.add_argument("--only", choices=TASKS, help="one task of examples/")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--out", type=Path, metavar="DIR", help="$HIPWRIGHT_HOME/sim-faults without it")
    options.add_argument("--json", action="store_true")


def run(options: argparse.Namespace) -> int:
    """Plants the faults, prints a line for each that was missed, and the sums by kind."""
    from benchmarks.simulated.plant import planted
    from hipwright.machine import machine

    folder = options.out or config.home() / "sim-faults"
    prepare_folder(folder)
    with machine((options.target,), unsafe=False) as made:
        for task in [options.only] if options.only else TASKS:
            record = folder / f"{options.target}-{options.each}-{options.seed}-{task}.jsonl"
            if record.is_file():
                continue
            rows = []
            for row in planted(made, ROOT / "examples" / f"{task}.py", options.target, options.each, options.seed):
                rows.append(asdict(row))
                if row.ending != "found" and not options.json:
                    print(f"{task}: {row.kind}, line {row.line}: {row.before} -> {row.after}: {row.ending}", flush=True)
            record.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    rows = [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]
    return _report(rows, as_json=options.json)


def _report(rows: list[dict[str, Any]], *, as_json: bool) -> int:
    """Prints the sums; the exit code."""
    ends = {
        end: Counter(row["kind"] for row in rows if row["ending"] == end) for end in ("found", "missed", "no effect")
    }
    found, missed, without = (sum(counts.values()) for counts in ends.values())
    share = found / max(found + missed, 1)
    if as_json:
        sums = {"planted": len(rows), "found": found, "missed": missed, "no_effect": without, "share": round(share, 4)}
        print(json.dumps({**sums, "rows": rows}))
    else:
        print(f"{'':24} found  missed  no effect")
        for kind in dict.fromkeys(row["kind"] for row in rows):
            print(f"{kind:24} {ends['found'][kind]:5}  {ends['missed'][kind]:6}  {ends['no effect'][kind]:9}")
        print(f"{found} of the {found + missed} planted faults with an effect found ({100 * share:.1f} %)")
    return 0 if share >= WANTED else 1
