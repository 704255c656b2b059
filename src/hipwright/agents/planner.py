"""The planner: strategies before code. One call lists them; the optimizer's next call implements the first untried."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from hipwright.agents.base import render
from hipwright.agents.evidence import clean, reason
from hipwright.agents.optimizer import improvement_context, write_change
from hipwright.agents.prompt_sections import finish
from hipwright.agents.prompt_session import Conversation, PromptSession, system
from hipwright.agents.translator import Translator
from hipwright.llm.records import Message
from hipwright.records import Record
from hipwright.search.interfaces import Proposal
from hipwright.search.view import Trial

NAME = "planner"
MOST = 8  # strategies of one answer that are read


class Strategy(Record, frozen=True, kw_only=True):
    """One way to make the program faster. title: a few words, which also tell whether it was tried."""

    title: str
    change: str = ""
    why: str = ""

    @property
    def tag(self) -> str:
        """The title without case and punctuation."""
        return re.sub(r"[^a-z0-9]+", " ", self.title.lower()).strip()


class StrategyPlanner:
    """Plans, then has the first untried strategy implemented. With no parent there is nothing to plan yet."""

    name = NAME

    def converse(self, session: PromptSession) -> Conversation[Proposal]:
        """The call for the plan, then the one for the code; an unreadable plan leaves the model its own idea."""
        if not session.ask.parents:
            return (yield from Translator().converse(session))
        builder, judged = yield from improvement_context(session)
        if not session.enabled(NAME):
            return (yield from write_change(session, builder, judged))
        done = tried(session)
        prompt = render("planner", context=finish(session, builder).text, tried=[line for _, line in done])
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
    """(tag, line) of each strategy that this run has tried, oldest first, with what became of it."""
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
    """What an answer lists, however it wrapped it: JSON, JSON that was cut off, or a numbered list."""
    found = [one for item in _objects(text) if (one := _strategy(item)) is not None] or _numbered(text)
    unique: dict[str, Strategy] = {}
    for one in found:
        unique.setdefault(one.tag, one)
    return list(unique.values())[:MOST]


def _objects(text: str) -> Iterator[Any]:
    """Every JSON object that stands whole in the text and holds no list of others."""
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
    told = {str(key).lower(): clean(str(value)) for key, value in item.items() if isinstance(value, (str, int, float))}
    title = next((told[key] for key in ("title", "strategy", "name", "change") if told.get(key)), "")
    if not title:
        return None
    change = next((told[key] for key in ("change", "description", "how", "details") if told.get(key)), "")
    strategy = Strategy(title=title[:120], change=change, why=told.get("why", ""))
    return strategy if strategy.tag else None


def _numbered(text: str) -> list[Strategy]:
    """Lines such as "1. Vectorise loads: use float4"."""
    found = []
    for line in re.findall(r"^\s*(?:\d+[.)]|[-*])\s+(.+)$", text, re.MULTILINE):
        title, _, change = clean(re.sub(r"[*`_]{1,3}", "", line)).partition(": ")
        strategy = Strategy(title=title[:120], change=change)
        found += [strategy] if strategy.tag else []
    return found
