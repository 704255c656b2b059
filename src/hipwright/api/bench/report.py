"""The report of a benchmark: its figures, and the files result.json, rows.csv and bench.html."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hipwright.api.bench.models import MeasuredModels
from hipwright.api.bench.plan import BenchmarkRun, BenchRequest
from hipwright.api.files import write_files
from hipwright.api.plain import finite
from hipwright.evaluation.bench import BenchRow, to_csv
from hipwright.evaluation.figures import figures, worst
from hipwright.evaluation.formats.registry import format_named
from hipwright.evaluation.model_figures import model_figures
from hipwright.software_gpu import is_software
from hipwright.targets import OFFLINE, TARGETS


@dataclass(frozen=True)
class BenchmarkReport:
    """The results of a benchmark. rows: the finished ones, in order, of `expected`; unmatched: files without a task.

    figures: `hipwright.evaluation.figures`; model: `hipwright.evaluation.model_figures`, None without models.
    """

    request: BenchRequest
    rows: tuple[BenchRow, ...]
    expected: int
    unmatched: tuple[Path, ...]
    interrupted: bool
    figures: Mapping[str, Any]
    model: Mapping[str, Any] | None
    form: str = ""

    @classmethod
    def of(cls, bench: BenchmarkRun) -> BenchmarkReport:
        """The report of a run, finished or not."""
        request, rows = bench.request, bench.rows
        found = figures(rows, kernelbench=request.mode == "kernelbench")
        model = model_figures(rows, request.models.samples) if request.models else None
        unmatched = tuple(bench.unmatched)
        return cls(request, tuple(rows), len(bench.entries), unmatched, bench.interrupted, found, model, bench.form)

    @property
    def complete(self) -> bool:
        """Whether every row is there."""
        return len(self.rows) == self.expected and not self.interrupted

    @property
    def source(self) -> str:
        """The source of the programs: the engine, a folder, or models."""
        if self.request.models is not None:
            return " ".join(self.request.models.access.lineup.specs())
        return "engine" if self.request.candidates is None else str(self.request.candidates)

    @property
    def format_facts(self) -> dict[str, str] | None:
        """The tasks' format and its own rules, in words; None for a suite and for a task's file."""
        if not self.form:
            return None
        found = format_named(self.form)
        words = {"tolerance": found.rule.tolerance, "timing": found.rule.timing, "source": found.rule.source}
        return {"name": found.name, "title": found.title, **words, "no_training": found.no_training}

    @property
    def not_measured(self) -> list[str]:
        """The facts that the benchmark did not establish, a sentence each."""
        return not_measured(self.request.targets, self.rows)

    def summary(self) -> dict[str, Any]:
        """The object that `bench --json` prints."""
        request = self.request
        searched = request.candidates is None and (request.models is None or request.models.agent == "pipeline")
        model = None
        if self.model is not None and request.models is not None:
            model = {**_model_settings(request.models), **self.model}
        return {
            "suite": str(request.suite),
            "mode": request.mode,
            "format": self.format_facts,
            "source": self.source,
            "budget": request.budget if searched else None,
            "seed": request.seed,
            "targets": list(request.targets),
            "complete": self.complete,
            "expected_rows": self.expected,
            "left_out": [str(path) for path in self.unmatched],
            "out": str(request.out) if request.out else None,
            **self.figures,
            "model": model,
            "worst": [_brief(row) for row in worst(self.rows)],
            "not_measured": self.not_measured,
            "rows": [row.to_dict() for row in self.rows],
        }

    def write(self, folder: Path) -> None:
        """Writes result.json, rows.csv and bench.html, each atomically."""
        from hipwright.report.bench_page import BenchPage, render_bench

        page = BenchPage(
            title=self.request.suite.resolve().name,
            mode=self.request.mode,
            source=self.source,
            targets=self.request.targets,
            complete=self.complete,
            expected=self.expected,
            figures=self.figures,
            rows=self.rows,
            not_measured=tuple(self.not_measured),
            command=self.command(),
            model=self.model,
            form=self.format_facts,
        )
        files = {"result.json": json.dumps(finite(self.summary()), indent=2) + "\n", "rows.csv": to_csv(self.rows)}
        write_files(folder, files | {"bench.html": render_bench(page)})

    def command(self) -> str:
        """The command line that repeats the benchmark."""
        request = self.request
        arguments = ["hipwright", "bench", str(request.suite)]
        if request.candidates is not None:
            arguments += ["--candidates", str(request.candidates)]
        elif request.models is not None:
            arguments += _model_options(request.models, request.budget)
        else:
            arguments += ["--budget", str(request.budget)]
        if request.compile_limit is not None:
            arguments += ["--compile-limit", f"{request.compile_limit:g}"]
        if request.level is not None:
            arguments += ["--level", str(request.level)]
        if request.form is not None:
            arguments += ["--format", request.form]
        arguments += [
            "--mode",
            request.mode,
            *(argument for name in request.targets for argument in ("--target", name)),
        ]
        return shlex.join(arguments + (["--seed", str(request.seed)] if request.seed is not None else []))


def _model_settings(models: MeasuredModels) -> dict[str, Any]:
    """The settings of the models' calls."""
    access = models.access
    return {
        "specs": access.lineup.specs(),
        "agent": models.agent,
        "form": models.form,
        "temperature": models.temperature,
        "max_usd": access.limits.usd,
        "max_tokens": access.limits.tokens,
        "replay": str(access.replay) if access.replay else None,
    }


def _model_options(models: MeasuredModels, budget: int) -> list[str]:
    """The options that measure the same models again, as command line arguments."""
    arguments = [argument for spec in models.access.lineup.specs() for argument in ("--llm", spec)]
    arguments += ["--samples", str(models.samples), "--agent", models.agent, "--form", models.form]
    arguments += ["--budget", str(budget)] if models.agent == "pipeline" else []
    return arguments + (["--temperature", str(models.temperature)] if models.temperature is not None else [])


def _brief(row: BenchRow) -> dict[str, Any]:
    return {
        "task": row.task,
        "candidate": row.candidate,
        "status": row.status,
        "message": row.message,
        "coverage": row.coverage,
        "speedups": {name: one.speedup for name, one in row.speedups.items()},
    }


def not_measured(targets: Sequence[str], rows: Sequence[BenchRow]) -> list[str]:
    """The facts that rows on these targets do not establish, a sentence each."""
    lines = []
    if not any(row.timed_on for row in rows):
        lines.append("nothing was timed: no GPU target ran, so fast_p, speedups and roofline fractions are null")
    if not any(TARGETS.is_amd(row.timed_on) for row in rows):
        offline = [name for name in targets if name in OFFLINE]
        lines += [
            f"no AMD GPU was used: speed on {OFFLINE[name].product} ({name}) was not measured" for name in offline
        ]
    lines += [
        f"{device} is no GPU: the times, and every figure made of them, are those of software, and no AMD GPU's speed"
        for device in sorted({row.device for row in rows if is_software(row.device)})
    ]
    if not any(TARGETS.runs(name) for name in targets):
        lines.append("no target that runs was chosen: nothing ran, so no value was checked")
    return lines
