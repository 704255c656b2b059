"""Verdicts of programs built for the cpu target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hipwright.program import parse
from hipwright.records import Program, Verdict
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.cpu import build as cpu
from hipwright.verify import Oracle
from hipwright.verify.gpu.client import CandidateWorker
from hipwright.verify.gpu.large_shapes import TimedInputs
from hipwright.verify.gpu.verifier import verify_gpu, verify_timed
from hipwright.verify.verification import UNCLAIMED

ROOT = Path(__file__).parents[2] / "programs"


def text_of(kind: str, name: str) -> str:
    return (ROOT / kind / f"{name}.py").read_text()


def built(text: str, cache: BuildCache) -> Any:
    parsed = parse(text)
    build = cpu.build(parsed.hip, parsed.defines(), wave=64, checked=False, cache=cache)
    assert build.ok, build.log
    return parsed, Program(text=text), build


def verdict_of(text: str, oracle: Oracle, worker: CandidateWorker, **more: Any) -> Verdict:
    parsed, program, build = built(text, worker.cache)
    return verify_gpu(parsed, program, build, oracle, more.pop("reference", None), worker, **more)


def verdict_when_timed(text: str, oracle: Oracle, reference: Any, worker: CandidateWorker) -> Verdict:
    """The verdict of the fast gate on a program that supports only the task's own large shape."""
    parsed, program, build = built(text, worker.cache)
    unclaimed = verify_gpu(parsed, program, build, oracle, None, worker, gate="fast")
    assert unclaimed.status == "unscorable" and unclaimed.evidence[UNCLAIMED]
    return verify_timed(
        parsed, program, build, oracle, reference, worker, TimedInputs(oracle.state, "timed", "given", 7, 2)
    )
