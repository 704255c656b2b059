"""The sections shared by prompts of translator, optimizer and planner, and the notes about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hipwright.agents import judge, lessons
from hipwright.agents.base import fence
from hipwright.agents.context import (
    ContextBuilder,
    PromptContext,
    demote_headings,
    target_pages,
    task_text,
    technique_pages,
    tokens,
    without_example,
)
from hipwright.agents.evidence import describe_score, program_block
from hipwright.agents.prompt_session import Conversation, PromptSession, system
from hipwright.archive.log import AUTHOR_NOTE
from hipwright.llm.records import Message
from hipwright.records import Evaluation, Program
from hipwright.search import fitness
from hipwright.search.policies.llm_share import exemplars
from hipwright.search.start import SETTING as START_SETTING

INSTRUCTION_TOKENS = 400
"""The part of the budget that is reserved for the template's own text."""


def context_builder(session: PromptSession, *, failure: str = "") -> ContextBuilder:
    """Returns a builder with the task, target facts, retrieved pages, kernels, exemplars and recent failures.

    failure: the evidence of a repair, whose prompt gets one page similar to it, and no other programs or failures.
    """
    tools, limits = session.tools, session.tools.limits
    builder = ContextBuilder(limits.prompt_tokens - tokens(system(tools.targets)) - INSTRUCTION_TOKENS)
    builder.add("task", "The reference", task_text(tools.task, tools.graph_text))
    for page in target_pages(tools.targets, tools.graph_text):
        builder.add("target", f"The target: {page.title}", demote_headings(without_example(page)), page.name)
    if session.enabled("retrieval"):
        query, most = f"{failure}\n{tools.graph_text}", min(limits.pages, 1) if failure else limits.pages
        for page in technique_pages(query, tools.targets, most):
            builder.add("page", f"A technique that may fit: {page.title}", demote_headings(page.text), page.name)
    if failure:
        return builder
    _add_start(session, builder)
    if session.enabled("retrieval"):
        _add_kernels(session, builder)
    _add_exemplars(session, builder)
    if session.enabled("failure_memory"):
        lines = lessons.recent_failures(session.ask.view, limits.failures)
        builder.add("failures", "What failed lately in this run", "\n".join(f"- {line}" for line in lines))
    return builder


def build_context(session: PromptSession, builder: ContextBuilder) -> PromptContext:
    """Builds the context; notes which pages, kernels and exemplars it holds, and what was dropped."""
    context = builder.build()
    if retrieved := context.names("page") + context.names("kernel"):
        session.notes["retrieved"] = retrieved
    if shown_programs := context.names("exemplar"):
        session.notes["exemplars"] = shown_programs
    if context.dropped:
        session.notes["dropped"] = list(context.dropped)
    return context


# ---------------------------------------------------------------- programs


def _add_start(session: PromptSession, builder: ContextBuilder) -> None:
    """Adds the kernel that the run began with, where it is no verified program of the run: those are parents."""
    setting: Mapping[str, Any] = session.ask.view.settings.get(START_SETTING) or {}
    key = str(setting.get("program", ""))
    evaluation = session.evaluation(key) if key else None
    if not setting or (evaluation is not None and evaluation.passed):
        return
    name = str(setting.get("name", ""))
    if not key:
        title = f"The caller's own kernel, {name}, a text that is no program: write what it does as one"
        builder.add("start", title, fence(str(setting.get("text", "")), ""), name)
    elif evaluation is not None:
        title = f"The caller's own kernel, {name}, which was refused: {evaluation.status}: {evaluation.message}"
        builder.add("start", title[:400], program_block(session.tools.archive.program(key)), name)


def _add_kernels(session: PromptSession, builder: ContextBuilder) -> None:
    """Adds programs of the run's archive snapshot: of this task's earlier runs, then of similar tasks."""
    titled = [
        ("A verified program for this task, from an earlier run", one) for one in session.settings.get("known") or ()
    ]
    titled += [("A verified program for a similar task", one) for one in session.settings.get("neighbours") or ()]
    for title, one in titled[: session.tools.limits.kernels]:
        entry: Mapping[str, Any] = one if isinstance(one, Mapping) else {"program": one}
        key = str(entry["program"])
        name = f" ({entry['task_name']})" if entry.get("task_name") else ""
        builder.add("kernel", title + name, program_block(session.tools.archive.program(key)), key)


def _add_exemplars(session: PromptSession, builder: ContextBuilder) -> None:
    """Adds scored programs of this run from different performance buckets: the policy's, else the view's."""
    parent = session.ask.parents[0].program.key if session.ask.parents else ""
    named = session.ask.expansion.inspirations or exemplars(session.ask.view, parent)
    best = fitness.score(session.ask.view.best.evaluation) if session.ask.view.best else None
    for key in [key for key in named if key != parent][: session.tools.limits.exemplars]:
        evaluation = session.evaluation(key)
        figures_text = describe_score(evaluation) if evaluation is not None else "verified"
        mine = fitness.score(evaluation)
        if mine is not None and best is not None and mine.kind == best.kind and best.value > 0:
            figures_text += f", {mine.value / best.value:.3g} times the best program's time"
        builder.add(
            "exemplar",
            f"A verified program of this run: {figures_text}",
            program_block(session.tools.archive.program(key)),
            key,
        )


# ---------------------------------------------------------------- judge and lessons


def find_bottleneck(
    session: PromptSession, program: Program, evaluation: Evaluation
) -> Conversation[judge.ProgramBottleneck | None]:
    """Finds the one bottleneck, by the engine's rules or a model; None without the judge or without figures."""
    if not session.enabled(judge.NAME):
        return None
    counted = session.ask.view.counted.get(program.key)
    found, author = judge.bottleneck(evaluation, counted), "engine"
    if judge.NAME in session.tools.llm_roles:
        asked = Message(role="user", text=judge.bottleneck_prompt(program, evaluation, counted))
        answer = yield from session.ask_model(judge.NAME, [asked])
        named = judge.read_bottleneck(answer.text)
        found, author = (named, "llm") if named is not None else (found, "engine")
    if found is not None:
        session.notes["bottleneck"] = {"name": found.name, "what": found.what, AUTHOR_NOTE: author}
    return found


def add_lessons(session: PromptSession, builder: ContextBuilder) -> Conversation[None]:
    """Adds the run's lessons, worded by the engine or a model; the counts are the log's."""
    found = lessons.lessons(session.ask.view) if session.enabled(lessons.NAME) else []
    if found and lessons.NAME in session.tools.llm_roles:
        answer = yield from session.ask_model(lessons.NAME, [Message(role="user", text=lessons.guidance_prompt(found))])
        found = lessons.with_guidance(found, answer.text)
    if found:
        builder.add("lessons", "Lessons of this run", "\n".join(f"- {one.text}" for one in found))
        session.notes["lessons"] = [{"kind": one.kind, "count": one.count, "guidance": one.guidance} for one in found]
