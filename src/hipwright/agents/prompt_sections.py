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
from hipwright.agents.evidence import program_block, score_words
from hipwright.agents.prompt_session import Conversation, PromptSession, system
from hipwright.archive.log import AUTHOR_NOTE
from hipwright.llm.records import Message
from hipwright.records import Evaluation, Program
from hipwright.search import fitness
from hipwright.search.policies.llm_share import exemplars

INSTRUCTION_TOKENS = 400
"""Kept free of the budget for a template's own words."""


def context_builder(session: PromptSession, *, failure: str = "") -> ContextBuilder:
    """A builder with the task, the targets' facts and what retrieval, the archive and the failures bring.

    failure: the evidence of a repair, which gets one page that fits it, and no other programs or failures.
    """
    tools, limits = session.tools, session.tools.limits
    builder = ContextBuilder(limits.prompt_tokens - tokens(system(tools.targets)) - INSTRUCTION_TOKENS)
    builder.add("task", "The reference", task_text(tools.task, tools.graph_text))
    for page in target_pages(tools.targets, tools.graph_text):
        builder.add("target", f"The target: {page.title}", demoted(facts(page)), page.name)
    if session.enabled("retrieval"):
        query, most = f"{failure}\n{tools.graph_text}", min(limits.pages, 1) if failure else limits.pages
        for page in technique_pages(query, tools.targets, most):
            builder.add("page", f"A technique that may fit: {page.title}", demoted(page.text), page.name)
    if failure:
        return builder
    if session.enabled("retrieval"):
        _add_kernels(session, builder)
    _add_exemplars(session, builder)
    if session.enabled("failure_memory"):
        lines = lessons.recent_failures(session.ask.view, limits.failures)
        builder.add("failures", "What failed lately in this run", "\n".join(f"- {line}" for line in lines))
    return builder


def finish(session: PromptSession, builder: ContextBuilder) -> PromptContext:
    """The parts that fit; the notes say which pages, kernels and exemplars are in, and what was dropped."""
    context = builder.build()
    if retrieved := context.names("page") + context.names("kernel"):
        session.notes["retrieved"] = retrieved
    if shown_programs := context.names("exemplar"):
        session.notes["exemplars"] = shown_programs
    if context.dropped:
        session.notes["dropped"] = list(context.dropped)
    return context


# ---------------------------------------------------------------- programs


def _add_kernels(session: PromptSession, builder: ContextBuilder) -> None:
    """The run's snapshot of the archive: verified programs of this task's earlier runs, then of similar tasks."""
    told = [
        ("A verified program for this task, from an earlier run", one) for one in session.settings.get("known") or ()
    ]
    told += [("A verified program for a similar task", one) for one in session.settings.get("neighbours") or ()]
    for title, one in told[: session.tools.limits.kernels]:
        entry: Mapping[str, Any] = one if isinstance(one, Mapping) else {"program": one}
        key = str(entry["program"])
        name = f" ({entry['task_name']})" if entry.get("task_name") else ""
        builder.add("kernel", title + name, program_block(session.tools.archive.program(key)), key)


def _add_exemplars(session: PromptSession, builder: ContextBuilder) -> None:
    """Scored programs of this run from different performance buckets: those the policy named, or else the view's."""
    parent = session.ask.parents[0].program.key if session.ask.parents else ""
    named = session.ask.expansion.inspirations or exemplars(session.ask.view, parent)
    best = fitness.score(session.ask.view.best.evaluation) if session.ask.view.best else None
    for key in [key for key in named if key != parent][: session.tools.limits.exemplars]:
        evaluation = session.evaluation(key)
        words = score_words(evaluation) if evaluation is not None else "verified"
        mine = fitness.score(evaluation)
        if mine is not None and best is not None and mine.kind == best.kind and best.value > 0:
            words += f", {mine.value / best.value:.3g} times the best program's time"
        builder.add(
            "exemplar",
            f"A verified program of this run: {words}",
            program_block(session.tools.archive.program(key)),
            key,
        )


# ---------------------------------------------------------------- judge and lessons


def find_bottleneck(
    session: PromptSession, program: Program, evaluation: Evaluation
) -> Conversation[judge.ProgramBottleneck | None]:
    """The one bottleneck, by the engine mind or a model; None where the judge is off or nothing is known."""
    if not session.enabled(judge.NAME):
        return None
    found, author = judge.bottleneck(evaluation), "engine"
    if judge.NAME in session.tools.llm_roles:
        asked = Message(role="user", text=judge.question(program, evaluation))
        answer = yield from session.ask_model(judge.NAME, [asked])
        told = judge.answered(answer.text)
        found, author = (told, "llm") if told is not None else (found, "engine")
    if found is not None:
        session.notes["bottleneck"] = {"name": found.name, "what": found.what, AUTHOR_NOTE: author}
    return found


def add_lessons(session: PromptSession, builder: ContextBuilder) -> Conversation[None]:
    """Add the lessons of the run so far, worded by the engine mind or a model; the counts are the log's."""
    found = lessons.lessons(session.ask.view) if session.enabled(lessons.NAME) else []
    if found and lessons.NAME in session.tools.llm_roles:
        answer = yield from session.ask_model(lessons.NAME, [Message(role="user", text=lessons.question(found))])
        found = lessons.reworded(found, answer.text)
    if found:
        builder.add("lessons", "Lessons of this run", "\n".join(f"- {one.text}" for one in found))
        session.notes["lessons"] = [{"kind": one.kind, "count": one.count, "guidance": one.guidance} for one in found]
