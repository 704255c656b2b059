"""The benchmarks by name. A benchmark is a module with `add_options(parser)` and `run(options)`, which returns the
exit code; the first line of its docstring is its entry in the list."""

from __future__ import annotations

import argparse
import ast
import importlib
from pathlib import Path
from types import ModuleType

from hipwright.syntax import parse

COMMANDS = {
    "aa": "benchmarks.commands.aa",
    "archive-scale": "benchmarks.archive.scale",
    "build-time": "benchmarks.commands.build_time",
    "candidate-time": "benchmarks.commands.candidate_time",
    "compare": "benchmarks.commands.compare",
    "false-refusals": "benchmarks.commands.false_refusals",
    "fleet": "benchmarks.fleet.measure",
    "fleet-costs": "benchmarks.fleet.costs",
    "fleet-faults": "benchmarks.fleet.faults",
    "fuzz": "benchmarks.commands.fuzz",
    "gpus": "benchmarks.fleet.gpus",
    "header-sets": "benchmarks.commands.header_sets",
    "host-cost": "benchmarks.commands.host_cost",
    "judge-rate": "benchmarks.commands.judge_rate",
    "knobs": "benchmarks.commands.knobs",
    "landscape": "benchmarks.landscapes.command",
    "mix": "benchmarks.commands.mix",
    "planted-faults": "benchmarks.commands.planted_faults",
    "planted-hole": "benchmarks.commands.planted_hole",
    "policies": "benchmarks.landscapes.policies",
    "programs": "benchmarks.commands.programs",
    "quantised-variants": "benchmarks.honest.quantised_variants",
    "results": "benchmarks.commands.results",
    "ranks": "benchmarks.simulated.ranks",
    "score-rate": "benchmarks.commands.score_rate",
    "service-load": "benchmarks.fleet.service_load",
    "session": "benchmarks.commands.session",
    "side-by-side": "benchmarks.commands.side_by_side",
    "sim-compare": "benchmarks.simulated.compare",
    "sim-faults": "benchmarks.simulated.faults",
    "sim-fuzz": "benchmarks.simulated.fuzz",
    "sim-instructions": "benchmarks.simulated.instructions",
    "starts": "benchmarks.starts.compare",
    "stranger": "benchmarks.stranger.path",
    "suite": "benchmarks.commands.suite",
    "synth-coverage": "benchmarks.commands.synth_coverage",
}
ROOT = Path(__file__).parents[1]


def load(name: str) -> ModuleType:
    """The module of a benchmark."""
    return importlib.import_module(COMMANDS[name])


def summary(name: str) -> str:
    """The first line of a benchmark's docstring, read without importing the module: some import torch."""
    path = ROOT.joinpath(*COMMANDS[name].split(".")).with_suffix(".py")
    return (ast.get_docstring(parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]


def parser(name: str, description: str) -> argparse.ArgumentParser:
    """A parser without options. description: shown as it is written."""
    raw = argparse.RawTextHelpFormatter
    return argparse.ArgumentParser(prog=f"python -m benchmarks {name}", description=description, formatter_class=raw)
