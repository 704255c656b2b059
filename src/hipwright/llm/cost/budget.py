"""Hard limits in dollars and tokens: reserved before a call is sent, settled when its cost is known.

Always spent + held <= limit, as long as no call costs more than it reserved (`overshot` lists those that did). Money is
counted in whole billionths of a dollar, so that the order of calls does not change a sum.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from fractions import Fraction

from hipwright.errors import BadInput, OutOfBudget
from hipwright.llm.call_log import CallLog
from hipwright.records import Record

NANO = 10**9  # of a dollar; a call's cost is rounded up to it once


class SpendingLimits(Record, frozen=True, kw_only=True):
    """The limits of a run's spending on language models; None: no limit."""

    usd: float | None = None
    tokens: int | None = None


class Spent(Record, frozen=True, kw_only=True):
    """Spending, and what is held for calls in progress. tokens: input plus output."""

    usd: float = 0.0
    tokens: int = 0
    held_usd: float = 0.0
    held_tokens: int = 0


@dataclass(eq=False)
class BudgetReservation:
    """Money held for one attempt. nano: billionths of a dollar. overshot: the attempt cost more than this."""

    nano: int
    tokens: int
    overshot: bool = field(default=False, init=False)


def to_nano(usd: float, *, up: bool = True) -> int:
    """Converts to billionths of a dollar, rounded up (down for a limit). 0.1 is exactly a tenth."""
    if not math.isfinite(usd) or usd < 0:
        raise ValueError(f"not an amount of money: {usd}")
    exact = Fraction(repr(float(usd))) * NANO
    return math.ceil(exact) if up else math.floor(exact)


class Budget:
    """Tracks spending against the limits. Thread-safe."""

    def __init__(self, limits: SpendingLimits, spent_usd: float = 0.0, spent_tokens: int = 0) -> None:
        try:
            self._limit = None if limits.usd is None else to_nano(limits.usd, up=False)
        except ValueError:
            raise BadInput(f"--max-usd {limits.usd} is not an amount of money") from None
        if limits.tokens is not None and limits.tokens < 0:
            raise BadInput(f"--max-tokens {limits.tokens} is below zero")
        self.limits = limits
        self._mutex = threading.Lock()
        self._spent, self._spent_tokens = to_nano(spent_usd), spent_tokens
        self._held = self._held_tokens = 0
        self._open: set[BudgetReservation] = set()
        self._overshot: list[BudgetReservation] = []

    @classmethod
    def resumed(cls, limits: SpendingLimits, log: CallLog) -> Budget:
        """The budget of a resumed run: answers at their cost, lost attempts at their reserved cost."""
        answers, lost = log.answers(), log.lost()
        nano = sum(to_nano(a.cost_usd) for a in answers) + sum(to_nano(r.cost_usd) for r in lost)
        tokens = sum(a.usage.input_tokens + a.usage.output_tokens for a in answers) + sum(r.tokens for r in lost)
        budget = cls(limits, spent_tokens=tokens)
        budget._spent = nano
        return budget

    def reserve(self, cost_usd: float, tokens: int) -> BudgetReservation:
        """Holds the most that a call may cost. OutOfBudget if spent + held + this exceeds a limit.

        The error's evidence has `limit` ("usd" or "tokens"), `left` (what no call holds) and `asked`.
        """
        reservation = BudgetReservation(to_nano(cost_usd), _count(tokens))
        with self._mutex:
            self._check(reservation)
            self._open.add(reservation)
            self._held += reservation.nano
            self._held_tokens += reservation.tokens
        return reservation

    def settle(self, reservation: BudgetReservation, cost_usd: float, tokens: int) -> None:
        """Counts what a call cost and releases the rest. More than was held is counted too, and marked `overshot`."""
        nano, tokens = to_nano(cost_usd), _count(tokens)
        with self._mutex:
            self._release(reservation)
            self._spent += nano
            self._spent_tokens += tokens
            if nano > reservation.nano or tokens > reservation.tokens:
                reservation.overshot = True
                self._overshot.append(reservation)

    def cancel(self, reservation: BudgetReservation) -> None:
        """Releases the reservation: the call was not sent, or refused unbilled."""
        with self._mutex:
            self._release(reservation)

    @property
    def spent(self) -> Spent:
        """The current spending and reservations."""
        with self._mutex:
            return Spent(
                usd=self._spent / NANO,
                tokens=self._spent_tokens,
                held_usd=self._held / NANO,
                held_tokens=self._held_tokens,
            )

    @property
    def overshot(self) -> tuple[BudgetReservation, ...]:
        """The calls that cost more than reserved, oldest first: the provider broke its own limits or prices."""
        with self._mutex:
            return tuple(self._overshot)

    def _check(self, reservation: BudgetReservation) -> None:
        if self._limit is not None and self._spent + self._held + reservation.nano > self._limit:
            left = max(0, self._limit - self._spent - self._held)
            raise OutOfBudget(
                f"a call may cost up to ${reservation.nano / NANO:.6f}, and of --max-usd {self.limits.usd} only "
                f"${left / NANO:.6f} is left (${self._spent / NANO:.6f} spent, ${self._held / NANO:.6f} held)",
                hint="raise --max-usd",
                evidence={"limit": "usd", "left": left / NANO, "asked": reservation.nano / NANO},
            )
        allowed = self.limits.tokens
        if allowed is not None and self._spent_tokens + self._held_tokens + reservation.tokens > allowed:
            left = max(0, allowed - self._spent_tokens - self._held_tokens)
            raise OutOfBudget(
                f"a call may take up to {reservation.tokens} tokens, and of --max-tokens {allowed} only {left} "
                f"are left ({self._spent_tokens} spent, {self._held_tokens} held)",
                hint="raise --max-tokens",
                evidence={"limit": "tokens", "left": left, "asked": reservation.tokens},
            )

    def _release(self, reservation: BudgetReservation) -> None:
        if reservation not in self._open:
            raise ValueError("this reservation is not open: it was settled or cancelled before")
        self._open.remove(reservation)
        self._held -= reservation.nano
        self._held_tokens -= reservation.tokens


def _count(tokens: int) -> int:
    if tokens < 0:
        raise ValueError(f"not a number of tokens: {tokens}")
    return tokens
