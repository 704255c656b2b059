"""Sums the cost of a log's calls by role and model, for results, reports and `show`."""

from __future__ import annotations

from hipwright.llm.call_log import RecordedCallLog, RefusedCall
from hipwright.records import Record


class RoleSpending(Record, frozen=True, kw_only=True):
    """The calls of one role to one model. usd: dollars of the priced ones."""

    role: str
    model: str
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float = 0.0
    unpriced: int = 0


class Silence(Record, frozen=True, kw_only=True):
    """The calls to one model that its provider left without an answer. why, hint: of the first."""

    model: str
    calls: int
    why: str
    hint: str = ""


class Spending(Record, frozen=True, kw_only=True):
    """All calls. tokens: input plus output. lost: attempts without an answer, at their reserved cost.

    unpriced: calls to models without a known price; their cost is unknown, not zero. refused: calls that ended without
    an answer (by a limit or the provider). silent: those by the provider, by model.
    """

    calls: int = 0
    tokens: int = 0
    usd: float = 0.0
    unpriced: int = 0
    lost: int = 0
    lost_usd: float = 0.0
    refused: int = 0
    silent: tuple[Silence, ...] = ()
    shares: tuple[RoleSpending, ...] = ()


def spending(log: RecordedCallLog) -> Spending:
    """Sums a log; shares are sorted by role and model."""
    asked = {reserved.request.key: reserved.request for reserved in log.reservations()}
    groups: dict[tuple[str, str], dict[str, float]] = {}
    answers, lost = log.answers(), log.lost()
    for answer in answers:
        request = asked[answer.request]
        group = groups.setdefault((request.role, request.model), dict.fromkeys(_COUNTED, 0))
        group["calls"] += 1
        group["input_tokens"] += answer.usage.input_tokens
        group["output_tokens"] += answer.usage.output_tokens
        group["usd"] += answer.cost_usd
        group["unpriced"] += not answer.priced
    return Spending(
        calls=len(answers),
        tokens=sum(a.usage.input_tokens + a.usage.output_tokens for a in answers),
        usd=sum(a.cost_usd for a in answers),
        unpriced=sum(not a.priced for a in answers),
        lost=len(lost),
        lost_usd=sum(reserved.cost_usd for reserved in lost),
        refused=len(log.refusals()),
        silent=_silent(log),
        shares=tuple(
            RoleSpending(role=role, model=model, usd=group["usd"], **{n: int(group[n]) for n in _COUNTED if n != "usd"})
            for (role, model), group in sorted(groups.items())
        ),
    )


def _silent(log: RecordedCallLog) -> tuple[Silence, ...]:
    refused: dict[str, list[RefusedCall]] = {}
    for one in log.refusals():
        if one.error == "ProviderError":
            refused.setdefault(one.request.model, []).append(one)
    return tuple(
        Silence(model=model, calls=len(calls), why=calls[0].message, hint=calls[0].hint)
        for model, calls in refused.items()
    )


_COUNTED = ("calls", "input_tokens", "output_tokens", "usd", "unpriced")
