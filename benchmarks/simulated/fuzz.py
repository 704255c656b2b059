"""Generated kernels on a simulated AMD GPU and on the cpu target: equal bits. Needs no GPU.

    python -m benchmarks sim-fuzz [--count 1000] [--seed 0] [--graphs] [--target gfx942@sim] [--out DIR] [--json]

Kernels of 4 to 14 statements over integers of 8 to 64 bits, float32, float64 and halves: branches and loops that lanes
take each for themselves, arrays in private memory, LDS, atomics, votes and exchanges between lanes. Fifty at a time are
compiled for both targets from one source, without contraction, and run on the same inputs. All outputs must have the
same bits; every NaN counts as the same. DIR keeps a line for each batch and, for each kernel that ends otherwise, the
smallest one that was found to end so; the same command goes on where the last one stopped, up to the count. The exit
code is 1 where kernels differ by more than the signs of zeros, or are refused on one target alone.

--graphs: instead, the engine's programs of the graphs of benchmarks/fuzz, of each family in turn. Outputs that differ
by rounding (AMD's exponentials, contractions) are counted by themselves.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.common import positive
from benchmarks.simulated.kernel_judge import KernelJudge
from benchmarks.simulated.kernel_text import generated, source
from hipwright import config
from hipwright.api.files import prepare_folder
from hipwright.targets import TARGETS
from hipwright.toolchain.cache import BuildCache

BATCH = 50
BATCHES = 10
"""Batches of which the builds are kept together."""
FAMILY = 5
"""Graphs of a batch, at most."""
KNOWN = ("equal", "zero's sign", "rounds otherwise", "refused")
"""Statuses that are no fault. clang for AMD makes v_fma_mixlo_f16 with +0 of a product that is rounded to a half, and
v_min of `x < 0 ? x : 0`: both lose the sign of a zero, and the simulator does what the machine code says."""


def add_options(options: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    options.add_argument("--target", default="gfx942@sim", choices=[target.name for target in TARGETS.simulated])
    options.add_argument(
        "--count", type=positive, default=1000, help="kernels, in whole batches, earlier runs included"
    )
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--graphs", action="store_true", help="graphs of benchmarks/fuzz, as the engine writes them")
    options.add_argument("--out", type=Path, metavar="DIR", help="$HIPWRIGHT_HOME/sim-fuzz without it")
    options.add_argument("--json", action="store_true")


def run(options: argparse.Namespace) -> int:
    """Judges what the record lacks, prints a line for each kernel that is not equal, and the sums."""
    folder = options.out or config.home() / "sim-fuzz"
    prepare_folder(folder)
    record = folder / f"{options.target}-{options.seed}{'-graphs' * options.graphs}.jsonl"
    rows = [json.loads(line) for line in record.read_text().splitlines()] if record.is_file() else []
    done = {row["first"] for row in rows}
    step = FAMILY if options.graphs else BATCH
    left = [first for first in range(0, options.count, step) if first not in done]
    for start in range(0, len(left), BATCHES):
        with TemporaryDirectory() as builds:
            judge = KernelJudge(options.target, BuildCache(config.cache_dir()), BuildCache(Path(builds)))
            for first in left[start : start + BATCHES]:
                kept = {other["status"] for row in rows for other in row["others"]}
                batch = _graphs if options.graphs else _batch
                rows.append(batch(judge, options.seed, first, folder, kept))
                with record.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(rows[-1]) + "\n")
                for other in [] if options.json else rows[-1]["others"]:
                    print(f"{other['kernel']}: {other['status']}: {other['message'][:90]} {other['file']}", flush=True)
    return _report([row for row in rows if row["first"] < options.count], as_json=options.json)


def _batch(judge: KernelJudge, seed: int, first: int, folder: Path, kept: set[str]) -> dict[str, Any]:
    """The row of one batch. kept: statuses that have a kernel in the folder; of KNOWN ones it keeps no other."""
    started, others = time.monotonic(), []
    for verdict in judge.judged([generated(f"{seed}/{first + i}") for i in range(BATCH)]):
        if verdict.status == "equal":
            continue
        name = ""
        if verdict.status not in KNOWN or verdict.status not in kept:
            least = judge.shrunk(verdict)
            name = f"{judge.target}-{seed}-{verdict.kernel.name}.hip"
            launch = f"block {least.kernel.block}, grid {least.kernel.grid}"
            head = f"// {least.status}: {' '.join(least.message.split())}\n// {launch}\n"
            (folder / name).write_text(head + source([least.kernel]), encoding="utf-8")
        kept = kept | {verdict.status}
        seen = {"kernel": verdict.kernel.name, "status": verdict.status, "message": verdict.message, "file": name}
        others.append(seen)
    spent = round(time.monotonic() - started, 1)
    return {"first": first, "kernels": BATCH, "others": others, "seconds": spent}


def _graphs(judge: KernelJudge, seed: int, first: int, folder: Path, kept: set[str]) -> dict[str, Any]:
    """The row of a batch of graphs, of the family whose turn it is; a graph that ends otherwise is kept as it is."""
    from benchmarks.fuzz.families import FAMILIES
    from benchmarks.simulated.graph_judge import judged

    turn, family = divmod(first // FAMILY, len(FAMILIES))
    started, others, count = time.monotonic(), [], 0
    for verdict in judged(list(FAMILIES)[family], seed + turn, FAMILY, judge.target, judge.cache, judge.builds):
        count += 1
        if verdict.status == "equal":
            continue
        name = ""
        if verdict.status not in KNOWN:
            name = f"{judge.target}-{verdict.name}.py"
            (folder / name).write_text(f"# {verdict.status}: {verdict.message}\n{verdict.text}", encoding="utf-8")
        others.append({"kernel": verdict.name, "status": verdict.status, "message": verdict.message, "file": name})
    return {"first": first, "kernels": count, "others": others, "seconds": round(time.monotonic() - started, 1)}


def _report(rows: list[dict[str, Any]], *, as_json: bool) -> int:
    """Prints the sums; the exit code."""
    found = Counter(other["status"] for row in rows for other in row["others"])
    kernels, seconds = sum(row["kernels"] for row in rows), sum(row["seconds"] for row in rows)
    equal = kernels - sum(found.values())
    faults = sum(count for status, count in found.items() if status not in KNOWN)
    if as_json:
        print(json.dumps({"kernels": kernels, "equal": equal, "others": dict(found), "seconds": round(seconds)}))
    else:
        rest = ", ".join(f"{count} {status}" for status, count in found.most_common()) or "none ended otherwise"
        print(f"{equal} of {kernels} kernels with the cpu target's bits; {rest}; {seconds:.0f} s")
    return 1 if faults else 0
