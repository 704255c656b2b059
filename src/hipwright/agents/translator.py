"""The translator role: writes a program from the reference, and repairs a failed one with the verifier's evidence.

Operator "translate" asks for the first try, "repair" for each further one, with the failed program's key in the
expansion's action; the policy limits the tries (search/policies/llm_share.py).
"""

from __future__ import annotations

from hipwright.agents.base import render
from hipwright.agents.evidence import evidence, program_block, reason
from hipwright.agents.prompt_sections import build_context, context_builder
from hipwright.agents.prompt_session import Conversation, PromptSession
from hipwright.search.interfaces import NoProposal, Proposal

NAME = "translator"
EARLIER = 4  # earlier tries of a chain that a repair prompt lists


class Translator:
    """Writes a program from the reference, or repairs one."""

    name = NAME

    def converse(self, session: PromptSession) -> Conversation[Proposal]:
        """Asks for a translation or a repair; unusable answers are asked for again."""
        prompt = repair_prompt(session) if session.ask.expansion.operator == "repair" else translate_prompt(session)
        return (yield from session.write_program(NAME, prompt))


def translate_prompt(session: PromptSession) -> str:
    """The prompt for a program from the reference alone."""
    return render("translator", context=build_context(session, context_builder(session)).text)


def repair_prompt(session: PromptSession) -> str:
    """The prompt for one change to the failed program. NoProposal where there is no failed program."""
    action = session.ask.expansion.action
    failed = session.evaluation(str(action.get("failed", "")))
    if failed is None:
        raise NoProposal("there is no failed program to repair", session.notes)
    program = session.tools.archive.program(failed.program)
    found = evidence(failed, program)
    builder = context_builder(session, failure=found)
    if session.enabled("failure_memory"):
        builder.add("failures", "Earlier tries of this program", "\n".join(f"- {line}" for line in _chain(session)))
    builder.add("program", "The program that failed", program_block(program))
    builder.add("evidence", "What the verifier found", found)
    builder.add("hazards", "What a linter says of it", "\n".join(f"- {line}" for line in session.hazard_lines(program)))
    session.notes |= {"repairs": failed.program, "tries": int(action.get("tries", 1))}
    return render("repair", context=build_context(session, builder).text, tries=int(action.get("tries", 1)))


def _chain(session: PromptSession) -> list[str]:
    """The earlier tries that led to the failed program, oldest first, each with its failure."""
    trials = {trial.number: trial for trial in session.ask.view.trials}
    lines: list[str] = []
    trial = trials.get(int(session.ask.expansion.action.get("of", -1)))
    while trial is not None and len(lines) < EARLIER:
        before = int(trial.proposed.expansion.action.get("of", -1))
        trial = trials.get(before) if before < trial.number else None
        if trial is not None and trial.evaluation is not None:
            lines.append(f"#{trial.number}: {reason(trial.evaluation)}")
    return lines[::-1]
