"""The page of one program: sources, fused operators, difference, resources, roofline, evidence of its verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hipwright import __version__
from hipwright.archive import TrialDetail
from hipwright.records import Evaluation, KernelResources, Program, Run, Task, Verdict
from hipwright.report import ReportData, run_views, split
from hipwright.report.formatting import number
from hipwright.targets import TARGETS
from hipwright.view.plots.roofline import roofline
from hipwright.view.reader import ArchiveReader
from hipwright.view.sources import difference, fused_kernels

MOST_CHARACTERS = 200_000
"""A longer program is shown as plain text, in one piece: parsing and highlighting take seconds."""


@dataclass(frozen=True)
class Resources:
    """What one kernel uses on one architecture; waves: the most that a SIMD can hold, 0 where it is not known."""

    kernel: KernelResources
    target: str
    product: str
    waves: int


def program_page(reader: ArchiveReader, run: Run, proposal: int) -> dict[str, Any]:
    """What the page of a proposal shows."""
    trial, found = reader.trial(run, proposal)
    evaluation = found.evaluation if found else None
    program = reader.program(trial.program)
    task = reader.task(run.task) or Task(name=run.task, source="", workloads=())
    parent = parent_of(reader, run, trial)
    hip, plan = split(program.text) if program and len(program.text) <= MOST_CHARACTERS else ("", "")
    return {
        "run": run,
        "task": task,
        "trial": trial,
        "evaluation": evaluation,
        "cached": found.cached if found else False,
        "program": program,
        "hip": hip,
        "plan": plan,
        "kernels": fused_kernels(program.text) if program else [],
        "parent": parent,
        "difference": difference(reader.program(parent.program), program) if parent else None,
        "roofline": roofline(evaluation) if evaluation else None,
        **evaluation_views(task, evaluation, program, trial),
    }


def evaluation_views(
    task: Task, evaluation: Evaluation | None, program: Program | None, trial: TrialDetail
) -> dict[str, Any]:
    """The words and tables of an evaluation, as the report of a run has them."""
    note = trial.message or f"This proposal is {trial.status}."
    data = ReportData(task=task, command="", version=__version__, evaluation=evaluation, program=program, note=note)
    return {
        "headline": run_views.headline(data),
        "tiles": run_views.tiles(data),
        "targets": run_views.resources(evaluation),
        "resources": resources(evaluation),
        "verification": run_views.verification(evaluation),
        "element": element(run_views.verdict_of(evaluation)),
    }


def parent_of(reader: ArchiveReader, run: Run, trial: TrialDetail) -> TrialDetail | None:
    """The first proposal of the run with the program that the trial was made from; None for a program from scratch."""
    if not trial.parents:
        return None
    return next((t for t in reader.kept(run).trials if t.program == trial.parents[0] and t.number < trial.number), None)


def resources(evaluation: Evaluation | None) -> list[Resources]:
    """Kernel by kernel, and each by architecture."""
    found = []
    for result in run_views.in_order(evaluation):
        architecture = TARGETS.architecture(result.target)
        if result.build is not None and not TARGETS.is_host(result.target):
            product, waves = (architecture.product, architecture.max_waves_per_simd) if architecture else ("", 0)
            found += [Resources(kernel, result.target, product, waves) for kernel in result.build.kernels]
    order = {name: place for place, name in enumerate(dict.fromkeys(one.kernel.name for one in found))}
    return sorted(found, key=lambda one: order[one.kernel.name])


def element(verdict: Verdict | None) -> dict[str, str] | None:
    """The first wrong element of a refusal in words; None where the evidence names none."""
    evidence = verdict.evidence if verdict is not None and not verdict.passed else {}
    if not isinstance(evidence.get("index"), list) or "got" not in evidence:
        return None
    place = ", ".join(map(str, evidence["index"]))
    found = {
        "element": f"{evidence.get('output', 'output')}[{place}]",
        "expected": _figure(evidence.get("expected")),
        "got": _figure(evidence["got"]),
        "tolerance": _figure(evidence.get("tolerance")),
    }
    return {**{name: text for name, text in found.items() if text != "None"}, **_whole(evidence)}


def _whole(evidence: Mapping[str, Any]) -> dict[str, str]:
    """How many elements are wrong, and on which inputs."""
    found = {}
    wrong, of = evidence.get("wrong_elements"), evidence.get("elements")
    if isinstance(wrong, int) and isinstance(of, int):
        found["wrong elements"] = f"{number(wrong)} of {number(of)}"
    for key, name in (("workload", "workload"), ("family", "inputs drawn"), ("seed", "seed")):
        if evidence.get(key) not in (None, ""):
            found[name] = str(evidence[key])
    if isinstance(shapes := evidence.get("inputs"), list):
        found["inputs"] = ", ".join(map(str, shapes))
    return found


def _figure(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)
