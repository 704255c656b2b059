"""CUDA and HIP files become programs that verify; what cannot is refused with its line and reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hipwright.errors import ProgramError
from hipwright.program import parse
from hipwright.program.standalone import StandaloneSource, read_source
from hipwright.records import Verdict
from hipwright.sandbox import Zygote
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.cpu import build as cpu
from hipwright.verify import verify_cpu
from tests.starts import REFUSED, ROOT, VERIFIED, reason_of, task_of

QUICK = ("cuda/softmax.cu", "cuda/bias_silu.cu", "hip/layernorm.hip")


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def test_there_are_enough_files_of_both_dialects() -> None:
    kinds = [path.suffix for path in (*VERIFIED, *REFUSED)]
    assert kinds.count(".cu") >= 20 and kinds.count(".hip") >= 10 and len(VERIFIED) >= 25


def judged(
    path: Path, waves: tuple[int, ...], tasks: Any, candidates: Zygote, cache: BuildCache
) -> tuple[StandaloneSource, Verdict]:
    """The file as a program, and its verdict on the cpu target in waves of these sizes."""
    task = task_of(path)
    source = read_source(path.name, path.read_text(), task.read_text())
    parsed = parse(source.program.text)
    builds = {
        (wave, checked): cpu.build(parsed.hip, parsed.defines(), wave=wave, checked=checked, cache=cache)
        for wave in waves
        for checked in (True, False)
    }
    assert all(build.ok for build in builds.values()), [build.log for build in builds.values()]
    oracle = tasks.oracle(task)
    return source, verify_cpu(parsed, source.program, builds, oracle, candidates, waves=waves, cache=cache)


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=() if name_of(p) in QUICK else pytest.mark.slow, id=name_of(p)) for p in VERIFIED],
)
@pytest.mark.matrix(keep=8)
def test_files_become_programs_that_verify(path: Path, tasks: Any, candidates: Zygote, cache: BuildCache) -> None:
    source, verdict = judged(path, (32, 64) if path.suffix == ".cu" else (64,), tasks, candidates, cache)
    assert verdict.passed, f"{verdict.status}: {verdict.message}\n{source.program.text}"
    assert "given" in verdict.workloads and verdict.checks["noop_right"] is False


@pytest.mark.slow
def test_a_hip_file_for_waves_of_32_is_right_in_those_wrong_in_others_and_its_lines_are_named(
    tasks: Any, candidates: Zygote, cache: BuildCache
) -> None:
    path = ROOT / "waves" / "l2_rows.hip"
    source, right = judged(path, (32,), tasks, candidates, cache)
    assert right.passed, right.message
    _, wrong = judged(path, (64,), tasks, candidates, cache)
    assert wrong.status == "wrong_value"
    assert [one.line for one in source.waves] == [5, 9, 10]
    assert "line 10: an operation of one warp (s = __shfl(s, 0);): spans the target's whole wave" in source.notes[-1]


@pytest.mark.parametrize("path", REFUSED, ids=name_of)
def test_what_is_not_understood_is_named_with_line_and_reason(path: Path) -> None:
    with pytest.raises(ProgramError) as refused:
        read_source(path.name, path.read_text(), task_of(path).read_text())
    assert refused.value.message == reason_of(path)
