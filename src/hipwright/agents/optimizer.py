"""The optimizer's LLM mind: a verified program, its figures and one bottleneck in, a program with one change out."""

from __future__ import annotations

from collections.abc import Mapping

from hipwright.agents.base import render
from hipwright.agents.context import ContextBuilder
from hipwright.agents.evidence import figures, program_block
from hipwright.agents.prompt_sections import add_lessons, context_builder, find_bottleneck, finish
from hipwright.agents.prompt_session import Conversation, PromptSession
from hipwright.agents.translator import Translator
from hipwright.search.interfaces import Proposal

NAME = "optimizer"


class Optimizer:
    """Improves parents[0] by one change; with no parent there is only the reference to translate."""

    name = NAME

    def converse(self, session: PromptSession) -> Conversation[Proposal]:
        """A call for the change, after those that the judge and the lessons may need."""
        if not session.ask.parents:
            return (yield from Translator().converse(session))
        builder, judged = yield from improvement_context(session)
        return (yield from write_change(session, builder, judged))


def improvement_context(session: PromptSession) -> Conversation[tuple[ContextBuilder, bool]]:
    """What improving and planning have in common; True when a bottleneck is among it."""
    parent = session.ask.parents[0].program
    evaluation = session.evaluation(parent.key)
    builder = context_builder(session)
    yield from add_lessons(session, builder)
    builder.add("program", "The program to improve", program_block(parent))
    if evaluation is not None:
        builder.add("figures", "What is known of it", figures(evaluation))
    builder.add("hazards", "What a linter says of it", "\n".join(f"- {line}" for line in session.hazard_lines(parent)))
    found = (yield from find_bottleneck(session, parent, evaluation)) if evaluation is not None else None
    if found is not None:
        builder.add("bottleneck", "Its one bottleneck", found.text, found.name)
    return builder, found is not None


def write_change(
    session: PromptSession, builder: ContextBuilder, judged: bool, strategy: Mapping[str, str] | None = None
) -> Conversation[Proposal]:
    """The call that writes the changed program: by a strategy, or by the model's own idea."""
    prompt = render("optimizer", context=finish(session, builder).text, judged=judged, strategy=strategy)
    return (yield from session.write_program(NAME, prompt))
