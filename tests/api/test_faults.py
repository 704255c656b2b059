"""Faults of the engine are kept with a task file that shows them: with the fault the same status, without it a pass."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hipwright.api.library import optimize
from hipwright.api.runs.faults import check_faults, keep_run_faults, list_faults, shown_by, write_faults
from hipwright.api.task_engine import TaskEngine, task_engine
from hipwright.archive import Archive, EngineFault, Reproducer, check, export, list_runs
from hipwright.archive.digests import runs
from hipwright.archive.faults import FaultCheck, keep_check, keep_faults
from hipwright.capture.graph import Graph
from hipwright.cli.main import main
from hipwright.engine import write
from hipwright.engine.authoring import Authored, author
from hipwright.engine.knobs import EVERY_OPERATOR, GIVEN_UP, PLAIN_PLAN
from hipwright.engine.partly import author_partly
from hipwright.machine import Workbench, machine
from hipwright.records import Program, Run, Task, Workload
from hipwright.search import EngineSource, new_run
from hipwright.search import run as run_search

TASK = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = torch.nn.Linear(24, 40), torch.nn.LayerNorm(40), torch.nn.Linear(40, 12)

    def forward(self, x):
        x = self.norm(torch.nn.functional.gelu(self.first(x)))
        return torch.softmax(self.last(x), -1)


def get_inputs():
    return [torch.randn(9, 24)]
"""
Planted = Callable[[str], str]


def wrong_gelu(text: str) -> str:
    return re.sub(r"(?<![\w.])gelu\(", "0.9f * gelu(", text)


def gelu_out_of_bounds(text: str) -> str:
    """A row's offset is one element too large for each row, where the kernel computes a gelu."""
    kernels = re.split(r"(?=extern \"C\")", text)
    return "".join(re.sub(r" \+ row \* 40", " + row * 44", k) if "gelu(" in k else k for k in kernels)


def wrong_gelu_beside_softmax(text: str) -> str:
    return wrong_gelu(text) if "softmax" in text else text


@contextmanager
def opened_chain() -> Iterator[Workbench]:
    with machine(("cpu",), unsafe=False) as made, made.open_text("chain", TASK, seed=1) as bench:
        yield bench


def faulty(planted: Planted) -> Callable[..., Program]:
    def wrong(graph: Graph, choices: Mapping[str, Any] | None = None) -> Program:
        made = write(graph, choices)
        return msgspec.structs.replace(made, text=planted(made.text))

    return wrong


def run_with(planted: Planted, home: Path) -> None:
    """A run of one evaluation by an engine with a planted fault, whose faults are kept."""
    with opened_chain() as bench, Archive(home) as archive:
        engine = task_engine(bench)
        wrong = faulty(planted)
        source = EngineSource(engine.source.space, lambda c: wrong(engine.graph, c), engine.source.fallback)
        task = bench.handle.task
        plan = new_run(task, ("cpu",), budget=1, seed=1)
        found = run_search(archive, plan, task, evaluator=bench.evaluator, source=source)
        assert found.program is not None
        assert keep_run_faults(archive, engine, task.name, found.run) >= 1
        assert keep_run_faults(archive, engine, task.name, found.run) == 0, "kept once"
        assert check(archive) == []
        assert "reproducer" not in export(archive, found.run, canonical=True)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HIPWRIGHT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.mark.slow
