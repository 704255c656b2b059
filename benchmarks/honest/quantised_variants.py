"""Honest ways to quantise that the verifier refuses: other orders of summation and roundings of scales. Needs no GPU.

    python -m benchmarks quantised-variants [--only TEXT] [--seed N] [--json]

A pair is a task and a way (benchmarks/honest/quantised.py), judged on all cases of a full verification and on all input
families at the task's own shapes, by the verifier's own rule. The exit code is 1 where a way is refused.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict

from benchmarks.common import positive
from hipwright.errors import BadInput
from hipwright.sandbox import Zygote


def add_options(options: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    options.add_argument("--only", default="", metavar="TEXT", help="tasks whose name contains TEXT")
    options.add_argument("--seed", type=positive, default=1, help="of the inputs, 1 by default")
    options.add_argument("--json", action="store_true", help="one JSON object for each pair on stdout")


def run(options: argparse.Namespace) -> int:
    """0 where no way is refused, else 1."""
    from benchmarks.honest.judged import HonestPair, judge_ways
    from benchmarks.honest.quantised import task_text, variants

    chosen = [(body, ways) for body, ways in variants() if options.only in body.__name__]
    if not chosen:
        raise BadInput(f"no task's name contains {options.only!r}", hint="leave out --only to see the names")
    found: list[HonestPair] = []
    start = time.perf_counter()
    with Zygote(("torch", "hipwright.task.host.warm"), unsafe=False, name="task host") as zygote:
        for body, ways in chosen:
            runs = {", ".join(way): lambda model, x, way=way, body=body: body(way, x, model.weight) for way in ways}
            pairs = judge_ways(body.__name__, task_text(body), runs, options.seed, zygote)
            found += pairs
            bad = [pair for pair in pairs if pair.refused]
            worst = max(pair.worst for pair in pairs)
            if options.json:
                print("\n".join(json.dumps(asdict(pair)) for pair in pairs), flush=True)
                continue
            cases = f"{pairs[0].cases} cases each, largest error {worst:.2f} of its budget"
            print(f"{body.__name__}: {len(bad)} of {len(pairs)} ways refused, {cases}", flush=True)
            for pair in bad[:5]:
                print(f"  {pair.order}: {pair.refused[0][0]}: {pair.refused[0][2]}")
    refused = sum(bool(pair.refused) for pair in found)
    if not options.json:
        print(f"{refused} of {len(found)} honest variants refused; {time.perf_counter() - start:.0f} s")
    return 1 if refused else 0
