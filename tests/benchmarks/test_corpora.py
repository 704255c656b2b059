"""Corpora: the tasks that they make, the fixed sample, how rows are counted, and a sample that is judged."""

from __future__ import annotations

import ast
import collections
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import registry
from benchmarks.__main__ import main as benchmark
from benchmarks.corpora.__main__ import CORPORA, corpus, main
from benchmarks.corpora.corpus import CorpusTask, file_name, listed_tasks, require, sample_of, write_tasks
from benchmarks.corpora.generated import architectures, chains, singles
from benchmarks.corpora.generated.networks import WEIGHTS, Network, used_blocks
from benchmarks.corpora.judged import CorpusReport, kind_of, reason
from hipwright.api.bench import plan
from hipwright.api.bench.plan import BenchRequest, plan_benchmark
from hipwright.device.gpu_info import GpuInfo
from hipwright.errors import BadInput
from hipwright.evaluation.bench import BenchRow, Speedup

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-corpora/bin/python"
needs_packages = pytest.mark.skipif(not PYTHON.exists(), reason="make test installs .venv-corpora")

TASKS = [CorpusTask(f"{family}_{number}", family, "") for family in "abcde" for number in range(ord(family) - 94)]


def test_a_sample_takes_families_in_turn_and_is_the_same_every_time() -> None:
    five = sample_of(TASKS, 5)
    assert {task.family for task in five} == set("abcde")
    assert sample_of(list(reversed(TASKS)), 5) == five and sample_of(TASKS, 9)[:5] == five
    assert sample_of(TASKS, None) == TASKS == sample_of(TASKS, 10_000)


class Counted:
    packages, imported = (), ()
    made = 0

    def tasks(self, real: bool = False) -> Iterator[CorpusTask]:
        self.made += 1
        yield from TASKS


def test_a_corpus_is_listed_once_for_its_versions(tmp_path: Path) -> None:
    source = Counted()
    for versions in ({"torch": "1"}, {"torch": "1"}, {"torch": "2"}):
        assert listed_tasks(source, versions, False, tmp_path) == TASKS
    assert source.made == 2
    for kept in tmp_path.iterdir():
        kept.write_text("[{]")
    assert listed_tasks(source, {"torch": "2"}, False, tmp_path) == TASKS and source.made == 3
    assert listed_tasks(source, {}, False, Path("/proc/nothing")) == TASKS


def test_a_missing_package_is_named_with_what_installs_it() -> None:
    assert require(["torch"])["torch"]
    with pytest.raises(BadInput, match="no_such_package is not installed"):
        require(["torch", "no_such_package"])


def test_task_files_are_written_once(tmp_path: Path) -> None:
    task = CorpusTask(file_name("nn.functional", "", "gelu", "32"), "gelu", "x = 1\n")
    write_tasks([task], tmp_path)
    path = tmp_path / "nn_functional_gelu_32.py"
    stamp = path.stat().st_mtime_ns
    write_tasks([task], tmp_path)
    assert path.read_text() == "x = 1\n" and path.stat().st_mtime_ns == stamp


def row(task: str, status: str, fault: str | None = None, **more: object) -> BenchRow:
    return BenchRow(key=task, task=task, candidate="engine", status=status, fault=fault, **more)  # type: ignore[arg-type]


def test_a_wrong_program_is_a_failure_and_a_task_at_fault_is_none() -> None:
    rows = [
        row("a_0", "pass", coverage=1.0, seconds=2.0),
        row("b_0", "pass", coverage=0.0, given_up=("mm",)),
        row("b_1", "degenerate", "task"),
        row("c_0", "unscorable", "task", message="c_0.py:3: cannot capture: line 7: `x[i]`: 12 things"),
        row("c_1", "wrong_value", "candidate", message="output[0] is 1"),
        row("d_0", "unscorable", "device", message="gone"),
    ]
    kinds = ["verified", "verified", "nothing to prove", "refused", "failed", "failed"]
    assert list(map(kind_of, rows)) == kinds
    with_kernels = frozenset({"a_0", "c_1"})
    summary = CorpusReport("x", {one.task: one for one in rows}, tuple(TASKS), {}, False, with_kernels).summary()
    assert (summary["verified"], summary["given_up"], summary["failed"]) == (2, 1, 2)
    assert summary["families_with_own_hip"] == 1 and summary["families_judged"] == 4
    assert summary["families_verified"] == 2
    assert summary["reasons"] == {"cannot capture: N things": 1} and reason(rows[3]) == "cannot capture: N things"


