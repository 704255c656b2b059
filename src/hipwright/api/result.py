"""The result of a search, and the four files of `optimize --out DIR`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import msgspec

from hipwright.api.files import prepare_folder, write_files
from hipwright.api.models import command_options
from hipwright.api.outcome import given_up, not_measured, result_object
from hipwright.api.plain import finite
from hipwright.api.start.comparison import StartComparison, start_comparison
from hipwright.archive import RunDetail
from hipwright.errors import HipwrightError
from hipwright.events import Listener, silent
from hipwright.measure.gain import Gain, gains
from hipwright.records import Estimate, Evaluation, Program, Record, TargetResult, Task
from hipwright.search import SearchResult
from hipwright.search.counters import SETTING as COUNTERS
from hipwright.search.fallback import SLOWER_WHY
from hipwright.search.stop import ROOFLINE, reached

PROGRAM_FILE, MODELNEW_FILE = "program.py", "model_new.py"
FILES = (PROGRAM_FILE, MODELNEW_FILE, "result.json", "report.html")


class Result(Record, frozen=True, kw_only=True):
    """The result of a search.

    path: the task's file as the caller wrote it. search: the winner, and why the search ended. detail: the run in the
    archive, every trial included. explanation: the kernels of the winner and its library calls. rejection: without a
    winner, the last evaluation that failed. unproven: without one, the module's own library calls, for a task on which
    no verdict proves anything. models: calls, tokens and dollars of language models, or None. reference: the estimates
    of the task's own operators, unfused, by AMD target; {} where they are not known.
    """

    path: str
    task: Task
    search: SearchResult
    detail: RunDetail
    explanation: dict[str, Any] = msgspec.field(default_factory=dict)
    rejection: Evaluation | None = None
    unproven: Program | None = None
    models: dict[str, Any] | None = None
    reference: dict[str, Estimate] = msgspec.field(default_factory=dict)

    @property
    def program(self) -> Program | None:
        """The best verified program; None where nothing passed."""
        return self.search.program

    @property
    def evaluation(self) -> Evaluation | None:
        """The winner's evaluation, else the last rejection; None where nothing was evaluated."""
        return self.search.evaluation or self.rejection

    @property
    def passed(self) -> bool:
        """Whether there is a verified program."""
        return self.program is not None

    @property
    def source(self) -> str:
        """The text of program.py: the winner's, with its knobs' values and the guards that its verdicts name.

        Of the unproven program where nothing was verified; "" without one.
        """
        chosen = self.program or self.unproven
        return written(chosen, self.evaluation) if chosen is not None else ""

    @property
    def program_key(self) -> str:
        """The program's name wherever it goes: the key of program.py; "" without one.

        The archive's own key of the winner is that of its text before knobs and guards were written into it.
        """
        return Program(text=self.source).key if self.source else ""

    @property
    def program_targets(self) -> dict[str, TargetResult]:
        """The evaluation's results by target; {} where nothing was evaluated."""
        return self.evaluation.targets if self.evaluation else {}

    @property
    def gains(self) -> list[Gain]:
        """The program beside each baseline, by target: measured, or both sides estimated; [] where nothing passed."""
        return gains(self.program_targets, self.reference) if self.passed else []

    @property
    def fused(self) -> list[dict[str, Any]]:
        """The kernels of the program, {kernel, operators, mapping} each; [] of one that the engine did not write."""
        return [
            {"kernel": one["name"], "operators": list(one["nodes"]), "mapping": one.get("mapping", "")}
            for one in self.explanation.get("kernels", ())
        ]

    @property
    def run(self) -> str:
        """The run's id in the archive."""
        return self.search.run

    @property
    def evaluations(self) -> int:
        """The evaluations that the search spent."""
        return self.search.evaluations

    @property
    def given_up(self) -> list[dict[str, Any]]:
        """What the program leaves to the library, its kernels refused or slower: {operators, why}, in turn."""
        return given_up(self.detail.trials, self.search.number)

    @property
    def start(self) -> StartComparison | None:
        """The kernel that the run began with beside its winner; None for a run without one."""
        return start_comparison(self.detail)

    @property
    def counters(self) -> dict[str, Any]:
        """What the run's profiles said and cost: {source, profiles, seconds, evaluations, limits}; {} without them."""
        found = self.detail.counted
        if not found:
            return {}
        limits = [
            {"number": number, "source": one.source, "limit": one.limit, "kernel": one.kernel, "text": one.text}
            | ({"error": one.error} if one.error else {})
            for number, one in sorted(found.items())
        ]
        return {
            "source": str(self.detail.run.settings.get("counters", "")),
            "profiles": sum(one.profiled for one in found.values()),
            "seconds": round(sum(one.seconds for one in found.values()), 2),
            "evaluations": sum(one.cost for one in found.values()),
            "limits": limits,
        }

    @property
    def saved(self) -> dict[str, Any]:
        """What a stop at the roofline saved: {evaluations, of, reached}; {} for a run that ended otherwise."""
        if self.search.reason != "roofline":
            return {}
        run = self.detail.run
        share = reached(self.evaluation)
        left = max(run.budget - self.evaluations - int(self.counters.get("evaluations", 0)), 0)
        return {"evaluations": left, "of": run.budget, "reached": None if share is None else round(share, 4)}

    @property
    def not_measured(self) -> list[str]:
        """The facts that the run did not establish, a sentence each."""
        return not_measured(self.detail.run.targets, self.evaluation)

    @property
    def note(self) -> str:
        """A sentence on a search that found nothing, was interrupted, or gave up kernels; "" otherwise."""
        if self.unproven is not None:
            return (
                "No program is verified, as trivial ones would pass: the module's own library calls are the program. "
                "Further sizes (get_input_groups) may tell them apart."
            )
        if self.program is None:
            return f"No program passed verification in {self.evaluations} evaluations."
        if self.search.interrupted:
            return "The search was interrupted: this is the best program so far, and it was not verified a second time."
        names = ", ".join(name for one in self.given_up for name in one["operators"])
        slower = all(one["why"].startswith(SLOWER_WHY) for one in self.given_up)
        why = SLOWER_WHY if slower else "refused"
        return f"Left to the library, because programs with kernels for it were {why}: {names}." if names else ""

    def summary(self, out: Path | None = None) -> dict[str, Any]:
        """The object that `optimize --json` prints. out: the folder of the files, for the program's path."""
        found, detail = self.search, self.detail
        return result_object(
            self.evaluation,
            detail.run.targets,
            run=found.run,
            task=self.task.name,
            program=str(out / self._program_name) if out is not None and (found.program or self.unproven) else None,
            unproven=self.unproven is not None,
            program_key=self.program_key or None,
            knobs=found.program.knobs if found.program else {},
            evaluations=found.evaluations,
            seconds=detail.costs.get("wall_seconds", 0.0),
            reason=found.reason,
            confirmed=found.confirmed,
            interrupted=found.interrupted,
            given_up=self.given_up,
            gain=[one.to_dict() for one in self.gains],
            fused=self.fused,
            not_measured=self.not_measured,
            models=self.models,
            **({"counters": self.counters} if self.counters else {}),
            **({"saved": self.saved} if self.saved else {}),
            **({"start": self.start.to_dict()} if self.start is not None else {}),
        )

    def write(self, folder: Path, *, listener: Listener = silent) -> None:
        """Writes program.py, model_new.py, result.json and report.html, each atomically.

        Without a program the first two are left out; one that is unproven is written too. Events for the
        listener: "note" {text} where a program has no ModelNew form.
        """
        files = {"result.json": json.dumps(finite(self.summary(folder)), indent=2) + "\n", "report.html": self.report()}
        write_files(folder, files | self._program_files(listener))

    def report(self) -> str:
        """The page report.html."""
        from hipwright.report import from_run, render

        data = from_run(
            self.detail,
            self.task,
            self.evaluation,
            command=self.command(),
            explanation=self.explanation,
            not_measured=self.not_measured,
            note=self.note,
            models=self.models,
            gains=self.gains,
            counters=self.counters,
            saved=self.saved,
            start=self.start.to_dict() | {"sentence": self.start.sentence} if self.start is not None else None,
        )
        return render(data)

    def save(self, folder: str | Path) -> Path:
        """`write`, and the task's own file beside the four. Returns the folder."""
        folder = Path(folder)
        prepare_folder(folder)
        self.write(folder)
        write_files(folder, {"task.py": self.task.source})
        return folder

    def _repr_html_(self) -> str:
        from hipwright.report.notebook import notebook_html

        state = "verified" if self.passed else self.note
        title = f"{self.task.name}: {state} (run {self.run}, {self.evaluations} evaluations)"
        return notebook_html(title, self.program_targets, self.not_measured, self.source)

    @property
    def _program_name(self) -> str:
        """The file of the program: that of a start in the ModelNew form, which has no other, is its own."""
        return MODELNEW_FILE if self.program is not None and self.program.form == "modelnew" else PROGRAM_FILE

    def _program_files(self, listener: Listener) -> dict[str, str]:
        from hipwright.program import parse
        from hipwright.program.modelnew import export as modelnew

        if not (text := self.source):
            return {}
        if self._program_name == MODELNEW_FILE:
            return {MODELNEW_FILE: text}
        files = {PROGRAM_FILE: text}
        try:
            files[MODELNEW_FILE] = modelnew.export(Program(text=text), parse(text), self.task.source)
        except HipwrightError as error:  # the program is valid without its KernelBench form
            listener("note", {"text": f"no model_new.py: {error.message}"})
        return files

    def command(self, *, resume: bool = False, out: Path | None = None) -> str:
        """The command line that repeats the run, or resumes it."""
        run = self.detail.run
        arguments = ["hipwright", "resume", run.id] if resume else ["hipwright", "optimize", self.path]
        if not resume:
            arguments += [argument for name in run.targets for argument in ("--target", name)]
            arguments += [
                "--budget",
                str(run.budget),
                "--policy",
                run.policy.replace("_", "-"),
                "--seed",
                str(run.seed),
            ]
            arguments += command_options(run)
            arguments += ["--counters", "on"] if run.settings.get(COUNTERS) else []
            arguments += ["--stop-at", f"{run.settings[ROOFLINE]:g}"] if ROOFLINE in run.settings else []
        return shlex.join(arguments + (["--out", str(out)] if out is not None else []))


def written(program: Program, evaluation: Evaluation | None) -> str:
    """A program's text with its knobs' values, and the guards that the verdicts of its evaluation name.

    A ModelNew file's text is its own.
    """
    if program.form == "modelnew":
        return program.text
    from hipwright.program.knobs import text_with_knobs
    from hipwright.verify.admitted.stage import narrowed

    results = evaluation.targets.values() if evaluation is not None else ()
    text = narrowed(program.text, [one.verdict.checks for one in results if one.verdict is not None])
    return text_with_knobs(msgspec.structs.replace(program, text=text))
