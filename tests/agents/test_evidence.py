"""Evidence of failures in prompts: sufficient for a repair, without expected outputs or data of this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from author_tools import evaluator, failed, passed, program
from msgspec.structs import replace

from hipwright.agents.evidence import clean, deciding_verdict, evidence, figures, reason
from hipwright.agents.judge import bottleneck, read_bottleneck
from hipwright.agents.lessons import kind_of
from hipwright.audit.cases import CORPUS
from hipwright.evaluation.pipeline import Evaluator
from hipwright.records import Build, KernelResources, Program, TargetResult, Timing, Versus

BROKEN = CORPUS / "program" / "broken"
ROW_SUM = CORPUS / "tasks" / "row_sum.py"


@pytest.fixture(scope="module")
def row_sum() -> Iterator[Evaluator]:
    with evaluator(ROW_SUM) as opened:
        yield opened


def told(judge: Evaluator, text: str) -> str:
    written = Program(text=text)
    found = judge.evaluate(written)
    assert not found.passed
    return evidence(found, written)


# ---------------------------------------------------------------- real verdicts


def test_a_stray_read_names_the_access_the_element_and_the_line(row_sum: Evaluator) -> None:
    text = told(row_sum, (BROKEN / "tail_read.py").read_text())
    assert "verdict: out_of_bounds" in text and "read of x[" in text and "thread (32, 0, 0)" in text
    assert "of argument x (read); the tensor has shape [33, 113]" in text
    assert "line 9 is `float v = x[r * cols + j];`" in text and ", line 9" in text


def test_a_race_names_both_lines_of_the_file(row_sum: Evaluator) -> None:
    text = told(row_sum, (BROKEN / "missing_barrier.py").read_text())
    assert "data race" in text and "line 12 is `if (t < d) part[t] += part[t + d];`" in text


def test_compiler_errors_come_with_their_source_line(row_sum: Evaluator) -> None:
    broken = (BROKEN / "tail_read.py").read_text().replace("blockDim.x", "blokDim.x").replace("0.0f;", "zero;")
    text = told(row_sum, broken)
    assert "line 5: use of undeclared identifier 'blokDim'" in text and "`int r = blockIdx.x * blokDim.x" in text
    assert "line 7: use of undeclared identifier 'zero'" in text and "kernel.hip" not in text


def test_a_wrong_value_shows_one_element_and_no_seed(row_sum: Evaluator) -> None:
    right = (BROKEN / "tail_read.py").read_text().replace("j <= cols", "j < cols")
    written = Program(text=right.replace("y[r] = acc", "y[r] = acc + 1.0f"))
    found = row_sum.evaluate(written)
    text = evidence(found, written)
    _, verdict = deciding_verdict(found)
    assert verdict is not None and verdict.status == "wrong_value"
    assert text.count("expected ") == 1 and "- output[" in text and "float32[33, 113]" in text
    assert "row_sum[1x1x1, 64x1x1]" in text
    assert str(verdict.evidence["seed"]) not in text


def test_a_plan_that_does_not_parse_names_its_line(row_sum: Evaluator) -> None:
    text = told(row_sum, (BROKEN / "tail_read.py").read_text().replace("return y", "return y.item()"))
    assert "verdict: parse_error" in text and ".item() is refused" in text and "is `return y.item()`" in text


# ---------------------------------------------------------------- made by hand


def test_addresses_and_paths_of_this_machine_stay_out() -> None:
    written = program("a")
    message = "kernel k: read at 0x7f4ede55bff4 in /home/me/.cache/hipwright/x.so; a/b and x / y stay"
    kept = {"address": "0x7f4ede55bff4", "seed": 1234567, "argument": "x", "element": 9, "elements": [3, 3]}
    text = evidence(failed(written, "out_of_bounds", message, evidence=kept, workload="given"), written)
    assert "0x7f" not in text and "/home" not in text and ".cache" not in text and "1234567" not in text
    assert "an address" in text and "x.so" in text and "a/b and x / y stay" in text
    assert "element 9 of argument x" in text


def test_long_messages_are_cut_and_lines_joined() -> None:
    assert clean("a\n  b") == "a b" and len(clean("x" * 5000)) == 600


def test_what_is_said_does_not_depend_on_the_order_of_targets() -> None:
    written = program("a")
    found = failed(written)
    extra = {"gfx942": TargetResult(target="gfx942")}
    assert evidence(replace(found, targets={**extra, **found.targets}), written) == evidence(found, written)


def test_family_worst_error_and_coverage_are_told() -> None:
    written = program("a")
    kw = {"family": "large", "workload": "given", "worst_error": 31.0, "checks": {"families": ["given", "normal"]}}
    text = evidence(failed(written, **kw), written)
    assert "'large'" in text and "exp and sums of squares overflow" in text
    assert "worst error: 31 times the tolerance" in text and "passed before: given, normal" in text
    assert "100% of the reference's modelled work" in evidence(passed(written, 5.0), written)


def test_figures_name_estimates_as_estimates_and_devices_by_name() -> None:
    written = program("a")
    text = figures(passed(written, 5.0))
    assert "5 us by static estimate" in text and "18 VGPRs" in text and "30 valu" in text and "memory-bound" in text
    versus = Versus(baseline="eager", speedup=1.5, interval=(1.4, 1.6), samples_ms=(1.0,), baseline_ms=(1.5,), pairs=1)
    timing = Timing(device="NVIDIA H200", architecture="sm_90", median_ms=0.25, versus={"eager": versus})
    found = replace(passed(written, 5.0), targets={"cuda": TargetResult(target="cuda", timing=timing)})
    assert "HIP on NVIDIA H200: 0.25 ms, 1.50× (1.40 to 1.60) against eager" in figures(found)


def test_a_reason_is_one_short_line() -> None:
    line = reason(failed(program("a"), message="output[3] is 1,\nexpected 2 (on 3x4/given)"))
    assert line == "wrong_value: output[3] is 1, expected 2"


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        ("parse_error", "line 3: x", "form"),
        ("compile_error", "gfx942: error: use of undeclared identifier 'a'", "types"),
        ("nondeterministic", "kernel k: data race: ...", "race"),
        ("launch_error", "kernel k: barrier divergence", "barrier"),
        ("launch_error", "0 static + 65792 dynamic LDS bytes; the limit is 65536", "lds"),
        ("out_of_bounds", "x", "bounds"),
        ("wrong_value", "x; the element is uninitialised: no kernel wrote it", "unwritten"),
        ("wrong_value", "is nan: NaN and Inf must stand where the reference has them", "overflow"),
        ("wrong_value", "is 1, expected 2", "value"),
        ("timeout", "x", "hang"),
        ("degenerate", "x", "other"),
    ],
)
def test_failures_are_grouped_by_what_went_wrong(status: str, message: str, kind: str) -> None:
    assert kind_of(failed(program("a"), status, message)) == kind


# ---------------------------------------------------------------- the judge

ROW = {
    "kind": "kernel",
    "name": "scale",
    "seconds": 50e-6,
    "bytes": 1e6,
    "reread_bytes": 0.0,
    "memory_seconds": 40e-6,
    "issue_seconds": 10e-6,
    "bandwidth_efficiency": 0.3,
    "resident_waves_per_cu": 32,
    "bound": "memory",
}
WIDE = KernelResources(name="scale", occupancy=8, widest_vmem_bytes=16, instructions={"valu": 90, "trans": 60})
LIBRARY = {"kind": "library", "name": "aten.mm.default", "seconds": 90e-6, "bytes": 1.0, "bound": "compute"}


@pytest.mark.parametrize(
    ("name", "row", "kernel", "says"),
    [
        ("narrow_access", {}, replace(WIDE, widest_vmem_bytes=4), "4 bytes a lane"),
        ("occupancy", {}, replace(WIDE, occupancy=2, vgpr=200), "200 VGPRs"),
        ("parallelism", {}, WIDE, "32 waves a CU"),
        ("bandwidth", {"bandwidth_efficiency": 1.0}, WIDE, "memory roofline"),
        ("rereads", {"reread_bytes": 9e5}, WIDE, "9e+05 bytes again"),
        ("spills", {}, replace(WIDE, spills=12, scratch_bytes=48), "12 registers"),
        ("launch", {"bound": "launch", "seconds": 4e-6}, WIDE, "shorter than its launch"),
        ("issue_trans", {"bound": "compute"}, WIDE, "73% of the cycles are trans"),
    ],
)
def test_the_judge_names_one_bottleneck(name: str, row: dict[str, object], kernel: KernelResources, says: str) -> None:
    found = bottleneck(passed(program("a"), 50.0, detail=({**ROW, **row},), kernel=kernel))
    assert found is not None and found.name == name and says in found.what and found.advice


def test_the_judge_looks_at_the_heaviest_part() -> None:
    found = bottleneck(passed(program("a"), 50.0, detail=(ROW, LIBRARY)))
    assert found is not None and found.name == "library" and "aten.mm.default takes 64%" in found.what
    tiny = {**ROW, "seconds": 3.2e-6}
    found = bottleneck(passed(program("a"), 9.6, detail=(tiny, tiny, tiny)))
    assert found is not None and found.name == "launches" and "3 launches" in found.what


def test_the_judge_reads_a_timing_where_there_is_no_estimate() -> None:
    kernel = replace(WIDE, widest_vmem_bytes=4)
    build = Build(target="cuda", ok=True, kernels=(kernel,))
    timing = Timing(device="NVIDIA H200", architecture="sm_90", median_ms=1.0, bound="memory", roofline_fraction=0.4)
    for change, name in (
        ({}, "narrow_access"),
        ({"own_time": 0.1}, "library"),
        ({"roofline_fraction": 0.95}, "bandwidth"),
    ):
        result = TargetResult(target="cuda", build=build, timing=replace(timing, **change))
        found = bottleneck(replace(passed(program("a"), 5.0), targets={"cuda": result}))
        assert found is not None and found.name == name


def test_the_judge_has_nothing_to_say_of_a_failure_or_without_figures() -> None:
    assert bottleneck(failed(program("a"))) is None
    assert bottleneck(replace(passed(program("a"), 5.0), targets={})) is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"name": "LDS conflicts", "what": "stride 32", "advice": "pad"}', "LDS_conflicts"),
        ('Sure:\n```json\n{"name": "a", "what": "b", "advice": "c"}\n```', "a"),
        ('[{"name": "a", "what": "b", "advice": "c"}, {"name": "d", "what": "e", "advice": "f"}]', None),
        ('{"name": "a", "what": "", "advice": "c"}', None),
        ("memory bound", None),
        ("{" * 5000, None),
    ],
)
def test_a_models_judgement_counts_when_it_names_one_thing(text: str, name: str | None) -> None:
    found = read_bottleneck(text)
    assert (found.name if found else None) == name