def test_names_of_operators_with_underscores_are_not_hidden_from_suites() -> None:
    assert file_name("__radd__", "", "float32") == "op__radd___float32"


def test_the_summary_has_the_speeds_of_what_was_timed() -> None:
    def speeds(eager: float, *others: float) -> dict[str, Speedup]:
        names = zip(("eager", "compile"), (eager, *others), strict=False)
        return {name: Speedup(speedup=speed, interval=(speed, speed)) for name, speed in names}

    rows = [
        row("a_0", "pass", correct=True, coverage=1.0, speedups=speeds(4.0, 1.0)),
        row("b_0", "pass", correct=True, coverage=1.0, speedups=speeds(0.25)),
        row("b_1", "pass", correct=True, coverage=1.0),
        row("c_0", "wrong_value", "candidate", speedups=speeds(9.0)),
    ]
    summary = CorpusReport("x", {one.task: one for one in rows}, tuple(TASKS), {}, False).summary()
    assert summary["speedups"] == {
        "eager": {"timed": 2, "not_slower": 1, "geometric_mean": 1.0},
        "compile": {"timed": 1, "not_slower": 1, "geometric_mean": 1.0},
    }


def test_rows_against_other_baselines_are_other_rows_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("")

    def keys() -> list[str]:
        each: list[dict[str, Any]] = [{}, {"baselines": ("eager", "compile")}, {"baselines": ("eager",)}]
        return [plan_benchmark(BenchRequest(tmp_path, ("cpu",), **more)).entries[0].key for more in each]

    assert len(set(keys())) == 1, "nothing is timed on the cpu target"
    monkeypatch.setattr(
        plan, "chosen_gpus", lambda request: [GpuInfo(kind="cuda", index=0, name="a GPU", architecture="sm_90")]
    )
    assert keys()[0] == keys()[1] != keys()[2]


@pytest.mark.parametrize("name", ["opinfo", "modules"])
def test_torchs_databases_become_tasks(name: str) -> None:
    tasks = list(islice(corpus(name).tasks(False), 60))
    assert len({task.name for task in tasks}) == len(tasks) == 60
    assert len({task.family for task in tasks}) > 3
    for task in tasks:
        ast.parse(task.text)


@pytest.mark.parametrize(
    ("options", "said"),
    [(["no_such_corpus"], "invalid choice"), (["modules", "--sample", "0"], "0 is no number from 1 on")],
)
def test_bad_options_are_one_line(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(options)
    assert ended.value.code == 2 and said in capsys.readouterr().err


def test_a_name_that_no_task_has_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["modules", "--only", "no such module"]) == 2
    assert capsys.readouterr().err.count("error:") == 1


SAMPLES = {
    "opinfo": ["--sample", "12"],
    "modules": ["--sample", "6"],
    "torchvision": ["--only", "squeezenet1_1_eval"],
    "timm": ["--only", "ghostnet_050"],
    "transformers": ["--sample", "2"],
    "networks": ["--only", "squeezenet1_1"],
    "diffusers": ["--sample", "4"],
    "kornia": ["--only", "total_variation"],
    "research": ["--only", "PatchDiscriminator"],
    "chains": ["--only", "chain_007"],
    "singles": ["--only", "single_007"],
    "architectures": ["--only", "architecture_031"],
}


def test_chains_are_the_same_modules_at_small_and_real_sizes() -> None:
    small, real = (list(chains.Chains().tasks(size)) for size in (False, True))
    assert [task.name for task in small] == [task.name for task in real] and len({t.name for t in real}) == chains.COUNT
    assert list(chains.Chains().tasks(True)) == real, "drawn from the number alone"
    heads = collections.Counter(task.family.partition("_")[0].rstrip("123d") for task in real)
    assert min(heads.values()) > 80 and len(heads) == 5, heads


def test_task_files_are_written_and_none_is_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["singles", "--only", "single_007", "--write", str(tmp_path)]) == 0
    assert sorted(path.stem for path in tmp_path.glob("*.py")) == [
        task.name for task in singles.Singles().tasks() if "single_007" in task.name
    ]
    assert "0 of 10 tasks judged" in capsys.readouterr().out


