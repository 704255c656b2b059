"""Of a program whose calls take long some run beside others, and the verdict is the one that they give in a row."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from hipwright.program import parse
from hipwright.records import Program, Verdict
from hipwright.sandbox import Zygote
from hipwright.toolchain.cache import BuildCache
from hipwright.verify import verify_cpu
from hipwright.verify.candidate import LAUNCH_LIMIT_S
from hipwright.verify.cpu import beside, cases, cpu_verification
from hipwright.verify.cpu.beside import CallsBeside
from tests.verify.test_programs import CASES, ROOT, build


@pytest.fixture
def long_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every call counts as long, and another processor is at hand. Returns the stages that ran in a thread beside."""
    monkeypatch.setattr(cpu_verification, "LONG_CALL_S", 0.0)
    monkeypatch.setattr(cpu_verification, "another_processor", lambda: True)
    ran: list[str] = []
    for name in ("interleaved", "calls_alone"):
        inner = getattr(cpu_verification.CpuVerification, name)

        def noted(self: Any, *args: Any, inner: Any = inner, name: str = name) -> Any:
            ran.append(f"{name} {threading.current_thread().name.split('_')[0]}")
            return inner(self, *args)

        monkeypatch.setattr(cpu_verification.CpuVerification, name, noted)
    return ran


def verdict_of(path: str, task: str, tasks: Any, candidates: Zygote, cache: BuildCache) -> Verdict:
    text = (ROOT / path).read_text()
    return verify_cpu(parse(text), Program(text=text), build(text, cache), tasks.oracle(task), candidates, cache=cache)


def told(verdict: Verdict) -> dict[str, Any]:
    return {key: value for key, value in verdict.checks.items() if key != "seconds"} | {
        "verdict": (verdict.status, verdict.message, verdict.workload, verdict.family, verdict.worst_error),
        "skipped": verdict.skipped,
    }


@pytest.mark.parametrize(
    "path",
    ["honest/row_sum_wave", "honest/mean_square_atomic", "broken/missing_barrier", "broken/wave32", "broken/decoy"],
)
def test_the_verdict_is_that_of_calls_in_a_row(
    path: str, tasks: Any, candidates: Zygote, cache: BuildCache, request: pytest.FixtureRequest
) -> None:
    arguments = (f"{path}.py", CASES[path.partition("/")[2]].task, tasks, candidates, cache)
    in_a_row = told(verdict_of(*arguments))
    ran = request.getfixturevalue("long_calls")
    assert told(verdict_of(*arguments)) == in_a_row
    if path.startswith("honest"):
        assert sorted(ran) == ["calls_alone beside", "interleaved beside"]


def test_calls_beside_refuse_what_they_refuse_in_a_row(
    tasks: Any, candidates: Zygote, cache: BuildCache, long_calls: list[str]
) -> None:
    name = "workspace_tail_cache"
    verdict = verdict_of(f"hostile/{name}.py", CASES[name].task, tasks, candidates, cache)
    assert verdict.status in CASES[name].statuses and verdict.message.startswith("in a later call")
    assert "calls_alone beside" in long_calls


def test_a_process_may_take_as_long_as_its_launches_may(
    tasks: Any, candidates: Zygote, cache: BuildCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[float, float]] = []
    inner = cases.CandidateSession

    def noted(*args: Any, **options: Any) -> Any:
        given.append((options["launch_limit_s"], options["limits"].cpu_s))
        return inner(*args, **options)

    monkeypatch.setattr(cases, "CandidateSession", noted)
    verdict = verdict_of("honest/row_sum_wave.py", "row_sum", tasks, candidates, cache)
    assert verdict.passed and len({launch for launch, _ in given}) == 2, "own shapes have longer launches"
    assert all(cpu == 60.0 * launch / LAUNCH_LIMIT_S for launch, cpu in given)


def test_what_began_earlier_decides_and_the_rest_stops() -> None:
    order: list[str] = []
    with CallsBeside() as calls:
        calls.begin(lambda: order.append("first"), lambda _: order.append("first is judged"))
        calls.begin(lambda: 1 / 0, lambda _: order.append("never"))
        calls.begin(lambda: order.append("third"), lambda _: order.append("never"))
        with pytest.raises(ZeroDivisionError):
            calls.judge_begun()
    assert calls.ended and "never" not in order and order.index("first") < order.index("first is judged")


def test_one_processor_makes_calls_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {3})
    assert not beside.another_processor()
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 3})
    assert beside.another_processor()
