"""Records of several runs: kept as they come, merged, gone on with, and told as the figures of the report."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.suite import figures, report
from benchmarks.suite.measure import by_bound
from benchmarks.suite.memory import MemoryQueue
from benchmarks.suite.records import Measured, Records, merge, read
from benchmarks.suite.tasks import suite_named
from hipwright.archive import Evaluated, RunLog
from hipwright.records import Evaluation, TargetResult, Timing, Versus
from tests.kernels_suite.made_up import against, row, trials

KERNELS = suite_named()


def test_the_latest_settled_row_of_the_latest_file_holds() -> None:
    rows = [
        row("a/x", ms=1.0, clock=1.0),
        row("a/x", ms=2.0, clock=3.0),
        row("a/x", "search", ms=0.5, clock=2.0),
        row("a/x", status="unscorable", fault="device", clock=9.0),
        row("a/y", key="old", clock=1.0),
        row("a/y", "search", key="old", clock=2.0),
        row("a/y", key="new", clock=3.0),
        row("b/z", status="untrusted", fault="device", clock=1.0),
    ]
    held = {(one.task, one.stage): one for one in merge(reversed(rows))}
    assert set(held) == {("a/x", "first"), ("a/x", "search"), ("a/y", "first"), ("b/z", "first")}
    assert held["a/x", "first"].median_ms == 2.0 and held["a/y", "first"].key == "new"
    assert held["b/z", "first"].status == "untrusted"


def test_a_run_goes_on_where_another_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    records = Records(path)
    records.add(row("a/x"))
    records.add(row("a/y", status="unscorable", fault="service"))
    with path.open("ab") as stream:
        stream.write(row("a/z").to_json().encode()[:100])  # a kill tears the last line
    again = Records(path)
    assert again.done("a/x", "k", "first") and not again.done("a/x", "other", "first")
    assert not again.done("a/x", "k", "search")
    assert not again.done("a/y", "k", "first") and not again.done("a/z", "k", "first")
    again.add(row("a/z"))
    assert [one.task for one in read([path])] == ["a/x", "a/y", "a/z"]


def test_merge_writes_one_file_and_loses_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, rows in {"one": [row("a/x")], "two": [row("b/y"), row("a/x", "search", ms=0.5)]}.items():
        records = Records(tmp_path / f"{name}.jsonl")
        for one in rows:
            records.add(one)
    out = tmp_path / "all.jsonl"
    files = [str(tmp_path / "one.jsonl"), str(tmp_path / "two.jsonl")]
    assert main(["suite", "--out", str(out), "--merge", *files]) == 0
    assert main(["suite", "--out", str(out), "--merge", *files, "--report"]) == 0
    assert [(one.task, one.stage) for one in read([out])] == [("a/x", "first"), ("a/x", "search"), ("b/y", "first")]
    assert "2 tasks on a GPU (sm_90, torch 2): 2 right and timed, 0 not" in capsys.readouterr().out


def test_files_that_are_not_there_are_told_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    none = str(tmp_path / "none.jsonl")
    for asked in (["--report"], ["--table"], ["--fit"], ["--merge", none]):
        assert main(["suite", "--out", str(tmp_path / "other.jsonl"), *asked]) == 2
        told = capsys.readouterr()
        assert not told.out and len(told.err.splitlines()) == 1 and "is no file" in told.err
    assert not list(tmp_path.iterdir()), "and nothing is written"


def told(rows: list[Measured]) -> list[figures.Task]:
    return figures.tasks_of(merge(rows))


def test_means_take_the_best_stage_and_the_better_compiler() -> None:
    sides = {"eager": against(4.0, 1.0), "compile": against(2.0, 1.0), "max-autotune": against(1.25, 1.0)}
    tasks = told([row("a/x", sides=sides), row("a/x", "search", ms=2.0), row("b/y")])
    assert tasks[0].best is not None and tasks[0].best.stage == "first"  # the search found nothing faster
    assert figures.versus(tasks[0].best, "compiled") == sides["max-autotune"]
    mean = figures.mean(tasks, "compiled")
    assert mean is not None and mean.value == pytest.approx((1.25 * 1.5) ** 0.5)
    assert figures.mean(tasks, "eager").value == pytest.approx(8**0.5)  # type: ignore[union-attr]


def test_a_failure_is_not_fast_and_a_missing_baseline_is_nobodys_loss() -> None:
    without = row("a/y")
    del without.sides["compile"]
    tasks = told([row("a/x"), without, row("a/z", status="wrong_value", fault="candidate", median_ms=None)])
    assert (figures.fast(tasks, "eager").count, figures.fast(tasks, "eager").total) == (2, 3)
    assert (figures.fast(tasks, "compiled").count, figures.fast(tasks, "compiled").total) == (1, 2)
    assert "a/z: wrong_value" in report.text([r for t in tasks for r in (t.first,) if r], KERNELS)


def test_an_interval_that_holds_one_is_not_fast() -> None:
    close = {"eager": against(1.01, 1.0, spread=0.02)}
    assert figures.fast(told([row("a/x", sides=close)]), "eager").count == 0


def test_shares_of_a_copy_are_of_large_tasks_that_memory_bounds() -> None:
    rows = [
        row("a/stream"),
        row("a/small", bytes=1 << 20),
        row("a/product", operations=float(1 << 40)),
        row("embedding_segment/pick", sides={"copy": against(0.6, 1.0)}),
        row("a/slow", sides={"eager": against(0.9, 1.0), "copy": against(0.6, 1.0)}),
    ]
    found = figures.shares(told(rows), KERNELS)
    assert [(round(one, 2), name) for one, name, _ in found] == [
        (0.6, "a/slow"),
        (0.6, "embedding_segment/pick"),
        (0.9, "a/stream"),
    ]
    text = report.text(rows, KERNELS)
    assert "3 tasks, share of a copy's speed: median 60.0%, worst 60.0%" in text
    assert "under 75 %: 1: a/slow 0.60" in text and "under 50 %" not in text
    assert "slower than 0.95x eager: 1: a/slow 0.90x" in text


def test_the_table_has_a_row_for_each_task_that_was_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = {"eager": against(2.0, 0.0042), "compile": against(0.98, 0.0042, spread=0.01)}
    rows = [
        row("a/tiny", ms=0.0042, sides=sides),
        row("b/y", ms=1.5),
        row("b/wrong", status="wrong_value", median_ms=None),
    ]
    records = Records(tmp_path / "r.jsonl")
    for one in rows:
        records.add(one)
    assert main(["suite", "--out", str(records.path), "--table"]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| `a/tiny` | 4.2 | 2.00 [1.96, 2.04] | 0.98 [0.97, 0.99] |  |  |",
        "| `b/y` | 1,500 | 2.00 [1.96, 2.04] | 1.50 [1.47, 1.53] |  | 0.90 [0.88, 0.92] |",
    ]
    assert "not faster than torch.compile (better): 1: a/tiny 0.98x" in report.text(rows, KERNELS)


def test_small_tasks_are_told_by_latency() -> None:
    tiny = {"eager": against(2.0, 0.005), "compile": against(1.0, 0.005, latency=0.8)}
    rows = [row("a/tiny", ms=0.005, floor_ms=0.002, sides=tiny), row("a/large")]
    assert figures.small(told(rows)) == [(0.8, "a/tiny")]
    assert "slower than torch.compile: 1: a/tiny 0.80x" in report.text(rows, KERNELS)


def test_curves_and_gaps_of_searches() -> None:
    poor = {"eager": against(1.0, 2.0), "copy": against(0.5, 2.0)}
    good = {"eager": against(1.8, 1.1), "copy": against(0.9, 1.1)}
    rows = [
        row("a/x", ms=2.0, sides=poor),
        row("a/x", "search", ms=1.1, sides=good, trials=trials(1.0, None, 1.5, 1.2, 1.8)),
        row("a/near"),
        row("a/near", "search", trials=trials(2.0)),
    ]
    (search,) = [one for one in rows if one.trials and one.task == "a/x"]
    assert figures.curve(search, (1, 2, 3, 4, 5, 60)) == [1.0, 1.0, 1.5, 1.5, 1.8, 1.8]
    assert figures.gaps(told(rows)) == [(pytest.approx((2 - 1 / 0.9) / (2 - 1)), "a/x")]
    points = figures.curves(told(rows))
    assert points[0][1] == 1.0 and points[-1][1] == pytest.approx(1.8**0.5)
    assert "under 85 % of the roofline: 1; at least half of the gap closed in 1" in report.text(rows, KERNELS)


def test_a_search_that_only_found_slower_programs_closed_nothing() -> None:
    sides = {"eager": against(1.0, 2.0), "copy": against(0.4, 2.0)}
    worse = {"eager": against(0.5, 4.0), "copy": against(0.2, 4.0)}
    assert figures.gaps(told([row("a/x", sides=sides), row("a/x", "search", ms=4.0, sides=worse)])) == [(0.0, "a/x")]


def test_a_large_task_is_alone_and_is_not_overtaken() -> None:
    room, order = MemoryQueue(100), list[str]()
    most, inside = 0, list[int]()

    def go(name: str, bytes_: int) -> None:
        nonlocal most
        with room.take(bytes_):
            inside.append(bytes_)
            most = max(most, sum(inside) if len(inside) > 1 else 0)
            order.append(name)
            time.sleep(0.05)
            inside.remove(bytes_)

    with room.take(10):
        threads = [threading.Thread(target=go, args=("large", 500))]
        threads[0].start()
        time.sleep(0.05)
        threads += [threading.Thread(target=go, args=(f"small{n}", 40)) for n in range(5)]
        for thread in threads[1:]:
            thread.start()
        time.sleep(0.05)
        assert order == []
    for thread in threads:
        thread.join(5)
    assert order[0] == "large" and len(order) == 6 and most == 80


def test_bad_names_are_bad_input(tmp_path: Path) -> None:
    assert main(["suite", "--out", str(tmp_path / "r"), "--list", "--family", "nothing"]) == 2
    assert main(["suite", "--out", str(tmp_path / "r"), "--list", "--task", "softmax/long_rows_fp32"]) == 0


def test_a_searchs_finalists_are_those_with_the_best_lower_bounds() -> None:
    """A wide interval around a high ratio is luck; what failed or was not timed is no finalist."""

    def evaluated(speedup: float, half: float, status: str = "pass", *, timed: bool = True) -> Evaluated:
        versus = Versus(
            baseline="eager",
            speedup=speedup,
            interval=(speedup - half, speedup + half),
            pairs=8,
            samples_ms=(1.0,),
            baseline_ms=(speedup,),
        )
        timing = Timing(device="H200", architecture="sm_90", median_ms=1.0, versus={"eager": versus}) if timed else None
        fault = None if status == "pass" else "candidate"
        results = {"cuda": TargetResult(target="cuda", timing=timing)}
        return Evaluated(
            evaluation=Evaluation(task="t", program="p", status=status, fault=fault, targets=results)  # type: ignore[arg-type]
        )

    log = RunLog()
    log.evaluated = {
        1: evaluated(1.4, 0.1),
        2: evaluated(1.7, 0.5),
        3: evaluated(1.5, 0.1),
        4: evaluated(9.0, 0.1, "wrong_value"),
        5: evaluated(2.0, 0.1, timed=False),
    }
    assert by_bound(log, "cuda") == [3, 1, 2]
