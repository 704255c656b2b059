"""The table of docs/rewards.md. `python tests/train/test_rewards_doc.py` prints it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hipwright.train.records import AnswerOutcome
from hipwright.train.rewards import REWARDS

PAGE = Path(__file__).parents[2] / "docs/rewards.md"
GOOD: dict[str, Any] = {"status": "pass", "compiled": True, "correct": True, "coverage": 1.0}


def timed(low: float, high: float, **more: Any) -> AnswerOutcome:
    """The outcome of a correct program; baseline 0.1 ms, roofline 0.025 ms."""
    speedup = round((low * high) ** 0.5, 2)
    given = {**GOOD, "clock": "device", "base_ms": 0.1, "floor_ms": 0.025, "speedup": speedup, "low": low, "high": high}
    return AnswerOutcome(**{**given, **more})


def failed(status: Any, fault: Any = "candidate", **more: Any) -> AnswerOutcome:
    return AnswerOutcome(status=status, fault=fault, **more)


EXAMPLES: dict[str, tuple[AnswerOutcome, list[AnswerOutcome]]] = {
    "no program in the answer": (failed("parse_error"), []),
    "does not compile": (failed("compile_error"), []),
    "compiles, wrong values": (failed("wrong_value", compiled=True), []),
    "a proven hack, or faster than can be": (failed("impossible", compiled=True, hack=True), []),
    "right, not timed": (AnswerOutcome(**GOOD), []),
    "right, 0.5 (0.48 to 0.52)": (timed(0.48, 0.52), []),
    "right, 0.99 (0.95 to 1.03): noise": (timed(0.95, 1.03), []),
    "right, 1.2 (1.18 to 1.22)": (timed(1.18, 1.22), []),
    "the same, 0.9 of the work left to the library": (timed(1.18, 1.22, coverage=0.1), []),
    "right, 2.1 (2.0 to 2.2)": (timed(2.0, 2.2), []),
    "the same beside two wrong ones": (timed(2.0, 2.2), [failed("wrong_value", compiled=True)] * 2),
    "right, 2.1, at a task of 0.1 ms and no known roofline": (timed(2.0, 2.2, floor_ms=None), []),
    "right, 3.9 (3.8 to 4.0)": (timed(3.8, 4.0), []),
    "right, 8 (7.9 to 8.1)": (timed(7.9, 8.1), []),
    "the machine failed": (failed("unscorable", "device"), []),
}
NAMES = ("source", "milestones", "hipwright")


def table() -> list[str]:
    lines = [f"| outcome | {' | '.join(NAMES)} |", "|---|---|---|---|"]
    for said, (outcome, beside) in EXAMPLES.items():
        found = [REWARDS[name]([outcome, *beside])[0].reward for name in NAMES]
        lines.append(f"| {said} | {' | '.join('none' if one is None else f'{one:.2f}' for one in found)} |")
    return lines


def test_the_table_of_the_page() -> None:
    page = PAGE.read_text().splitlines()
    start = page.index(table()[0])
    assert page[start : start + len(table())] == table()


def test_every_reward_is_on_the_page() -> None:
    assert all(f"### `{name}`" in PAGE.read_text() for name in REWARDS)


if __name__ == "__main__":
    print("\n".join(table()))