def test_singles_have_the_same_options_at_small_and_real_sizes() -> None:
    small, real = (list(singles.Singles().tasks(size)) for size in (False, True))
    assert [task.name for task in small] == [task.name for task in real] and len(
        {t.name for t in real}
    ) == singles.COUNT
    assert list(singles.Singles().tasks(True)) == real, "drawn from the number alone"
    kinds = collections.Counter(task.family.rpartition("_")[0] for task in real)
    assert len(kinds) == 34 and min(kinds.values()) >= 14
    for one, other in zip(small, real, strict=True):
        options = [
            re.findall(r"(?:stride|dilation|bias|dim|mode|causal|layers)=\S+", task.text) for task in (one, other)
        ]
        assert options[0] == options[1]


def test_architectures_are_the_same_networks_at_small_and_real_sizes() -> None:
    small, real = (list(architectures.Architectures().tasks(size)) for size in (False, True))
    assert [task.name for task in small] == [task.name for task in real]
    assert len({task.name for task in real}) == len({task.text for task in real}) == architectures.COUNT
    assert list(architectures.Architectures().tasks(True)) == real, "drawn from the number alone"
    kinds = collections.Counter(task.family.rpartition("_")[0] for task in real)
    assert len(kinds) == 32 and min(kinds.values()) >= 7
    assert 0.2 < sum("self.eval()" in task.text for task in real) / len(real) < 0.4
    for one, other in zip(small, real, strict=True):
        assert re.sub(r"\d+", "N", one.text) == re.sub(r"\d+", "N", other.text), "only sizes differ"


def made(task: CorpusTask) -> tuple[torch.nn.Module, list[torch.Tensor]]:
    space: dict[str, Any] = {}
    exec(task.text, space)
    return space["Model"]().requires_grad_(False), space["get_inputs"]()


ONE_OF_EACH_KIND = range(len(architectures.KINDS))


def test_an_architecture_of_each_kind_has_finite_results() -> None:
    for number in ONE_OF_EACH_KIND:
        task = architectures.written(number, False)
        torch.manual_seed(number)
        model, inputs = made(task)
        for result in tree_leaves(model(*inputs)):
            assert result.isfinite().all() and (result.numel() == 1 or result.float().std() > 0), task.name


def test_an_architecture_of_each_kind_is_within_its_limits_at_real_sizes() -> None:
    for number in ONE_OF_EACH_KIND:
        task = architectures.written(number, True)
        with torch.device("meta"), FlopCounterMode(display=False) as counted:
            model, inputs = made(task)
            model(*inputs)
        assert counted.get_total_flops() <= 2 * Network.operations[True], task.name
        assert sum(weight.numel() for weight in model.parameters()) <= WEIGHTS, task.name


def test_blocks_stand_behind_those_that_they_call() -> None:
    names = [text.partition("(")[0] for text in used_blocks("ConformerBlock(8, 2, 3, 2)")]
    assert names == ["class MLP", "class Attention", "class ConvModule", "class ConformerBlock"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@needs_packages
@pytest.mark.parametrize("name", CORPORA)
def test_a_fixed_sample_is_verified(name: str, tmp_path: Path) -> None:
    summary = judged(name, *SAMPLES[name], "--seed", "5", "--out", tmp_path / "out")
    assert summary["judged"] == summary["tasks"] and summary["verified"] > 0.6 * summary["tasks"]
    assert not summary["engine_faults"] and not summary["failures"], summary


def judged(*options: object) -> dict[str, Any]:
    command = [PYTHON, "-m", "benchmarks.corpora", *options, "--workers", "1", "--json"]
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr[-3000:]
    return dict(json.loads(done.stdout))


@pytest.mark.exhaustive
@pytest.mark.timeout(0)
@needs_packages
@pytest.mark.parametrize("name", CORPORA)
def test_all_tasks_are_verified(name: str) -> None:
    """Goes on where it stopped: rows are in out/corpora."""
    command = [PYTHON, "-m", "benchmarks.corpora", name, "--json"]
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]


@pytest.mark.parametrize("command", ["benchmarks.corpora modules --sample 1", "benchmarks fuzz --seconds 1"])
def test_a_folder_that_cannot_be_written_is_one_line(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command.split(), "--out", "/proc/nothing"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2 and "cannot write to /proc/nothing" in done.stderr and "Traceback" not in done.stderr


def test_a_benchmark_without_its_packages_names_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'hypothesis'", name="hypothesis")

    monkeypatch.setattr(registry, "load", missing)
    assert benchmark(["fuzz"]) == 2
    assert "hypothesis is not installed" in capsys.readouterr().err
