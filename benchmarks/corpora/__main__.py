"""Judges tasks made of installed packages: torch's test databases, torchvision, timm, transformers, diffusers.

    python -m benchmarks.corpora NAME [--sample N] [--out DIR] [--real] [--target cpu] [--workers N] [--json]

Each task is written on the fly, captured, given the engine's first program, and verified. What is in --out is not
judged again. The exit code is 1 where a program failed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.common import positive
from benchmarks.corpora.corpus import Corpus, listed_tasks, require, sample_of, write_tasks
from benchmarks.corpora.judged import CorpusReport, judge
from hipwright import config
from hipwright.cli.display.bench import BenchProgress
from hipwright.errors import BadInput, HipwrightError
from hipwright.evaluation.figures import BASELINES

CORPORA = {
    "opinfo": ("benchmarks.corpora.opinfo", "Operators"),
    "modules": ("benchmarks.corpora.modules", "Modules"),
    "torchvision": ("benchmarks.corpora.torchvision_models", "TorchvisionModels"),
    "timm": ("benchmarks.corpora.timm_models", "TimmModels"),
    "transformers": ("benchmarks.corpora.transformers_models", "TransformersModels"),
    "networks": ("benchmarks.corpora.sampled_networks", "SampledNetworks"),
    "diffusers": ("benchmarks.corpora.diffusers_blocks", "DiffusersBlocks"),
    "kornia": ("benchmarks.corpora.kornia_functions", "KorniaFunctions"),
    "chains": ("benchmarks.corpora.generated.chains", "Chains"),
    "singles": ("benchmarks.corpora.generated.singles", "Singles"),
    "architectures": ("benchmarks.corpora.generated.architectures", "Architectures"),
    "research": ("benchmarks.corpora.research_models", "ResearchModels"),
}


def corpus(name: str) -> Corpus:
    """The corpus of a name; its module is imported now."""
    module, kind = CORPORA[name]
    made: Corpus = getattr(importlib.import_module(module), kind)()
    return made


def main(argv: list[str] | None = None) -> int:
    """Judges one corpus. Returns 0, 1 where a program failed, 2 for bad input, 130 where it was interrupted."""
    options = _parser().parse_args(argv)
    try:
        report = _judged(options)
    except HipwrightError as error:
        print(f"error: {error.message}" + (f" ({error.hint})" if error.hint else ""), file=sys.stderr)
        return error.exit_code
    if options.json:
        print(json.dumps(report.summary(), indent=2))
    else:
        _print(report)
    return 130 if report.interrupted else int(bool(report.of("failed")))


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m benchmarks.corpora", description=__doc__, formatter_class=raw)
    parser.add_argument("name", choices=sorted(CORPORA), help="the corpus")
    parser.add_argument("--sample", type=positive, metavar="N", help="a fixed sample of N tasks over all families")
    parser.add_argument("--only", metavar="TEXT", help="only tasks whose name contains TEXT")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: out/corpora/NAME")
    parser.add_argument("--real", action="store_true", help="at the sizes that users run, for a GPU")
    parser.add_argument("--target", action="append", metavar="T", help="default: cpu; may be repeated")
    parser.add_argument(
        "--baseline",
        action="append",
        choices=BASELINES[1:],
        metavar="B",
        help=f"what programs are timed against on a GPU beside eager: {', '.join(BASELINES[1:])}",
    )
    parser.add_argument("--workers", type=positive, metavar="N", help="tasks at a time")
    parser.add_argument("--processes", type=positive, metavar="N", help="that share them; default: one for two tasks")
    parser.add_argument("--seed", type=int, metavar="N", help="draws the inputs; default: a secret one, drawn now")
    parser.add_argument("--list", action="store_true", help="print the names of the tasks and judge none")
    parser.add_argument("--write", type=Path, metavar="DIR", help="write the task files and judge none")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    return parser


def _judged(options: argparse.Namespace) -> CorpusReport:
    source = corpus(options.name)
    versions = require(source.packages)
    print(f"{options.name}: {', '.join(f'{name} {version}' for name, version in versions.items())}", file=sys.stderr)
    found = listed_tasks(source, versions, options.real, config.cache_dir() / "corpora")
    tasks = [task for task in found if not options.only or options.only in task.name]
    tasks = sample_of(tasks, options.sample)
    if not tasks:
        raise BadInput(f"no task of {options.name} has {options.only!r} in its name", hint="--list names them all")
    print(f"{len(tasks)} tasks of {len({task.family for task in tasks})} families", file=sys.stderr)
    if options.write:
        write_tasks(tasks, options.write)
    if options.list:
        print("\n".join(task.name for task in tasks))
    if options.list or options.write:
        return CorpusReport(options.name, {}, tuple(tasks), versions, False)
    out = options.out or Path("out/corpora") / options.name
    targets = tuple(options.target or ("cpu",))
    baselines = (BASELINES[0], *dict.fromkeys(options.baseline or ()))
    how = {
        "targets": targets,
        "baselines": baselines,
        "workers": options.workers,
        "processes": options.processes,
        "seed": options.seed,
        "imported": source.imported,
    }
    return judge(options.name, tasks, versions, out, listener=BenchProgress(), **how)


def _print(report: CorpusReport) -> None:
    summary, console = report.summary(), Console()
    table = Table(
        title=f"{report.corpus}: {summary['judged']} of {summary['tasks']} tasks judged", title_justify="left"
    )
    table.add_column("")
    table.add_column("tasks", justify="right")
    for kind in ("verified", "given_up", "nothing_to_prove", "refused", "failed"):
        name = {"given_up": "  of these, kernels given up"}.get(kind, kind.replace("_", " "))
        table.add_row(name, str(summary[kind]))
    table.add_row(
        "families with own HIP", f"{summary['families_with_own_hip']} of {summary['families_verified']} verified"
    )
    if summary["median_coverage"] is not None:
        table.add_row("median coverage of the verified", f"{summary['median_coverage']:.2f}")
    for name, speed in summary["speedups"].items():
        told = f"{speed['geometric_mean']:.2f} ({speed['not_slower']} of {speed['timed']} not slower)"
        table.add_row(f"times {name}, geometric mean", told)
    table.add_row("seconds", f"{summary['seconds']} (median {summary['median_seconds']})")
    console.print(table)
    for reason, count in summary["reasons"].items():
        console.print(f"refused {count}: {reason}", markup=False, highlight=False)
    for name, message in {**summary["failures"], **summary["engine_faults"]}.items():
        console.print(f"{name}: {message}", markup=False, highlight=False)


if __name__ == "__main__":
    sys.exit(main())
