"""CUDA and HIP files become programs that verify; what cannot is refused with its line and reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hipwright.errors import ProgramError
from hipwright.program import parse
from hipwright.program.standalone import read_source
from hipwright.sandbox import Zygote
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.cpu import build as cpu
from hipwright.verify import verify_cpu
from tests.starts import REFUSED, VERIFIED, reason_of, task_of

QUICK = ("cuda/softmax.cu", "cuda/bias_silu.cu", "hip/layernorm.hip")


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def test_there_are_enough_files_of_both_dialects() -> None:
    kinds = [path.suffix for path in (*VERIFIED, *REFUSED)]
    assert kinds.count(".cu") >= 20 and kinds.count(".hip") >= 10 and len(VERIFIED) >= 25


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=() if name_of(p) in QUICK else pytest.mark.slow, id=name_of(p)) for p in VERIFIED],
)
@pytest.mark.matrix(keep=8)
def test_files_become_programs_that_verify(path: Path, tasks: Any, candidates: Zygote, cache: BuildCache) -> None:
    task = task_of(path)
    source = read_source(path.name, path.read_text(), task.read_text())
    parsed = parse(source.program.text)
    waves = (32, 64) if source.dialect == "cuda" else (64,)
    builds = {
        (wave, checked): cpu.build(parsed.hip, parsed.defines(), wave=wave, checked=checked, cache=cache)
        for wave in waves
        for checked in (True, False)
    }
    assert all(build.ok for build in builds.values()), [build.log for build in builds.values()]
    oracle = tasks.oracle(task)
    verdict = verify_cpu(parsed, source.program, builds, oracle, candidates, waves=waves, cache=cache)
    assert verdict.passed, f"{verdict.status}: {verdict.message}\n{source.program.text}"
    assert "given" in verdict.workloads and verdict.checks["noop_right"] is False


@pytest.mark.parametrize("path", REFUSED, ids=name_of)
def test_what_is_not_understood_is_named_with_line_and_reason(path: Path) -> None:
    with pytest.raises(ProgramError) as refused:
        read_source(path.name, path.read_text(), task_of(path).read_text())
    assert refused.value.message == reason_of(path)
