"""A whole evaluation on simulated targets: a right program, a wrong one, and machine code with a fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.simulated.plant import FaultySubject
from hipwright.api.task_engine import task_engine
from hipwright.events import silent
from hipwright.machine import machine
from hipwright.records import Program

TASK = Path(__file__).parents[2] / "benchmarks/tasks/rmsnorm_bf16.py"
TARGETS = ("gfx942@sim", "gfx1100@sim")


@pytest.mark.slow
def test_an_evaluation() -> None:
    with machine(TARGETS, unsafe=False) as made, made.open(TASK, seed=3, listener=silent) as bench:
        program = task_engine(bench).default()
        found = bench.evaluator.evaluate(program, gate="fast")
        assert found.passed, found.message
        for name in TARGETS:
            result = found.targets[name]
            assert result.verdict is not None and result.verdict.passed
            assert result.build is not None and result.build.kernels[0].vgpr > 0
            assert "says nothing about a GPU" in result.why_none["timing"]
        wrong = Program(text=program.text.replace("rsqrtf(", "sqrtf("), knobs=program.knobs)
        assert wrong.text != program.text
        refused = bench.evaluator.evaluate(wrong, gate="fast")
        assert refused.status == "wrong_value" and refused.fault == "candidate"
        subject = FaultySubject.of(bench.evaluator, program, TARGETS[0])
        lines = subject.assembly.split("\n")
        at = next(i for i, line in enumerate(lines) if "s_waitcnt" in line and "vmcnt" in line)
        lines[at] = "\ts_nop 0"
        verdict = subject.judge("\n".join(lines), "fast")
        assert "before the wait for the load of assembly line" in verdict.message
