"""Generated graphs for every template: the engine's programs on the cpu target against torch. Needs no GPU.

    python -m benchmarks fuzz [--seconds 300] [--template FAMILY] [--seed N] [--out DIR] [--json]

Graphs of 1 to 8 operators over sizes around every border of vectors, waves and blocks, by Hypothesis: transposed,
sliced and expanded inputs, half types, several outputs, state, and draws of the engine's choices. Each program is
built with checks and compared with torch, also at other sizes that it admits; what differs is judged again by the
evaluation of `hipwright optimize`, shrunk, and written as a task file. DIR keeps the record and the files; the same
command goes on where the last one stopped. The exit code is 1 where a fault was found. Run by hand, `nice` and one
process: the checked builds of the engine's own programs run in this process, without a sandbox.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from benchmarks.common import positive
from benchmarks.fuzz.families import FAMILIES
from hipwright import config
from hipwright.api.files import prepare_folder


def add_options(options: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    options.add_argument("--seconds", type=positive, default=300, help="of time; a batch that is begun is finished")
    options.add_argument("--template", choices=sorted(FAMILIES), help="one family of templates")
    options.add_argument("--seed", type=int, default=0, help="of the first batch")
    options.add_argument("--out", type=Path, metavar="DIR", help="$HIPWRIGHT_HOME/fuzz without it")
    options.add_argument("--json", action="store_true")


def run(options: argparse.Namespace) -> int:
    """Runs a campaign and prints a line for each fault, and the sums of the record."""
    from benchmarks.fuzz.campaign import campaign, read_record

    logging.getLogger("torch").setLevel(logging.ERROR)  # torch.export warns of every size 1
    folder = options.out or config.home() / "fuzz"
    prepare_folder(folder)
    families = [options.template] if options.template else list(FAMILIES)
    found = []
    for batch in campaign(families, options.seconds, options.seed, folder):
        if batch.fault:
            found.append(asdict(batch))
        if not options.json:
            ending = f"{batch.fault}: {batch.message[:90]} ({batch.file})" if batch.fault else "fine"
            print(f"{batch.family:10} {batch.seed:4} {batch.graphs:3} graphs {batch.seconds:6} s  {ending}", flush=True)
    rows = read_record(folder)
    sums = {key: sum(row[key] for row in rows) for key in ("graphs", "shapes", "refused", "unconfirmed")}
    by_family = Counter({family: sum(r["graphs"] for r in rows if r["family"] == family) for family in FAMILIES})
    if options.json:
        print(json.dumps({**sums, "families": dict(by_family), "faults": found, "folder": str(folder)}))
    else:
        print(f"{sums['graphs']} graphs at {sums['shapes']} shapes in {folder}; {len(found)} faults in this campaign")
    return 1 if found else 0
