"""The optimizer role of a language model: one change to a verified program, given its figures and bottleneck."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hipwright.agents.base import render
from hipwright.agents.context import ContextBuilder
from hipwright.agents.evidence import counter_lines, figures, program_block
from hipwright.agents.prompt_sections import add_lessons, build_context, context_builder, find_bottleneck
from hipwright.agents.prompt_session import Conversation, PromptSession
from hipwright.agents.translator import Translator
from hipwright.search.interfaces import Proposal
from hipwright.search.moves import EVERY_MOVE, MOVE

NAME = "optimizer"


class Optimizer:
    """Improves parents[0] by one change; without a parent it translates the reference."""

    name = NAME

    def converse(self, session: PromptSession) -> Conversation[Proposal]:
        """Asks for the change, after the calls of the judge and the lessons if they ask a model."""
        if not session.ask.parents:
            return (yield from Translator().converse(session))
        builder, judged = yield from improvement_context(session)
        return (yield from write_change(session, builder, judged))


def improvement_context(session: PromptSession) -> Conversation[tuple[ContextBuilder, bool]]:
    """Returns the sections for improving or planning, and whether they name a bottleneck."""
    parent = session.ask.parents[0].program
    evaluation = session.evaluation(parent.key)
    builder = context_builder(session)
    yield from add_lessons(session, builder)
    builder.add("program", "The program to improve", program_block(parent))
    if evaluation is not None:
        builder.add("figures", "What is known of it", figures(evaluation))
    if counted := counter_lines(session.ask.view.counted.get(parent.key)):
        builder.add("counters", "What its counters say", "\n".join(f"- {line}" for line in counted))
        session.notes["counters"] = counted
    builder.add("policy", "What the search has learned", policy_text(session.ask.expansion.action))
    builder.add("hazards", "What a linter says of it", "\n".join(f"- {line}" for line in session.hazard_lines(parent)))
    found = (yield from find_bottleneck(session, parent, evaluation)) if evaluation is not None else None
    if found is not None:
        builder.add("bottleneck", "Its one bottleneck", found.text, found.name)
    return builder, found is not None


def policy_text(action: Mapping[str, Any]) -> str:
    """What a policy says of its choice, as lines: the move it names, its guidance, its summary of the run."""
    genome = action.get("genome")
    guidance = [str(name) for name in genome.get("guidance", ())] if isinstance(genome, Mapping) else []
    named = [str(action[MOVE])] if action.get(MOVE) else []
    lines = [f"- the way to try now: {name} ({EVERY_MOVE[name].what})" for name in named if name in EVERY_MOVE]
    lines += [f"- gained lately: {name} ({EVERY_MOVE[name].what})" for name in guidance if name in EVERY_MOVE]
    if action.get("summary"):
        lines.append(f"- values that the fastest programs share: {action['summary']}")
    return "\n".join(lines)


def write_change(
    session: PromptSession, builder: ContextBuilder, judged: bool, strategy: Mapping[str, str] | None = None
) -> Conversation[Proposal]:
    """Asks for the changed program: by a strategy, or by the model's own idea."""
    prompt = render("optimizer", context=build_context(session, builder).text, judged=judged, strategy=strategy)
    return (yield from session.write_program(NAME, prompt))