@pytest.mark.parametrize(("planted", "status"), [(wrong_gelu, "wrong_value"), (gelu_out_of_bounds, "out_of_bounds")])
def test_the_file_shows_the_fault_and_passes_without_it(
    planted: Planted, status: str, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_with(planted, home)
    ((one,), damaged) = list_faults()
    assert not damaged and one.fault.status == status and one.fault.target == "cpu" and one.fault.file == "operators"
    assert "gelu" in one.fault.given_up and "softmax" not in one.fault.given_up and not one.fault.shown
    (checked,) = check_faults(1, write=faulty(planted))
    assert checked.fault.shown == status and checked.fault.file == "operators"
    (path,) = write_faults(tmp_path / "out", 1)
    text = path.read_text()
    assert len(text) < 20_000 and str(tmp_path) not in text and "gelu" in text and "softmax(" not in text
    assert f": {status} on cpu." in text and f"hipwright optimize {path.name} --target cpu --budget 1" in text
    assert f"run alone it ended with {status}" in text
    assert shown_by(text, "cpu") == "pass", "without the planted fault"
    assert optimize(path, budget=1, targets=["cpu"]).passed
    assert main(["runs", "faults", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["faults"]
    assert row["number"] == 1 and row["status"] == row["shown"] == status and row["version"]


@pytest.mark.slow
def test_a_fault_that_needs_the_whole_task_keeps_it(home: Path, tmp_path: Path) -> None:
    run_with(wrong_gelu_beside_softmax, home)
    (checked,) = check_faults(write=faulty(wrong_gelu_beside_softmax))
    assert checked.fault.file == "task" and checked.fault.shown == "wrong_value"
    assert checked.fault.why == "the operators alone end with pass"
    (path,) = write_faults(tmp_path)
    assert path.read_text().endswith(TASK) and "the operators alone end with pass" in path.read_text()
    assert check_faults(write=faulty(wrong_gelu_beside_softmax)) == [], "what was run is not run again"


def faulty_author(graph: Graph, choices: Mapping[str, Any] | None = None) -> Authored:
    given_up = str((choices or {}).get(GIVEN_UP, ""))
    if any("gelu" in node.op for node in graph.nodes) and not {"gelu", EVERY_OPERATOR, PLAIN_PLAN} & {
        *given_up.split(",")
    }:
        raise KeyError("a fault of the engine's own")
    return author(graph, choices)


@pytest.mark.slow
def test_an_exception_of_the_engine_is_a_fault(home: Path) -> None:
    with opened_chain() as bench, Archive(home) as archive:
        whole = task_engine(bench)
        partly = author_partly(whole.graph, faulty_author)
        engine = TaskEngine(whole.graph, partly.authored, whole.source, whole.programs, partly.given_up, partly.why)
        task, plan = bench.handle.task, new_run(bench.handle.task, ("cpu",), budget=1, seed=1)
        source = EngineSource(
            partly.authored.space, lambda c: faulty_author(whole.graph, c).program, base={GIVEN_UP: partly.given_up}
        )
        found = run_search(archive, plan, task, evaluator=bench.evaluator, source=source)
        assert keep_run_faults(archive, engine, task.name, found.run) == 1
    (checked,) = check_faults(write=lambda graph: faulty_author(graph).program)
    assert checked.fault.status == checked.fault.shown == "engine_error"
    assert checked.fault.proposal == -1 and checked.fault.given_up == ("gelu",) and checked.fault.file == "operators"
    assert "KeyError" in checked.fault.message


def stored(home: Path, count: int) -> None:
    """An archive with a run that kept faults."""
    task = Task(name="t", source=TASK, workloads=(Workload(name="given"),))
    run = Run(id="r1", task=task.key, targets=("cpu",), budget=1, policy="islands", seed=0)
    with Archive(home) as archive:
        archive.begin_run(run, {"task_name": "t"}, [task])
        file = Reproducer(text="import torch\n")
        fault = EngineFault(
            run="r1", task="t", status="wrong_value", file="operators", reproducer=file.key, given_up=("relu",)
        )
        keep_faults(archive, [(fault, file)] * count)


def test_commands_list_and_write_faults(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored(home, 2)
    assert main(["runs", "faults"]) == 0
    shown = capsys.readouterr().out
    assert "wrong_value" in shown and "relu" in shown and "operators, not run alone" in shown
    assert main(["runs", "faults", "2", "--out", str(tmp_path / "new" / "out")]) == 0
    assert [p.name for p in (tmp_path / "new" / "out").iterdir()] == ["fault_2_wrong_value.py"]
    capsys.readouterr()
    assert main(["runs", "faults", "--out", str(tmp_path / "all"), "--json"]) == 0
    written = json.loads(capsys.readouterr().out)["written"]
    assert sorted(Path(p).name for p in written) == ["fault_1_wrong_value.py", "fault_2_wrong_value.py"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["3"], "no fault 3 in .*: there are 2"),
        (["0"], "no fault 0"),
        (["one"], "Invalid value for 'N'"),
        (["1", "--out", "/proc/nowhere"], "cannot write to /proc/nowhere"),
    ],
)
def test_a_wrong_argument_is_one_clear_line(
    arguments: list[str], line: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(home, 2)
    assert main(["runs", "faults", *arguments]) == 2
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("error: bad input: ") and re.search(line, first)


def test_options_before_the_subcommand_are_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "--json", "faults"]) == 2
    assert "follow its name" in capsys.readouterr().err


def test_without_an_archive_there_are_no_faults(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "faults", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["faults"] == []
    assert main(["runs", "faults", "1"]) == 2
    assert not home.exists()


def test_an_older_archive_tells_its_faults_from_its_log(home: Path) -> None:
    """A run of an earlier version has no fault events: its refused programs and what was given up are in its log."""
    task = Task(name="t", source=TASK, workloads=(Workload(name="given"),))
    run = Run(id="r1", task=task.key, targets=("cpu",), budget=1, policy="islands", seed=0)
    refused = {"status": "wrong_value", "fault": "candidate", "message": "off"}
    judged = {"target": "cpu", "verdict": {"status": "wrong_value", "evidence": {"kernel": "k"}, "message": "off"}}
    wrong = {"evaluation": {"task": task.key, "program": "p", **refused, "targets": {"cpu": judged}}}
    right = {"evaluation": {"task": task.key, "program": "q", "status": "pass"}}
    given = {"fallback": "k is wrong", "given_up": "gelu,layer_norm", "closing": True}
    with Archive(home) as archive:
        archive.begin_run(run, {"task_name": "t"}, [task])
        first = {"expansion": {"number": 0, "operator": "default"}, "round": 0, "program": "p"}
        second = {"expansion": {"number": 1, "operator": "fallback"}, "round": 1, "program": "q", "notes": given}
        archive.append("r1", "proposed", 0, first)
        archive.append("r1", "evaluated", 0, wrong)
        archive.append("r1", "proposed", 1, second)
        archive.append("r1", "evaluated", 1, right)
        archive.append("r1", "finished", -1, {"reason": "budget"})
        assert len(list_runs(archive)) == 1
    ((one,), _) = list_faults()
    assert one.fault.given_up == ("gelu", "layer_norm") and one.fault.kernel == "k"
    assert (
        one.fault.status == "wrong_value"
        and one.fault.version == ""
        and one.fault.file == "task"
        and one.fault.target == "cpu"
    )


def test_faults_are_listed_without_reading_the_events_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(home, 2)
    with Archive(home) as archive:
        archive.append("r1", "finished", -1, {"reason": "budget"})
        archive.begin_run(Run(id="r2", task="t", targets=("cpu",), budget=1, policy="islands", seed=0))
    known, _ = list_faults()
    assert len(known) == 2
    read: list[str] = []
    whole = runs.readable_log
    monkeypatch.setattr(runs, "readable_log", lambda archive, run: read.append(run) or whole(archive, run))
    assert list_faults()[0] == known and read == ["r2"]  # which goes on
    with Archive(home) as archive:
        keep_check(archive, "r1", FaultCheck(fault=1, shown="pass", file="task"))
    assert [one.fault.shown for one in list_faults()[0]] == ["", "pass"] and "r1" in read


def test_an_archive_of_version_0_1_has_no_faults_and_takes_new_ones(home: Path) -> None:
    packed = Path(__file__).parents[1] / "archive" / "version_0_1" / "archive.sqlite.gz"
    home.mkdir()
    (home / "archive.sqlite").write_bytes(gzip.decompress(packed.read_bytes()))
    assert list_faults() == ([], [])
    stored(home, 1)
    ((one,), _) = list_faults()
    assert one.fault.run == "r1" and one.number == 1
