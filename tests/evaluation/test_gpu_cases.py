"""Cases of a GPU's task, made beside a build: in time, and without holding up another task's timing."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from hipwright.evaluation import Evaluator
from hipwright.program import parse
from hipwright.records import Build
from hipwright.verify import Oracle
from tests.evaluation.test_gpu_task import Processor, bench, program  # noqa: F401

pytestmark = pytest.mark.slow


def test_cases_are_made_while_a_program_is_built(
    bench: Evaluator,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, build, waited = threading.Event(), Processor.build, []
    oracle = Oracle(bench.handle, seed=11, listener=lambda kind, data: made.set(), full_elements=1)

    def slow(self: Processor, hip: str, defines: dict[str, int]) -> Build:
        waited.append(made.wait(60))
        return build(self, hip, defines)

    monkeypatch.setattr(Processor, "build", slow)
    found = bench.evaluate(program("row_sum_wave"), oracle, timed=False)
    assert found.passed and waited == [True]
    verdict = found.targets["cuda"].verdict
    assert verdict is not None and set(verdict.checks["large"]) == {"given/given", "given/normal"}


def test_a_verification_waits_for_its_cases_outside_the_timing_lock(
    bench: Evaluator,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Cases may give way to a timing while they hold the process that the verification needs."""
    task, oracle, going = bench.gpus["cuda"], Oracle(bench.handle, seed=12), threading.Event()
    one = program("row_sum_wave")
    parsed = parse(one.text)
    build = task.gpu.build(parsed.hip, dict(parsed.defines(one.knobs)))
    monkeypatch.setattr(task, "_expect_own", lambda oracle: going.wait(60))
    task.make_cases(oracle)
    with ThreadPoolExecutor(1) as pool:
        verdict = pool.submit(task.verify, parsed, one, build, oracle)
        try:
            for _ in range(20):
                with task.gpu.timing_lock.exclusive():
                    time.sleep(0.01)
            assert not verdict.done()
        finally:
            going.set()
        assert verdict.result().passed
