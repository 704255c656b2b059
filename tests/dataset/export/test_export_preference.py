"""The preference format: which program is chosen over which, and the evidence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hipwright.dataset.export import export, preference
from hipwright.dataset.export.grouping import by_task
from hipwright.dataset.records import Pair
from hipwright.records import Program
from tests.dataset.pair_sample import pair, program, sample, timing, variant

Load = Callable[..., Any]


def test_preferences_have_reasons_and_evidence(tmp_path: Path, load: Load) -> None:
    pairs = sample()
    export("preference", pairs, tmp_path / "out")
    rows = [row for split in load(tmp_path / "out").values() for row in split]
    by_program = {p.program.key: p for p in pairs}
    kinds = {row["preferred"] for row in rows}
    assert kinds == {"correct over wrong", "faster by estimate"}
    for row in rows:
        chosen, rejected = by_program[row["chosen_key"]], by_program.get(row["rejected_key"])
        assert chosen.correct and chosen.task == row["task"] and row["evidence"]
        assert row["chosen"] != row["rejected"] and row["chosen"][0]["role"] == "assistant"
        if row["preferred"] == "faster by estimate":
            assert rejected is not None and rejected.correct and rejected.task == row["task"]
            assert all(chosen.estimate_us[t] <= 0.95 * us for t, us in rejected.estimate_us.items())
        elif rejected is not None:
            assert not rejected.correct and row["evidence"] == rejected.evidence
    mended = [row for row in rows if row["rejected_key"] == program("odd_tail", "wrong").key]
    assert len(mended) == 1 and mended[0]["evidence"] == "- the remainder is missing"


def test_an_estimate_must_be_clearly_lower_on_every_target() -> None:
    slow = pair("softmax_online", "softmax", us=10.0)
    assert preference.speed_verdict(variant("softmax_block", "softmax", 9.4), slow)[0] == "faster by estimate"
    assert preference.speed_verdict(variant("softmax_block", "softmax", 9.6), slow) == ("", "")
    split = variant("softmax_block", "softmax", 5.0, estimate_us={"gfx942": 5.0, "gfx950": 8.1})
    assert preference.speed_verdict(split, slow) == ("", "")
    assert preference.speed_verdict(variant("softmax_block", "softmax", 5.0, estimate_us={}), slow) == ("", "")


def test_a_measurement_outweighs_the_estimate() -> None:
    def one(us: float, low: float, high: float, device: str = "NVIDIA H200") -> Pair:
        return variant("softmax_block", "softmax", us, timing=timing(low, high, device))

    assert preference.speed_verdict(one(20.0, 2.0, 2.2), one(5.0, 1.5, 1.7))[0] == "faster by measurement"
    assert preference.speed_verdict(one(5.0, 1.5, 1.7), one(20.0, 2.0, 2.2)) == ("", "")
    assert preference.speed_verdict(one(5.0, 1.6, 1.9), one(20.0, 1.5, 1.7)) == ("", ""), "the intervals touch"
    assert preference.speed_verdict(one(5.0, 1.0, 1.1, "A"), one(20.0, 2.0, 2.2, "B"))[0] == "faster by estimate"


def test_a_wrong_program_is_compared_with_the_nearest_correct_one() -> None:
    right = [pair("softmax_online", "softmax"), pair("softmax_block", "softmax", us=3.0)]
    text = program("softmax_online").text
    wrong = pair("softmax_online", "softmax", kind="negative", program=Program(text=text.replace("expf", "exp2f")))
    assert text != wrong.program.text
    found = [(c, r) for c, r, how, _ in preference.preferences([*right, wrong]) if how == "correct over wrong"]
    assert found == [(right[0], wrong)]
    named = Pair.from_dict({**wrong.to_dict(), "before": right[1].program.to_dict()})
    assert next(preference.preferences([*right, named]))[0] == right[1]


def test_rows_per_task_are_limited(tmp_path: Path) -> None:
    many = [variant("softmax_block", "softmax", 100.0 / n) for n in range(1, 40)]
    found = list(preference.preferences(many))
    assert {chosen.estimate_us["gfx942"] for chosen, *_ in found} == {100.0 / 39}, "the fastest of all"
    written = export("preference", many, tmp_path / "out")
    assert written.total == preference.MAX_PER_TASK
    assert sum(written.left_out.values()) == len(found) - written.total > 0


def test_tasks_without_two_sides_are_counted(tmp_path: Path) -> None:
    lonely = pair("linear_packed", "linear")
    written = export("preference", [*sample()[:2], lonely], tmp_path / "out")
    assert written.left_out == {"nothing to compare": 1}


def test_pairs_are_grouped_by_task_in_their_order(tmp_path: Path) -> None:
    a, b = sample()[0], sample()[2]
    c = variant("softmax_block", "softmax", 2.0)
    assert list(by_task([b, a, c], tmp_path)) == [[b], [a, c]]
    assert list(tmp_path.iterdir()) == []
