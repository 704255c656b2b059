"""The reasons format: what is said is recorded, short, and followed by the whole program; steps keep their gain."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hipwright.dataset.export import ExportOptions, export, read_export
from hipwright.dataset.export.preference import preferences
from hipwright.dataset.reasons import WORDS, TooLittle, reasons_of
from hipwright.dataset.records import Pair
from hipwright.llm.answers.read import read_answer
from hipwright.llm.answers.repair import UnusableAnswer
from hipwright.train.data import imitation_rows
from tests.dataset.pair_sample import pair, program

SAMPLE = Path(__file__).parents[3] / "data" / "sample"


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    return list(read_export(SAMPLE, []))


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.glob("[!s]*.jsonl")) for line in path.read_text().splitlines()]


def test_the_samples_rows_are_short_and_their_programs_whole(tmp_path: Path, pairs: list[Pair]) -> None:
    written = export("reasons", pairs, tmp_path / "out", ExportOptions(system="You write HIP."))
    rows, by_key = rows_of(tmp_path / "out"), {one.key: one for one in pairs}
    assert len(rows) == written.total == 55, "the number that docs/dataset-formats.md states"
    assert sum(one.correct for one in pairs) == 80
    kinds = Counter(row["kind"] for row in rows)
    assert kinds["step"] == 20 and kinds["repair"] > 10 and kinds["engine"] > 5
    for row in rows:
        one, said = by_key[row["key"]], row["messages"][-1]["content"]
        text = said.split("\n\n```python\n", 1)[0]
        assert row["words"] == len(text.split()) <= WORDS[row["difficulty"]]
        assert text == " ".join(filter(None, (row[part] for part in ("bottleneck", "plan", "change", "effect"))))
        found = read_answer(said, task_source=one.task_source)
        assert not isinstance(found, UnusableAnswer), found
        assert "extern" in found.program.text and text not in found.program.text
        assert row["difficulty"] != "easy" or row["kind"] in ("step", "repair"), "an easy translation has no reasons"
    read = imitation_rows(tmp_path / "out")
    assert len(read.train) == written.rows["default"]["train"]
    assert read.train[0].completion[0]["content"].index("```python") > 0, "SFT learns the reasons too"


def test_what_is_said_is_what_is_recorded(pairs: list[Pair]) -> None:
    """A repair's two lines are in the two programs; a step's values are those of its choices, its gain the search's."""
    seen: Counter[str] = Counter()
    for one in pairs:
        try:
            found = reasons_of(one)
        except (TooLittle, KeyError):
            continue
        if one.kind == "repair" and (lines := re.search(r"`(.+)` must be `(.+)`", found.change)):
            assert one.before is not None
            before, after = (" ".join(text.split()) for text in (one.before.text, one.program.text))
            assert lines[1] in before and lines[2] in after
            seen["repair"] += 1
        if one.kind == "step":
            made = one.provenance["made"]
            assert f"{made['gain']:.0%}" in found.effect and "estimate" in found.effect
            for name, old, new in re.findall(r"([A-Z_]+) from (\d+) to (\d+)", found.change):
                assert (made["before"][name], made["choices"][name]) == (int(old), int(new))
                seen["knob"] += 1
    assert seen["repair"] > 5 and seen["knob"] > 5


def step(gain: float | None, **made: Any) -> Pair:
    """A step of a search from one softmax to another."""
    known = {"by": "a search", "gain_by": "estimate", **({} if gain is None else {"gain": gain}), **made}
    before = program("softmax_block", BLOCK=256)
    return pair("softmax_online", "softmax", kind="step", before=before, provenance={"made": known})


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (step(None), "a step without a recorded gain"),
        (step(0.01), "a step without a recorded gain"),
        (
            replace(step(0.2), before=program("softmax_block"), program=program("softmax_online")),
            "what the step changes",
        ),
        (pair("softmax_online", "softmax", kind="repair", before=program("softmax_block")), "what the repair changes"),
        (pair("softmax_online", "softmax"), "an easy task's translation"),
        (replace(pair("linear_packed", "linear"), builds={}), "its plan is not recorded"),
    ],
)
def test_rows_of_which_too_little_is_known_are_left_out(one: Pair, why: str) -> None:
    with pytest.raises(TooLittle, match=why):
        reasons_of(one)


def test_reasons_that_are_too_long_lose_the_plan_and_the_bottleneck_first() -> None:
    choices = {f"KNOB_{number}": 1 for number in range(20)}
    long = step(0.2, before=choices, choices=dict.fromkeys(choices, 2))
    with pytest.raises(TooLittle, match="more than 40 words"):
        reasons_of(long)
    few = dict(list(choices.items())[:5])
    bound = {"task": {"bound": "memory"}}
    some = step(0.2, before=few, choices=dict.fromkeys(few, 2))
    some = replace(some, provenance={**some.provenance, **bound})
    found = reasons_of(some)
    assert found.bottleneck == "" and "KNOB_4 from 1 to 2" in found.change and "20%" in found.effect
    assert reasons_of(replace(some, difficulty="hard")).bottleneck, "a hard task may have more words"


def test_steps_of_a_search_are_rows_and_preferences_with_their_gain(tmp_path: Path) -> None:
    known = step(0.31, before={"BLOCK": 1024}, choices={"BLOCK": 256})
    export("sft", [known, pair("softmax_block", "softmax")], tmp_path / "sft")
    by_kind = {row["kind"]: row for row in rows_of(tmp_path / "sft")}
    assert (by_kind["step"]["gain"], by_kind["step"]["gain_by"]) == (0.31, "estimate")
    assert (by_kind["engine"]["gain"], by_kind["engine"]["gain_by"]) == (0.0, "")
    ((chosen, rejected, how, evidence),) = preferences([known])
    assert (chosen, how) == (known, "faster by estimate") and "31.0%" in evidence
    assert known.before is not None and rejected.program == known.before
    assert list(preferences([replace(known, provenance={"made": {"gain": 0.02}})])) == [], "within the model's noise"
