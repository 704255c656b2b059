"""What the writers' prompts have in common: which parts they get, from where, and what the notes say of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hipwright.agents import judge, lessons
from hipwright.agents.context import (
    ContextBuilder,
    PromptContext,
    demoted,
    facts,
    target_pages,
    task_text,
    technique_pages,
    tokens,
)
from hipwright.agents.desk import PromptSession, Steps, system
from hipwright.agents.evidence import score_words, shown
from hipwright.llm.records import Message
from hipwright.records import Evaluation, Program
from hipwright.search import fitness
from hipwright.search.policies.agents import exemplars

INSTRUCTION_TOKENS = 400
"""Kept free of the budget for a template's own words."""


def builder_for(desk: PromptSession, *, failure: str = "") -> ContextBuilder:
    """A builder with the task, the targets' facts and what retrieval, the archive and the failures bring.

    failure: the evidence of a repair, which gets one page that fits it, and no other programs or failures.
    """
    tools, limits = desk.tools, desk.tools.limits
    builder = ContextBuilder(limits.prompt_tokens - tokens(system(tools.targets)) - INSTRUCTION_TOKENS)
    builder.add("task", "The reference", task_text(tools.task, tools.graph_text))
    for page in target_pages(tools.targets, tools.graph_text):
        builder.add("target", f"The target: {page.title}", demoted(facts(page)), page.name)
    if desk.on("retrieval"):
        query, most = f"{failure}\n{tools.graph_text}", min(limits.pages, 1) if failure else limits.pages
        for page in technique_pages(query, tools.targets, most):
            builder.add("page", f"A technique that may fit: {page.title}", demoted(page.text), page.name)
    if failure:
        return builder
    if desk.on("retrieval"):
        _add_kernels(desk, builder)
    _add_exemplars(desk, builder)
    if desk.on("failure_memory"):
        lines = lessons.recent_failures(desk.ask.view, limits.failures)
        builder.add("failures", "What failed lately in this run", "\n".join(f"- {line}" for line in lines))
    return builder


def finish(desk: PromptSession, builder: ContextBuilder) -> PromptContext:
    """The parts that fit; the notes say which pages, kernels and exemplars are in, and what was dropped."""
    context = builder.build()
    if retrieved := context.names("page") + context.names("kernel"):
        desk.notes["retrieved"] = retrieved
    if shown_programs := context.names("exemplar"):
        desk.notes["exemplars"] = shown_programs
    if context.dropped:
        desk.notes["dropped"] = list(context.dropped)
    return context


# ---------------------------------------------------------------- programs


def _add_kernels(desk: PromptSession, builder: ContextBuilder) -> None:
    """The run's snapshot of the archive: verified programs of this task's earlier runs, then of similar tasks."""
    told = [("A verified program for this task, from an earlier run", one) for one in desk.settings.get("known") or ()]
    told += [("A verified program for a similar task", one) for one in desk.settings.get("neighbours") or ()]
    for title, one in told[: desk.tools.limits.kernels]:
        entry: Mapping[str, Any] = one if isinstance(one, Mapping) else {"program": one}
        key = str(entry["program"])
        name = f" ({entry['task_name']})" if entry.get("task_name") else ""
        builder.add("kernel", title + name, shown(desk.tools.archive.program(key)), key)


def _add_exemplars(desk: PromptSession, builder: ContextBuilder) -> None:
    """Scored programs of this run from different performance buckets: those the policy named, or else the view's."""
    parent = desk.ask.parents[0].program.key if desk.ask.parents else ""
    named = desk.ask.expansion.inspirations or exemplars(desk.ask.view, parent)
    best = fitness.score(desk.ask.view.best.evaluation) if desk.ask.view.best else None
    for key in [key for key in named if key != parent][: desk.tools.limits.exemplars]:
        evaluation = desk.evaluation(key)
        words = score_words(evaluation) if evaluation is not None else "verified"
        mine = fitness.score(evaluation)
        if mine is not None and best is not None and mine.kind == best.kind and best.value > 0:
            words += f", {mine.value / best.value:.3g} times the best program's time"
        builder.add("exemplar", f"A verified program of this run: {words}", shown(desk.tools.archive.program(key)), key)


# ---------------------------------------------------------------- judge and lessons


def judgement(desk: PromptSession, program: Program, evaluation: Evaluation) -> Steps[judge.ProgramBottleneck | None]:
    """The one bottleneck, by the engine mind or a model; None where the judge is off or nothing is known."""
    if not desk.on(judge.NAME):
        return None
    found, mind = judge.bottleneck(evaluation), "engine"
    if judge.NAME in desk.tools.llm_roles:
        asked = Message(role="user", text=judge.question(program, evaluation))
        answer = yield from desk.say(judge.NAME, [asked])
        told = judge.answered(answer.text)
        found, mind = (told, "llm") if told is not None else (found, "engine")
    if found is not None:
        desk.notes["bottleneck"] = {"name": found.name, "what": found.what, "mind": mind}
    return found


def with_lessons(desk: PromptSession, builder: ContextBuilder) -> Steps[None]:
    """Add the lessons of the run so far, worded by the engine mind or a model; the counts are the log's."""
    found = lessons.lessons(desk.ask.view) if desk.on(lessons.NAME) else []
    if found and lessons.NAME in desk.tools.llm_roles:
        answer = yield from desk.say(lessons.NAME, [Message(role="user", text=lessons.question(found))])
        found = lessons.reworded(found, answer.text)
    if found:
        builder.add("lessons", "Lessons of this run", "\n".join(f"- {one.text}" for one in found))
        desk.notes["lessons"] = [{"kind": one.kind, "count": one.count, "guidance": one.guidance} for one in found]
