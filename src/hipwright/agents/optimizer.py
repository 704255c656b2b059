"""The optimizer's LLM mind: a verified program, its figures and one bottleneck in, a program with one change out."""

from __future__ import annotations

from collections.abc import Mapping

from hipwright.agents.base import render
from hipwright.agents.context import ContextBuilder
from hipwright.agents.desk import PromptSession, Steps
from hipwright.agents.evidence import figures, shown
from hipwright.agents.parts import builder_for, finish, judgement, with_lessons
from hipwright.agents.translator import Translator
from hipwright.search.interfaces import Proposal

NAME = "optimizer"


class Optimizer:
    """Improves parents[0] by one change; with no parent there is only the reference to translate."""

    name = NAME

    def talk(self, desk: PromptSession) -> Steps[Proposal]:
        """A call for the change, after those that the judge and the lessons may need."""
        if not desk.ask.parents:
            return (yield from Translator().talk(desk))
        builder, judged = yield from material(desk)
        return (yield from implement(desk, builder, judged))


def material(desk: PromptSession) -> Steps[tuple[ContextBuilder, bool]]:
    """What improving and planning have in common; True when a bottleneck is among it."""
    parent = desk.ask.parents[0].program
    evaluation = desk.evaluation(parent.key)
    builder = builder_for(desk)
    yield from with_lessons(desk, builder)
    builder.add("program", "The program to improve", shown(parent))
    if evaluation is not None:
        builder.add("figures", "What is known of it", figures(evaluation))
    builder.add("hazards", "What a linter says of it", "\n".join(f"- {line}" for line in desk.dangers(parent)))
    found = (yield from judgement(desk, parent, evaluation)) if evaluation is not None else None
    if found is not None:
        builder.add("bottleneck", "Its one bottleneck", found.text, found.name)
    return builder, found is not None


def implement(
    desk: PromptSession, builder: ContextBuilder, judged: bool, strategy: Mapping[str, str] | None = None
) -> Steps[Proposal]:
    """The call that writes the changed program: by a strategy, or by the model's own idea."""
    prompt = render("optimizer", context=finish(desk, builder).text, judged=judged, strategy=strategy)
    return (yield from desk.write(NAME, prompt))
