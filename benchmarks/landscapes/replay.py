"""Searches replayed on a measured landscape: a source whose programs are names, and a judge that looks times up."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from benchmarks.common import json_rows
from hipwright.agents.ablation.arms import Arm, ArmOutcome, outcome
from hipwright.agents.engine_author import EngineAuthor
from hipwright.agents.pipeline import Pipeline
from hipwright.archive import Archive, read_log
from hipwright.engine.knobs import Choice
from hipwright.errors import BadInput
from hipwright.records import Evaluation, Program, Status, Task, Workload
from hipwright.search import EngineSource, ProposalSource, new_run, run

MEMORY = Path("/dev/shm")
"""Where archives of replays are, if there is such a folder: events are written through to the disk elsewhere."""
TARGETS = ("cuda",)


@dataclass(frozen=True)
class Entry:
    """One program of a landscape. us: microseconds, None where it was refused; why: of a refusal. features: as in
    an Evaluation."""

    text: str
    us: float | None
    status: Status
    why: str = ""
    features: Mapping[str, float] = field(default_factory=dict)


class Landscape:
    """The measured part of a task's space. Programs are the JSON of the first settings that they were written for."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self.name = str(row["task"])
        self.device = str(row.get("gpu") or row.get("target", ""))
        self.space = {key: _choice(one) for key, one in row["keys"].items()}
        self.task = Task(name=self.name, source=f"# {self.name}", workloads=(Workload(name="given"),))
        features = dict(enumerate(row.get("features", ())))
        entries: dict[int, Entry] = {}
        self._places: dict[str, Entry] = {}
        for one in row["rows"]:
            text = _text(one["settings"])
            self._places[text] = entries.setdefault(one["program"], _entry(text, one, features.get(one["program"], {})))
        self.entries = {entry.text: entry for entry in entries.values()}
        self.default = self._entry({key: choice.default for key, choice in self.space.items()}).us or inf
        self.best = min(entry.us for entry in entries.values() if entry.us is not None and entry.status == "pass")

    def write(self, choices: Mapping[str, Any]) -> Program:
        """The program of a full set of choices. KeyError for one that is not of the landscape."""
        return Program(text=self._entry(choices).text)

    def _entry(self, choices: Mapping[str, Any]) -> Entry:
        return self._places[_text({key: choices[key] for key in self.space})]


def landscapes(path: Path) -> list[Landscape]:
    """The landscapes of a file of JSON lines, compressed or not. Raises BadInput where it holds none."""
    found = [Landscape(row) for row in json_rows(path, ("task", "keys", "rows")) if "failed" not in row]
    if not found:
        raise BadInput(f"{path} holds no landscape", hint="python -m benchmarks landscape measures some")
    return found


class TableJudge:
    """An evaluator that looks up what was measured. asked: the texts of all programs that it judged."""

    fingerprint = "measured landscape"

    def __init__(self, landscape: Landscape) -> None:
        self._landscape = landscape
        self.asked: list[str] = []

    def evaluate(self, program: Program) -> Evaluation:
        """The entry of a program as an evaluation. Its score is compared as an estimate is: it has no interval."""
        self.asked.append(program.text)
        entry = self._landscape.entries[program.text]
        passed = entry.status == "pass"
        return Evaluation(
            task=self._landscape.task.key,
            program=program.key,
            status=entry.status,
            fault=None if passed else "candidate",
            message=entry.why,
            score=entry.us if passed else None,
            score_kind="estimate" if passed else "none",
            features=dict(entry.features),
            coverage=1.0,
        )


def replayed(landscape: Landscape, arm: Arm, seed: int, budget: int, judge: TableJudge | None = None) -> ArmOutcome:
    """The outcome of one arm with one seed on a landscape."""
    settings: dict[str, Any] = {}
    engine = EngineSource(landscape.space, landscape.write)
    source: ProposalSource = engine
    if arm.kind == "pipeline":
        agents = {"without": list(arm.without)}
        settings = {"agents": agents}
        source = Pipeline(EngineAuthor(engine, agents, TARGETS, static_check=lambda program: ""), None, agents)
    count = 1 if arm.kind == "single-shot" else budget
    wanted = new_run(landscape.task, TARGETS, budget=count, policy_name=arm.policy, seed=seed, settings=settings)
    folder = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=folder) as home, Archive(Path(home)) as archive:
        run(archive, wanted, landscape.task, evaluator=judge or TableJudge(landscape), source=source)
        log = read_log(archive.events(wanted.id))
    found = outcome(log, task=landscape.name, arm=arm.name, seed=seed, run="", budget=budget, known=False)
    return replace(found, score_kind="measured", seconds=0.0)


def replayed_all(landscape: Landscape, arms: Sequence[Arm], seeds: int, budget: int) -> list[ArmOutcome]:
    """The outcomes of arms with seeds from 0 on."""
    return [replayed(landscape, arm, seed, budget) for arm in arms for seed in range(seeds)]


def _choice(one: Mapping[str, Any]) -> Choice:
    return Choice(options=tuple(one["options"]), default=one["default"], kind=one["kind"])


def _entry(text: str, row: Mapping[str, Any], features: Mapping[str, float]) -> Entry:
    if "refused" in row:
        return Entry(text, None, "compile_error", row["refused"])
    if "off" in row:
        return Entry(text, None, "wrong_value", f"off by {row['off']:.2g} of the largest value")
    return Entry(text, row["us"], "pass", features=features)


def _text(settings: Mapping[str, Any]) -> str:
    return json.dumps(dict(settings), sort_keys=True)
