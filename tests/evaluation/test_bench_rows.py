"""Suites, rows that survive interruption, and figures with their denominators. Starts no process."""

from __future__ import annotations

import csv
import io

import pytest
from msgspec.structs import replace

from hipwright.errors import BadInput, DeviceError, TaskError
from hipwright.evaluation.bench import BenchRow, RowStore, Speedup, failed_row, missing_row, row_of, to_csv
from hipwright.evaluation.figures import figures, wilson, worst
from hipwright.evaluation.suite import find_tasks, match_candidates
from hipwright.records import Build, Evaluation, TargetResult, Timing, Verdict, Versus

# ---------------------------------------------------------------- suites


def suite(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("class Model: pass\n")
    return folder


def test_tasks_in_order_of_their_numbers(tmp_path):
    suite(tmp_path, "level2/1_B.py", "level1/10_A.py", "level1/2_C.py", "extra.py", "_helper.py", "level1/notes.txt")
    assert [task.name for task in find_tasks(tmp_path)] == ["extra", "level1/2_C", "level1/10_A", "level2/1_B"]
    only = find_tasks(tmp_path, 1)
    assert [(task.name, task.level, task.number) for task in only] == [("level1/2_C", 1, 2), ("level1/10_A", 1, 10)]
    inside = find_tasks(tmp_path / "level1")
    assert [(task.name, task.level) for task in inside] == [("2_C", 1), ("10_A", 1)], "the folder's own name counts"


def test_a_folder_of_families_is_its_families_tasks(tmp_path):
    suite(tmp_path, "vision/b.py", "speech/2_A.py", "speech/10_A.py", "__pycache__/b.py", ".git/c.py", "notes/a.txt")
    tasks = find_tasks(tmp_path)
    assert [task.name for task in tasks] == ["speech/2_A", "speech/10_A", "vision/b"]
    assert {task.level for task in tasks} == {None}
    suite(tmp_path, "level1/1_A.py")
    assert [task.name for task in find_tasks(tmp_path)] == ["level1/1_A"], "levels leave other folders out"
    suite(tmp_path, "top.py")
    assert [task.name for task in find_tasks(tmp_path)] == ["top", "level1/1_A"]


def test_missing_folders_and_levels_are_bad_input(tmp_path):
    with pytest.raises(BadInput, match="no such folder of tasks"):
        find_tasks(tmp_path / "none")
    with pytest.raises(BadInput, match="no tasks in"):
        find_tasks(tmp_path)
    suite(tmp_path, "level1/1_A.py")
    with pytest.raises(BadInput, match="no level 3") as caught:
        find_tasks(tmp_path, 3)
    assert "level1" in caught.value.hint


def test_candidates_by_stem_and_by_kernelbench_name(tmp_path):
    tasks = find_tasks(suite(tmp_path / "tasks", "level1/3_Matmul.py", "level2/3_Conv.py", "level1/4_Relu.py"))
    given = suite(
        tmp_path / "given",
        "level_1_problem_3_sample_1_kernel.py",
        "level_1_problem_3_sample_0_kernel.py",
        "level_2_problem_3_sample_0_kernel.py",
        "4_Relu.py",
        "level_9_problem_3_sample_0_kernel.py",
        "stranger.py",
    )
    found = match_candidates(given, tasks)
    assert {name: [(c.path.name[:24], c.sample) for c in files] for name, files in found.candidates.items()} == {
        "level1/3_Matmul": [("level_1_problem_3_sample", 0), ("level_1_problem_3_sample", 1)],
        "level2/3_Conv": [("level_2_problem_3_sample", 0)],
        "level1/4_Relu": [("4_Relu.py", 0)],
    }
    assert sorted(path.name for path in found.strangers) == ["level_9_problem_3_sample_0_kernel.py", "stranger.py"]


def test_candidates_in_level_folders_and_ambiguous_ones(tmp_path):
    tasks = find_tasks(suite(tmp_path / "tasks", "level1/1_Same.py", "level2/1_Same.py"))
    found = match_candidates(suite(tmp_path / "good", "level2/1_Same.py"), tasks)
    assert list(found.candidates) == ["level2/1_Same"]
    with pytest.raises(BadInput, match="could belong to"):
        match_candidates(suite(tmp_path / "bad", "1_Same.py"), tasks)
    with pytest.raises(BadInput, match="belongs to a task"):
        match_candidates(suite(tmp_path / "none", "other.py"), tasks)


# ---------------------------------------------------------------- rows


def timing(speedup: float = 2.0, half: float = 0.1) -> Timing:
    versus = Versus(
        baseline="eager",
        speedup=speedup,
        interval=(speedup - half, speedup + half),
        pairs=8,
        samples_ms=(1.0,) * 8,
        baseline_ms=(speedup,) * 8,
    )
    return Timing(
        device="H200",
        architecture="sm_90",
        median_ms=1.0,
        floor_ms=0.5,
        roofline_fraction=0.5,
        bound="memory",
        versus={"eager": versus},
    )


def evaluation(status="pass", fault=None, *, timed=True, built=True) -> Evaluation:
    verdict = Verdict(status=status, fault=fault, message="why", stage="verify")
    cuda = TargetResult(
        target="cuda",
        build=Build(target="cuda", ok=built),
        verdict=verdict,
        timing=timing() if timed and status == "pass" else None,
        why_none={} if timed else {"timing": "not asked"},
    )
    return Evaluation(task="t", program="p", status=status, fault=fault, targets={"cuda": cuda}, coverage=0.9)


def names(number=0):
    return {"key": f"k{number}", "task": f"t{number}", "candidate": "c.py"}


def test_a_timed_row_has_speedups_and_their_roofline():
    row = row_of(evaluation(), **names())
    assert (row.compiled, row.correct, row.timed_on, row.coverage) == (True, True, "cuda", 0.9)
    assert row.speedups["eager"] == Speedup(speedup=2.0, interval=(1.9, 2.1), baseline_ms=2.0, at_roofline=4.0)
    assert BenchRow.from_json(row.to_json()) == row


def test_rejected_rows_say_where_and_why():
    wrong = row_of(evaluation("wrong_value", "candidate"), **names())
    assert (wrong.compiled, wrong.correct, wrong.stage, wrong.timed_on) == (True, False, "verify", "")
    assert wrong.not_timed == "it was rejected before timing" and wrong.coverage is None
    assert not row_of(evaluation("compile_error", "candidate", built=False), **names()).compiled
    assert row_of(evaluation(timed=False), **names()).not_timed == "not asked"


def test_whose_fault_decides_whether_it_was_judged():
    assert not failed_row(DeviceError("gone"), **names()).judged
    assert not failed_row(TaskError("no Model"), **names()).judged
    assert failed_row(RuntimeError("bug"), **names()).fault == "service"
    assert missing_row(key="k", task="t").judged and not missing_row(key="k", task="t").compiled


def test_rows_survive_a_kill_and_machine_faults_are_tried_again(tmp_path):
    store = RowStore(tmp_path)
    store.add(row_of(evaluation(), **names(0)))
    store.add(failed_row(DeviceError("gone"), **names(1)))
    with (tmp_path / "rows.jsonl").open("ab") as stream:
        stream.write(b'{"key": "k2", "task": "torn')
    again = RowStore(tmp_path)
    assert set(again.rows) == {"k0", "k1"} and again.done("k0") is not None and again.done("k1") is None
    again.add(row_of(evaluation(), **names(1)))
    assert RowStore(tmp_path).done("k1").status == "pass", "the latest row of a key counts"
    with (tmp_path / "rows.jsonl").open("ab") as stream:
        stream.write(b'{"another": "version"}\n')
    assert set(RowStore(tmp_path).rows) == {"k0", "k1"}


def test_csv_has_a_line_a_row_and_no_formula():
    row = row_of(evaluation("wrong_value", "candidate"), key="k", task="=1+1", candidate="@x")
    table = list(csv.DictReader(io.StringIO(to_csv([row_of(evaluation(), **names()), row]))))
    assert float(table[0]["eager_speedup"]) == 2.0 and table[1]["eager_speedup"] == ""
    assert table[1]["task"] == "'=1+1" and table[1]["candidate"] == "'@x" and table[1]["correct"] == "false"


# ---------------------------------------------------------------- figures


def rows_of(*speedups):
    """A row for each speedup, half-width 0.1; None: wrong."""
    rows = []
    for number, speedup in enumerate(speedups):
        made = evaluation("wrong_value", "candidate") if speedup is None else evaluation()
        row = row_of(made, **names(number))
        if speedup is not None:
            one = Speedup(speedup=speedup, interval=(speedup - 0.1, speedup + 0.1))
            row = BenchRow(**{**{f: getattr(row, f) for f in row.__struct_fields__}, "speedups": {"eager": one}})
        rows.append(row)
    return rows


def test_fast_p_counts_lower_bounds_over_every_judged_row():
    rows = [*rows_of(2.5, 1.05, 0.7, None), missing_row(key="m", task="tm"), failed_row(DeviceError("x"), **names(9))]
    found = figures(rows)
    assert (found["row_count"], found["judged"], found["not_judged"]) == (6, 5, {"device": 1})
    eager = found["fast_p"]["eager"]
    assert {p: (share["count"], share["total"]) for p, share in eager.items()} == {
        "0.5": (3, 5),
        "0.8": (2, 5),
        "1": (1, 5),
        "1.2": (1, 5),
        "1.5": (1, 5),
        "2": (1, 5),
    }
    assert found["correct"]["count"] == 3 and found["compiled"]["count"] == 4 and found["correct"]["total"] == 5
    means = found["geometric_mean"]["eager"]
    assert means["of_correct"]["value"] == pytest.approx((2.5 * 1.05 * 0.7) ** (1 / 3))
    assert means["of_all"]["value"] == pytest.approx((2.5 * 1.05 * 0.7 * 0.1 * 0.1) ** (1 / 5))


def test_a_speedup_beyond_the_roofline_is_capped_in_the_mean():
    row = row_of(evaluation(), **names())
    absurd = Speedup(speedup=500.0, interval=(499.0, 501.0), at_roofline=4.0)
    row = BenchRow(**{**{f: getattr(row, f) for f in row.__struct_fields__}, "speedups": {"eager": absurd}})
    mean = figures([row])["geometric_mean"]["eager"]["of_correct"]
    assert mean["value"] == pytest.approx(4.0) and mean["capped"] == 1


def test_kernelbench_mode_shows_both_rules():
    rows = rows_of(1.05, 1.2)
    strict = [
        BenchRow(**{**{f: getattr(r, f) for f in r.__struct_fields__}, "strict": s})
        for r, s in zip(rows, ("pass", "wrong_value"), strict=True)
    ]
    found = figures(strict, kernelbench=True)
    assert found["correct"]["count"] == 2 and found["strict_correct"]["count"] == 1
    assert found["fast_p"]["eager"]["1"]["count"] == 1 and found["fast_p_point"]["eager"]["1"]["count"] == 2


def test_without_timing_fast_p_is_null_with_the_reason():
    found = figures([row_of(evaluation(timed=False), **names())])
    assert found["fast_p"] is None and found["geometric_mean"] is None and found["roofline_fraction"] is None
    assert found["why_none"]["fast_p"] == "not asked"


def test_the_worst_come_first_failures_before_slow_ones():
    rows = [*rows_of(2.0, 0.4, None, 1.0), failed_row(DeviceError("x"), **names(9))]
    assert [row.task for row in worst(rows, 3)] == ["t2", "t1", "t3"]


def test_wilson_is_never_a_point():
    assert wilson(3, 3)[0] == pytest.approx(0.4385, abs=1e-3) and wilson(3, 3)[1] == 1.0
    low, high = wilson(50, 100)
    assert (low, high) == (pytest.approx(0.4038, abs=1e-3), pytest.approx(0.5962, abs=1e-3))
    assert wilson(0, 0) == (0.0, 1.0)


def test_no_rows_is_no_crash():
    found = figures([])
    assert found["judged"] == 0 and found["fast_p"] is None and found["worst"] == []


def test_categories_have_denominators_of_their_own():
    rows = [
        row_of(evaluation(), **names(0), category="norm"),
        row_of(evaluation("wrong_value", "candidate"), **names(1), category="norm"),
        row_of(evaluation(timed=False), **names(2), category="rope"),
        failed_row(DeviceError("gone"), **names(3), category="rope"),
    ]
    found = figures(rows)["categories"]
    assert list(found) == ["norm", "rope"]
    assert (found["norm"]["judged"], found["norm"]["correct"]["count"]) == (2, 1)
    assert (found["rope"]["judged"], found["rope"]["correct"]["total"]) == (1, 1), (
        "what the machine ended counts nowhere"
    )
    assert found["norm"]["fast_1"]["eager"]["count"] == 1 and found["rope"]["fast_1"] is None
    assert found["norm"]["by_format"] is None and figures([row_of(evaluation(), **names())])["categories"] == {}
    beside = [replace(row, by_format="pass") for row in rows[:2]]
    assert figures(beside)["by_format"]["count"] == figures(beside)["categories"]["norm"]["by_format"]["count"] == 2
