"""Evidence for a repair turn: the agents' description of an evaluation (agents/evidence.py), and notes on repetitions.

It never holds a seed, and of the expected outputs at most the value at the first wrong element.
"""

from __future__ import annotations

from collections.abc import Sequence

from hipwright.agents.evidence import clean
from hipwright.agents.evidence import evidence as describe_verdict
from hipwright.llm.answers.repair import UnusableAnswer
from hipwright.records import Evaluation, Program
from hipwright.train.records import Turn

NOT_JUDGED = "The program was not judged: the fault lies with the machine or the task, not with the program."


def describe_evaluation(evaluation: Evaluation, program: Program, history: Sequence[Turn] = ()) -> str:
    """Why a program failed, or the figures of one that passed. history: earlier turns."""
    if evaluation.fault not in (None, "candidate"):
        return f"- {NOT_JUDGED}"
    return _with_notes(describe_verdict(evaluation, program), program.key, history)


def describe_unusable_answer(found: UnusableAnswer) -> str:
    """Why an answer holds no program, and what to change."""
    return f"- verdict: parse_error: {clean(found.message, 300)}\n{found.repair.strip()}"


def _with_notes(text: str, program: str, history: Sequence[Turn]) -> str:
    notes = []
    same = next((number for number, turn in enumerate(history, 1) if turn.outcome.program == program), None)
    if same is not None:
        notes.append(f"- this is the program of answer {same} again, to the letter: change something")
    hacked = [str(number) for number, turn in enumerate(history, 1) if turn.outcome.hack]
    if hacked:
        notes.append(f"- answer {', '.join(hacked)} was refused as a way around the task: compute what it asks for")
    return "\n".join([*notes, text])
