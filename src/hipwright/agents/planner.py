"""The planner role: one call lists strategies, a second one implements the first untried strategy."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from hipwright.agents.base import render
from hipwright.agents.evidence import clean, reason
from hipwright.agents.optimizer import improvement_context, write_change
from hipwright.agents.prompt_sections import build_context
from hipwright.agents.prompt_session import Conversation, PromptSession, system
from hipwright.agents.translator import Translator
from hipwright.llm.records import Message
from hipwright.records import Record
from hipwright.search.interfaces import Proposal
from hipwright.search.view import Trial

NAME = "planner"
MOST = 8  # strategies read of one answer


class Strategy(Record, frozen=True, kw_only=True):
    """One way to make the program faster. title: a few words, which identify it."""

    title: str
    change: str = ""
    why: str = ""

    @property
    def tag(self) -> str:
        """The title without case and punctuation, for comparison."""
        return re.sub(r"[^a-z0-9]+", " ", self.title.lower()).strip()


class StrategyPlanner:
    """Asks for strategies, then for the program of the first untried one; without a parent it translates."""

    name = NAME

    def converse(self, session: PromptSession) -> Conversation[Proposal]:
        """Asks for the plan, then for the code; after an unreadable plan the model follows its own idea."""
        if not session.ask.parents:
            return (yield from Translator().converse(session))
        builder, judged = yield from improvement_context(session)
        if not session.enabled(NAME):
            return (yield from write_change(session, builder, judged))
        done = tried(session)
        prompt = render("planner", context=build_context(session, builder).text, tried=[line for _, line in done])
        opening = [Message(role="system", text=system(session.tools.targets)), Message(role="user", text=prompt)]
        answer = yield from session.ask_model(NAME, opening)
        listed = strategies(answer.text)
        known = {tag for tag, _ in done}
        chosen = next((one for one in listed if one.tag not in known), None)
        session.notes["plan"] = {"listed": [one.title for one in listed]}
        if chosen is None:
            return (yield from write_change(session, builder, judged))
        session.notes["plan"] |= {"title": chosen.title, "change": chosen.change, "why": chosen.why}
        return (yield from write_change(session, builder, judged, {"title": chosen.title, "change": chosen.change}))


def tried(session: PromptSession) -> list[tuple[str, str]]:
    """(tag, line with the outcome) of each strategy that this run has tried, oldest first."""
    found = []
    for trial in session.ask.view.trials:
        plan = trial.proposed.notes.get("plan")
        if isinstance(plan, dict) and isinstance(plan.get("title"), str):
            strategy = Strategy(title=plan["title"])
            found.append((strategy.tag, f"{strategy.title}: {_outcome(trial)}"))
    return found


def _outcome(trial: Trial) -> str:
    if trial.evaluation is None:
        return "the same program again" if trial.proposed.duplicate_of is not None else "no program came of it"
    if not trial.passed:
        return f"failed, {reason(trial.evaluation)}"
    return "the best program so far" if trial.decision and trial.decision.best else "right, but not faster"


# ---------------------------------------------------------------- reading an answer


def strategies(text: str) -> list[Strategy]:
    """Reads the strategies of an answer: JSON, truncated JSON, or a numbered list."""
    found = [one for item in _objects(text) if (one := _strategy(item)) is not None] or _numbered(text)
    unique: dict[str, Strategy] = {}
    for one in found:
        unique.setdefault(one.tag, one)
    return list(unique.values())[:MOST]


def _objects(text: str) -> Iterator[Any]:
    """Yields every complete JSON object of the text that holds no list."""
    decoder, at = json.JSONDecoder(), 0
    while (at := text.find("{", at)) >= 0:
        try:
            item, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
            continue
        if any(isinstance(value, list) for value in item.values()):
            at += 1  # an object around the list, such as {"strategies": [...]}
            continue
        yield item
        at = end


def _strategy(item: Any) -> Strategy | None:
    fields = {
        str(key).lower(): clean(str(value)) for key, value in item.items() if isinstance(value, (str, int, float))
    }
    title = next((fields[key] for key in ("title", "strategy", "name", "change") if fields.get(key)), "")
    if not title:
        return None
    change = next((fields[key] for key in ("change", "description", "how", "details") if fields.get(key)), "")
    strategy = Strategy(title=title[:120], change=change, why=fields.get("why", ""))
    return strategy if strategy.tag else None


def _numbered(text: str) -> list[Strategy]:
    """Reads lines such as "1. Vectorise loads: use float4"."""
    found = []
    for line in re.findall(r"^\s*(?:\d+[.)]|[-*])\s+(.+)$", text, re.MULTILINE):
        title, _, change = clean(re.sub(r"[*`_]{1,3}", "", line)).partition(": ")
        strategy = Strategy(title=title[:120], change=change)
        found += [strategy] if strategy.tag else []
    return found
