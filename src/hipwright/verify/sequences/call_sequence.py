"""Calls in a row on one state: new values in between, buffers and memory as the earlier calls left them.

| call | inputs | state | memory that the program allocates |
|---|---|---|---|
| 1 | normal | as it was made | fresh |
| 2 | others, at the same addresses | new parameters, at the same addresses | as call 1 left it |
| 3 | the given ones, at new addresses | the first parameters again | as call 2 left it |
| 4, 5 | the same again | the same | as it was left, each with another half changed |

Buffers that the reference changes are never restored in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hipwright.errors import HipwrightError, InfrastructureError
from hipwright.tensors import Tree
from hipwright.verify.case_draws import VerificationCase
from hipwright.verify.expectation import Expectations
from hipwright.verify.expected import Expected, rules
from hipwright.verify.sequences.carried_state import BuffersAfter, ReferenceStates

KEPT = "first"
"""The name under which the first call's outputs are kept."""
CARRIED = "one of several calls on one state, whose buffers depend on the earlier ones"


@dataclass(frozen=True)
class SequencedCall:
    """One call. settings: the worker's (`WatchedCandidate.run`); carried: buffers that keep their values where a new
    state is written, None where none is; note: begins the message about a wrong result.
    """

    case: VerificationCase
    settings: Mapping[str, Any]
    carried: frozenset[str] | None = None
    note: str = ""


def call_sequence(
    first: VerificationCase,
    second: VerificationCase | None,
    third: VerificationCase,
    expectations: Expectations,
    redraws: Callable[[VerificationCase], Callable[[int], Tree]],
    seed: int,
) -> tuple[SequencedCall, ...]:
    """The steps of a sequence. second: None where no second state can be judged.

    Where the reference changes buffers, the expectations of the later calls are computed here.
    """
    left: dict[str, Any] = {"carry": True, "memory": "left", "memory_seed": seed}
    steps = [SequencedCall(first, {"keep": KEPT})]
    if second is not None:
        note = "in a second call with new values at the same addresses, "
        steps.append(SequencedCall(second, {**left, "reuse": True}, frozenset(), note))
    carried = None if second is None else frozenset[str]()
    steps.append(SequencedCall(third, left, carried, "in a later call on the same state, "))
    note = "in a later call, whose memory was changed after an earlier one had left it, "
    steps += [SequencedCall(third, {**left, "reuse": True, "memory": use}, None, note) for use in ("changed", "rest")]
    if not _changes_buffers(steps):
        return tuple(steps)
    return tuple(_with_carried_buffers(steps, expectations, redraws))


def _changes_buffers(steps: list[SequencedCall]) -> bool:
    return any(rule.evidence for step in steps for rule in rules(step.case.expected.tree["buffers"]))


def _with_carried_buffers(
    steps: list[SequencedCall],
    expectations: Expectations,
    redraws: Callable[[VerificationCase], Callable[[int], Tree]],
) -> list[SequencedCall]:
    """The steps with the expectations of a reference whose buffers carry over; as far as it can be judged."""
    found: list[SequencedCall] = []
    carried: frozenset[str] = frozenset()
    states: ReferenceStates | None = None
    after: BuffersAfter | None = None
    for number, step in enumerate(steps, 1):
        case = step.case
        states = expectations.states(case.state)
        if after is not None:
            states = states.followed_by(after, carried)
        try:
            expected, after = expectations.drawing(case.draw).after(case.inputs, states, redraws(case))
        except HipwrightError as error:
            if isinstance(error, InfrastructureError):
                raise
            break
        if number > 1:
            case = _carried_case(case, number, expected)
            step = replace(step, case=case, carried=carried if step.carried is not None else None)
        found.append(step)
        carried |= after.changed(states.native["buffers"])
    return found


def _carried_case(case: VerificationCase, number: int, expected: Expected) -> VerificationCase:
    return replace(case, family=f"{case.family}, call {number}", expected=expected, degenerate=CARRIED)


def alternating_memory(cases: Iterable[VerificationCase]) -> Iterator[tuple[VerificationCase, Mapping[str, Any]]]:
    """The cases with their settings: every second call finds in its memory what the call before it left."""
    for number, case in enumerate(cases):
        yield case, {"memory": "left"} if number % 2 else {}
