"""Verdicts on programs of the audit's corpus and their evidence; tests/audit runs the whole corpus."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hipwright.audit.cases import CORPUS, select
from hipwright.program import parse
from hipwright.records import Build, Program, TolerancePolicy, Verdict
from hipwright.sandbox import Zygote
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.cpu import build as cpu
from hipwright.verify import Oracle, verify_cpu

ROOT = CORPUS / "program"
CASES = {case.name: case for case in select(form="program")}
HONEST = ("row_sum_wave", "batch_norm_columns", "mean_square_atomic")
BROKEN = ("missing_barrier", "tail_read", "decoy", "wave32")


def build(text: str, cache: BuildCache, *, other_wave: bool = False) -> dict[tuple[int, bool], Build]:
    parsed = parse(text)
    kinds = [(64, True), (64, False), *([(32, True)] if other_wave else [])]
    with ThreadPoolExecutor(2) as pool:
        made = pool.map(lambda k: cpu.build(parsed.hip, parsed.defines(), wave=k[0], checked=k[1], cache=cache), kinds)
        return dict(zip(kinds, made, strict=True))


def verify(kind: str, name: str, tasks: Any, candidates: Zygote, cache: BuildCache) -> Verdict:
    text = (ROOT / kind / f"{name}.py").read_text()
    builds = build(text, cache, other_wave=kind == "honest")
    assert all(b.ok for b in builds.values()), [b.log for b in builds.values()]
    oracle = tasks.oracle(CASES[name].task)
    return verify_cpu(parse(text), Program(text=text), builds, oracle, candidates, waves=(64,), cache=cache)


@pytest.mark.parametrize("name", HONEST)
def test_honest_programs_pass(name: str, tasks: Any, candidates: Zygote, cache: BuildCache) -> None:
    verdict = verify("honest", name, tasks, candidates, cache)
    assert verdict.passed, verdict.message
    assert verdict.worst_error is not None and verdict.worst_error <= 1.0
    assert len(verdict.workloads) >= 2 and "given" in verdict.workloads
    _main, *others = verdict.checks["errors"].values()
    assert any("scales" in families for families in others), "an end of a buffer may be reached at these shapes alone"
    assert verdict.checks["noop_right"] is False and verdict.checks["second_call"] == "pass"


@pytest.mark.parametrize("name", BROKEN)
def test_wrong_programs_are_refused(name: str, tasks: Any, candidates: Zygote, cache: BuildCache) -> None:
    verdict = verify("broken", name, tasks, candidates, cache)
    assert verdict.status in CASES[name].statuses, verdict.message
    assert CASES[name].message_matches(verdict.message)
    if verdict.passed:
        assert verdict.checks["noop_right"] is True
        return
    assert verdict.fault == "candidate" and verdict.evidence
    assert verdict.evidence["workload"] and verdict.evidence["family"]


# ---------------------------------------------------------------- evidence


def run(text: str, task: str, tasks: Any, candidates: Zygote, cache: BuildCache, **options: Any) -> Verdict:
    oracle = options.pop("oracle", None) or tasks.oracle(task)
    return verify_cpu(parse(text), Program(text=text), build(text, cache), oracle, candidates, cache=cache, **options)


def honest(name: str) -> str:
    return (ROOT / "honest" / f"{name}.py").read_text()


def test_evidence_names_the_element_the_kernel_and_the_thread(
    tasks: Any, candidates: Zygote, cache: BuildCache
) -> None:
    wrong = verify("broken", "wave32", tasks, candidates, cache).evidence
    assert {"output", "index", "expected", "got", "tolerance", "workload", "family", "seed", "launches"} <= set(wrong)
    assert wrong["launches"][0]["kernel"] == "row_sum"
    bounds = verify("broken", "tail_read", tasks, candidates, cache).evidence
    assert (bounds["kernel"], bounds["argument"], bounds["kind"]) == ("row_sum", "x", "read")
    assert bounds["element"] == bounds["elements"][0] * bounds["elements"][1]


def test_a_program_may_decline_shapes_but_not_its_own(tasks: Any, candidates: Zygote, cache: BuildCache) -> None:
    text = honest("scale_bias_guarded")
    only = text.replace("    x = x.contiguous()\n", "    assert x.shape[0] == 24\n    x = x.contiguous()\n")
    verdict = run(only, "scale_bias", tasks, candidates, cache)
    assert verdict.passed and verdict.workloads == ("given",) and len(verdict.skipped) >= 2
    never = text.replace("    x = x.contiguous()\n", "    assert x.shape[0] == 25\n    x = x.contiguous()\n")
    verdict = run(never, "scale_bias", tasks, candidates, cache)
    assert verdict.status == "launch_error" and "own inputs" in verdict.message


def test_a_program_for_one_size_is_verified_at_shapes_that_keep_it(
    tasks: Any, candidates: Zygote, cache: BuildCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    oracle = Oracle(tasks.handle(CORPUS / "tasks" / "row_sum.py"), seed=20, full_elements=10)
    text = honest("row_sum_wave")
    narrow = text.replace("    x = x.contiguous()\n", "    assert x.shape[1] == 300\n    x = x.contiguous()\n")
    verdict = run(narrow, "row_sum", tasks, candidates, cache, oracle=oracle)
    assert verdict.passed and len(verdict.workloads) >= 3, verdict.message
    assert all(name.endswith("x300") for name in verdict.workloads) and "given" in verdict.skipped
    wrong = narrow.replace("y[wave] = acc", "y[wave] = rows == 1 ? 0.0f : acc")
    verdict = run(wrong, "row_sum", tasks, candidates, cache, oracle=oracle)
    assert (verdict.status, verdict.workload) == ("wrong_value", "1x300"), "a shape beside the main workload"
    both = narrow.replace("== 300", "== 300 and x.shape[0] == 33")
    verdict = run(both, "row_sum", tasks, candidates, cache, oracle=oracle)
    assert verdict.passed and verdict.workloads == ("given",), "no smaller shape is claimed"
    monkeypatch.setattr("hipwright.verify.oracle.LAST_ELEMENTS", 10)
    verdict = run(both, "row_sum", tasks, candidates, cache, oracle=oracle)
    assert verdict.status == "unscorable" and "claims none of the shapes" in verdict.message


def test_a_program_may_decline_strided_inputs(tasks: Any, candidates: Zygote, cache: BuildCache) -> None:
    text = (ROOT / "broken" / "assumes_contiguous.py").read_text()
    verdict = run(text.replace("    y =", "    assert x.is_contiguous()\n    y ="), "row_sum", tasks, candidates, cache)
    assert verdict.passed and any("strided" in name for name in verdict.skipped)


def test_the_other_wave_is_reported_and_does_not_fail(tasks: Any, candidates: Zygote, cache: BuildCache) -> None:
    text = honest("masked_logsumexp")  # one wave a block, which 64 threads are not where a wave has 32
    builds = build(text, cache, other_wave=True)
    oracle = tasks.oracle("masked_fill")
    verdict = verify_cpu(parse(text), Program(text=text), builds, oracle, candidates, waves=(64,), cache=cache)
    assert verdict.passed and verdict.checks["wave32"].startswith("fail")


def test_the_other_wave_is_not_run_where_it_takes_long(
    tasks: Any, candidates: Zygote, cache: BuildCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hipwright.verify.cpu.cpu_verification.OTHER_WAVE_SECONDS", 0.0)
    text = honest("masked_logsumexp")
    builds, oracle = build(text, cache, other_wave=True), tasks.oracle("masked_fill")
    verdict = verify_cpu(parse(text), Program(text=text), builds, oracle, candidates, waves=(64,), cache=cache)
    assert verdict.passed and verdict.checks["wave32"].startswith("not run: its kernels take about")


def test_both_waves_can_be_required(tasks: Any, candidates: Zygote, cache: BuildCache) -> None:
    text = honest("row_sum_wave")
    kinds = [(wave, checked) for wave in (64, 32) for checked in (True, False)]
    builds = {k: cpu.build(parse(text).hip, {}, wave=k[0], checked=k[1], cache=cache) for k in kinds}
    oracle = tasks.oracle("row_sum")
    verdict = verify_cpu(parse(text), Program(text=text), builds, oracle, candidates, waves=(64, 32), cache=cache)
    assert verdict.passed and verdict.checks["waves"] == [64, 32]


def test_kernelbench_mode_lets_through_what_strict_refuses(tasks: Any, candidates: Zygote, cache: BuildCache) -> None:
    text = (ROOT / "broken" / "skips_parameters.py").read_text()
    loose = Oracle(tasks.oracle("scale_bias").handle, seed=1, policy=TolerancePolicy(mode="kernelbench"))
    assert run(text, "scale_bias", tasks, candidates, cache, oracle=loose).passed
    assert not run(text, "scale_bias", tasks, candidates, cache).passed


def test_the_second_candidate_of_a_task_is_fast(tasks: Any, candidates: Zygote, cache: BuildCache) -> None:
    text = honest("scale_bias_guarded")
    run(text, "scale_bias", tasks, candidates, cache)
    made: list[str] = []
    tasks.oracle("scale_bias").listener = lambda kind, data: made.append(kind)
    start = time.process_time()
    verdict = run(text, "scale_bias", tasks, candidates, cache)
    assert verdict.passed and "case" not in made
    assert sum(verdict.checks["seconds"].values()) < 8, "an order of magnitude above a quiet machine"
    assert time.process_time() - start < 4
