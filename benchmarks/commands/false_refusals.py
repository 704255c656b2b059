"""Honest programs that the verifier refuses: library operators alone, sums in other orders. Needs no GPU.

    python -m benchmarks false-refusals [--corpus NAME] [--only TEXT] [--seeds N] [--first SEED] [--json]
    python -m benchmarks false-refusals --at-size DIR [--device cuda:0] [--most-mib N] ...

A pair is a task and an order of summation (benchmarks/honest/): products, convolutions, norms, softmax and losses add
their terms in parts, reversed, permuted or in lanes. Every pair is judged on all cases of a full verification, and at
the task's own shapes on all input families. With --at-size the tasks are files of a folder (benchmarks/real), each
judged at its own size on a device, by the device host's rule; a pair whose result has the library's bits is no pair.
The exit code is 1 where a pair is refused.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.common import positive
from benchmarks.corpora.__main__ import CORPORA, corpus
from benchmarks.corpora.corpus import require
from benchmarks.honest.judged import HonestPair, judge
from benchmarks.honest.orders import ORDERS
from benchmarks.honest.tasks import TASKS
from hipwright.errors import BadInput
from hipwright.sandbox import Zygote


def add_options(options: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    options.add_argument("--corpus", choices=sorted(CORPORA), help="tasks of a corpus (docs/corpora.md) instead")
    options.add_argument("--only", default="", metavar="TEXT", help="tasks whose name contains TEXT")
    options.add_argument("--order", action="append", choices=ORDERS, help="default: all; may be repeated")
    options.add_argument("--seeds", type=positive, default=1, metavar="N", help="draws of the inputs, 1 by default")
    options.add_argument("--first", type=positive, default=1, metavar="SEED")
    options.add_argument("--at-size", type=Path, metavar="DIR", help="tasks of a folder, at their own size")
    options.add_argument("--device", default="cpu", help="where they are judged: cpu or cuda:0")
    options.add_argument("--most-mib", type=positive, default=512, help="inputs and parameters of one; 512 by default")
    options.add_argument("--json", action="store_true", help="one JSON object for each pair on stdout")


def run(options: argparse.Namespace) -> int:
    """0 where no pair is refused, else 1."""
    tasks = [(name, text) for name, text in _texts(options) if options.only in name]
    if not tasks:
        raise BadInput(f"no task's name contains {options.only!r}", hint="leave out --only to see the names")
    pairs: list[HonestPair] = []
    start = time.perf_counter()
    for found in _at_size(options, tasks) if options.at_size else _on_all_cases(options, tasks):
        pairs += found
        for pair in found if options.json else ():
            print(json.dumps(asdict(pair)), flush=True)
    if not options.json:
        _print(pairs, time.perf_counter() - start)
    return 1 if any(pair.refused for pair in pairs) else 0


def _on_all_cases(options: argparse.Namespace, tasks: list[tuple[str, str]]) -> Iterator[list[HonestPair]]:
    with Zygote(("torch", "hipwright.task.host.warm"), unsafe=False, name="task host") as zygote:
        for name, text in tasks:
            for seed in range(options.first, options.first + options.seeds):
                yield judge(name, text, tuple(options.order or ORDERS), seed, zygote)


def _at_size(options: argparse.Namespace, tasks: list[tuple[str, str]]) -> Iterator[list[HonestPair]]:
    import torch

    from benchmarks.honest.at_size import timed

    if options.device != "cpu" and not torch.cuda.is_available():
        raise BadInput(f"no {options.device} here", hint="--device cpu, with few and small tasks")
    orders, device = tuple(options.order or ORDERS), torch.device(options.device)
    for name, text in tasks:
        for seed in range(options.first, options.first + options.seeds):
            found, why, seconds = timed(name, text, orders, seed, device, options.most_mib << 20)
            if not options.json:
                print(f"{name}: {why or f'{len(found)} pairs'} ({seconds:.1f} s)", flush=True)
            yield found


def _texts(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """(name, text) of every task file."""
    corpus_name: str | None = options.corpus
    if options.at_size is not None:
        files = sorted(options.at_size.rglob("*.py"))
        if not files:
            raise BadInput(f"no task files in {options.at_size}", hint="such as benchmarks/real")
        yield from ((file.stem, file.read_text()) for file in files if not file.name.startswith("_"))
        return
    if corpus_name is None:
        yield from ((task.name, task.source) for task in TASKS)
        return
    source = corpus(corpus_name)
    require(source.packages)
    yield from ((task.name, task.text) for task in source.tasks(False))


def _print(pairs: list[HonestPair], seconds: float) -> None:
    table = Table("task", "pairs", "cases", "refused pairs", "refused cases", "largest error / budget", "of a family")
    for name in dict.fromkeys(pair.task for pair in pairs):
        mine = [pair for pair in pairs if pair.task == name]
        refused = [one for pair in mine for one in pair.refused]
        families = sorted({case.partition("/")[2] for case, _, _ in refused})
        worst = max(pair.worst for pair in mine)
        counts = [len(mine), sum(pair.cases for pair in mine), sum(bool(pair.refused) for pair in mine), len(refused)]
        table.add_row(name, *map(str, counts), f"{worst:.2f}", ", ".join(families))
    if pairs:
        Console().print(table)
    bad = [pair for pair in pairs if pair.refused]
    cases = sum(pair.cases for pair in pairs)
    cases_refused = sum(len(pair.refused) for pair in bad)
    print(f"{len(bad)} of {len(pairs)} pairs refused, {cases_refused} of {cases} cases; {seconds:.0f} s")
    for pair in bad[:20]:
        print(f"  {pair.task}, {pair.order}, seed {pair.seed}: {pair.refused[0][0]}: {pair.refused[0][2]}")
