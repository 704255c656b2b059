"""Limits in dollars and tokens: never exceeded in any order, exact, and continued by a resumed run."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipwright.errors import BadInput, OutOfBudget, ProviderError
from hipwright.llm.call_log import MemoryCallLog
from hipwright.llm.client import Client
from hipwright.llm.cost.budget import NANO, Budget, BudgetReservation, SpendingLimits, to_nano
from hipwright.llm.cost.prices import Prices, parse_prices
from hipwright.llm.records import Usage
from tests.llm.calls.call_log_contract import answer, request, reserved
from tests.llm.server import LocalProvider, wrong_key


def exact(usd: float) -> int:
    """The reference conversion of an amount to billionths: rounded up, by decimals."""
    return int((Decimal(str(usd)) * NANO).to_integral_value(ROUND_CEILING))


class Model:
    """A model of the budget in billionths of a dollar, which checks the invariant after every step."""

    def __init__(self, budget: Budget, usd: float | None, tokens: int | None) -> None:
        self.budget, self.reservations = budget, dict[BudgetReservation, tuple[int, int]]()
        self.limit = None if usd is None else Decimal(str(usd)) * NANO
        self.tokens, self.spent = tokens, (0, 0)

    @property
    def held(self) -> tuple[int, int]:
        return sum(t[0] for t in self.reservations.values()), sum(t[1] for t in self.reservations.values())

    def reserve(self, usd: float, tokens: int) -> None:
        (spent, spent_tokens), (held, held_tokens) = self.spent, self.held
        over = self.limit is not None and spent + held + exact(usd) > self.limit
        over |= self.tokens is not None and spent_tokens + held_tokens + tokens > self.tokens
        if over:
            with pytest.raises(OutOfBudget):
                self.budget.reserve(usd, tokens)
        else:
            self.reservations[self.budget.reserve(usd, tokens)] = (exact(usd), tokens)

    def end(self, reservation: BudgetReservation, usd: float | None, tokens: int) -> None:
        del self.reservations[reservation]
        if usd is None:
            self.budget.cancel(reservation)
        else:
            self.budget.settle(reservation, usd, tokens)
            self.spent = (self.spent[0] + exact(usd), self.spent[1] + tokens)

    def check(self) -> None:
        (spent, spent_tokens), (held, held_tokens), now = self.spent, self.held, self.budget.spent
        assert (now.usd, now.tokens, now.held_usd, now.held_tokens) == (
            spent / NANO,
            spent_tokens,
            held / NANO,
            held_tokens,
        )
        assert self.limit is None or spent + held <= self.limit
        assert self.tokens is None or spent_tokens + held_tokens <= self.tokens


def interleaving(rng: random.Random) -> bool:
    """Runs one random history; True if it reached the limit."""
    usd = rng.choice([None, round(rng.uniform(0, 2), rng.randrange(10)), 0.3])
    tokens = rng.choice([None, rng.randrange(5000)])
    model = Model(Budget(SpendingLimits(usd=usd, tokens=tokens)), usd, tokens)
    refused = False
    for _ in range(rng.randrange(2, 24)):
        if rng.random() < 0.55 or not model.reservations:
            before = len(model.reservations)
            model.reserve(rng.choice([0.1, 0.0, rng.random() / 3]), rng.randrange(900))
            refused |= len(model.reservations) == before
        else:
            reservation = rng.choice(list(model.reservations))
            cost, most = model.reservations[reservation]
            share = rng.choice([0, 1, rng.random()])
            paid = None if rng.random() < 0.25 else cost * share / NANO
            model.end(reservation, paid, int(most * share))
        model.check()
    return refused


def test_ten_thousand_random_interleavings_never_exceed_the_limit() -> None:
    refused = sum(interleaving(random.Random(seed)) for seed in range(10_000))
    assert 2_000 < refused < 9_000  # both sides of the limit were met


def test_no_cent_is_lost_or_found_by_rounding() -> None:
    budget = Budget(SpendingLimits(usd=1.0))
    for _ in range(10):
        budget.settle(budget.reserve(0.1, 1), 0.1, 1)  # ten binary tenths are more than one
    assert budget.spent.usd == 1.0
    with pytest.raises(OutOfBudget):
        budget.reserve(1e-9, 0)
    budget.reserve(0.0, 0)


class Interrupted(Budget):
    """Yields to other threads where a missing lock would show: after the check, and after a release."""

    def _check(self, reservation: BudgetReservation) -> None:
        super()._check(reservation)
        time.sleep(1e-4)

    def _release(self, reservation: BudgetReservation) -> None:
        super()._release(reservation)
        time.sleep(1e-4)


def test_many_threads_never_exceed_the_limit_and_cancelled_money_comes_back() -> None:
    limits = SpendingLimits(usd=5.0, tokens=20_000)
    budget, errors, stop = Interrupted(limits), list[BaseException](), threading.Event()
    paid: list[tuple[int, int]] = []

    def worker(seed: int) -> None:
        rng = random.Random(seed)
        try:
            for _ in range(100):
                cost, tokens = rng.randrange(1, 10**8), rng.randrange(1, 900)
                try:
                    reservation = budget.reserve(cost / NANO, tokens)
                except OutOfBudget:
                    continue
                if rng.random() < 0.4:
                    budget.cancel(reservation)
                else:
                    share = rng.random()
                    budget.settle(reservation, int(cost * share) / NANO, int(tokens * share))
                    paid.append((int(cost * share), int(tokens * share)))
        except BaseException as error:
            errors.append(error)

    def watcher() -> None:
        while not stop.is_set():
            now = budget.spent
            if to_nano(now.usd) + to_nano(now.held_usd) > 5 * NANO or now.tokens + now.held_tokens > 20_000:
                errors.append(AssertionError(now))
            time.sleep(1e-4)

    threads = [threading.Thread(target=worker, args=(seed,)) for seed in range(4)]
    watching = threading.Thread(target=watcher)
    for thread in (*threads, watching):
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    watching.join()
    assert not errors
    now = budget.spent
    assert (now.held_usd, now.held_tokens) == (0.0, 0)
    assert now.usd == sum(cost for cost, _ in paid) / NANO and now.tokens == sum(tokens for _, tokens in paid)
    assert now.tokens > 15_000, "the limit was never near"
    budget.reserve((5 * NANO - to_nano(now.usd)) / NANO, 20_000 - now.tokens)  # all that is left, and no less


def test_calls_that_ask_at_once_do_not_share_what_is_left() -> None:
    budget, together = Interrupted(SpendingLimits(usd=1.0)), threading.Barrier(8)
    given: list[BudgetReservation] = []

    def ask() -> None:
        together.wait()
        with contextlib.suppress(OutOfBudget):
            given.append(budget.reserve(0.3, 1))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(given) == 3 and budget.spent.held_usd == 0.9


def test_money_is_never_neither_held_nor_spent() -> None:
    released = threading.Event()

    class Halfway(Budget):
        def _release(self, reservation: BudgetReservation) -> None:
            super()._release(reservation)
            released.set()
            time.sleep(0.05)

    budget = Halfway(SpendingLimits(usd=1.0))
    reservation = budget.reserve(1.0, 1)
    settling = threading.Thread(target=budget.settle, args=(reservation, 1.0, 1))
    settling.start()
    assert released.wait(10)
    with pytest.raises(OutOfBudget):
        budget.reserve(0.5, 1)
    settling.join()


def test_what_is_left_can_be_spent_to_the_last_billionth() -> None:
    budget = Budget(SpendingLimits(usd=0.3, tokens=10), spent_usd=0.1, spent_tokens=4)
    reservation = budget.reserve(0.2, 6)
    with pytest.raises(OutOfBudget):
        budget.reserve(0.0, 1)
    budget.cancel(reservation)
    assert budget.spent.held_usd == 0 and budget.spent.held_tokens == 0
    budget.settle(budget.reserve(0.2, 6), 0.2, 6)
    assert (budget.spent.usd, budget.spent.tokens) == (0.3, 10)


def test_the_error_says_what_is_left_of_which_limit() -> None:
    budget = Budget(SpendingLimits(usd=1.0, tokens=100))
    budget.reserve(0.75, 60)
    with pytest.raises(OutOfBudget, match=r"\$0\.250000 is left") as caught:
        budget.reserve(0.5, 1)
    assert caught.value.evidence == {"limit": "usd", "left": 0.25, "asked": 0.5} and "--max-usd" in caught.value.hint
    with pytest.raises(OutOfBudget, match="only 40 are left") as caught:
        budget.reserve(0.1, 41)
    assert caught.value.evidence == {"limit": "tokens", "left": 40, "asked": 41} and caught.value.exit_code == 1


def test_more_than_was_reserved_is_counted_and_marked() -> None:
    budget = Budget(SpendingLimits(usd=1.0))
    first, second = budget.reserve(0.5, 10), budget.reserve(0.25, 10)
    budget.settle(second, 0.25, 10)
    assert budget.overshot == () and not second.overshot
    budget.settle(first, 0.75, 10)
    assert budget.overshot == (first,) and first.overshot
    assert budget.spent.usd == 1.0
    with pytest.raises(OutOfBudget):
        budget.reserve(0.1, 0)


def test_a_ticket_ends_once() -> None:
    budget = Budget(SpendingLimits(usd=1.0))
    reservation = budget.reserve(0.5, 1)
    budget.settle(reservation, 0.25, 1)
    for again in (lambda: budget.cancel(reservation), lambda: budget.settle(reservation, 0.25, 1)):
        with pytest.raises(ValueError, match="not open"):
            again()
    with pytest.raises(ValueError, match="not open"):
        Budget(SpendingLimits()).cancel(budget.reserve(0.1, 1))
    assert budget.spent.usd == 0.25 and budget.spent.held_usd == 0.1


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_amounts_are_read_exactly_and_in_order(one: float, two: float) -> None:
    assert to_nano(one, up=False) <= Fraction(repr(one)) * NANO <= to_nano(one) <= to_nano(one, up=False) + 1
    assert (one <= two) <= (to_nano(one) <= to_nano(two))
    assert to_nano(to_nano(one) / NANO) == to_nano(one)


@pytest.mark.parametrize("amount", [-0.1, float("nan"), float("inf")])
def test_what_is_no_amount_is_refused(amount: float) -> None:
    with pytest.raises(BadInput, match="--max-usd"):
        Budget(SpendingLimits(usd=amount))
    with pytest.raises(BadInput, match="--max-tokens"):
        Budget(SpendingLimits(tokens=-1))
    budget = Budget(SpendingLimits(usd=1.0))
    with pytest.raises(ValueError, match="amount"):
        budget.reserve(amount, 1)
    with pytest.raises(ValueError, match="tokens"):
        budget.reserve(0.1, -1)
    reservation = budget.reserve(0.5, 1)
    with pytest.raises(ValueError, match="amount"):
        budget.settle(reservation, amount, 1)
    assert budget.spent.held_usd == 0.5  # a bad figure neither pays nor gives back


def test_a_resumed_run_counts_answers_at_their_cost_and_lost_calls_at_what_they_reserved() -> None:
    log = MemoryCallLog()
    for number, cost in enumerate((0.1, 0.2, 0.4)):
        log.reserve(reserved(request(number), cost=cost, tokens=1000))
    log.settle(answer(request(1), cost=0.05, usage=Usage(input_tokens=30, output_tokens=4, cached_tokens=9)))
    for cost in (0.3, 0.6, 0.9):  # three attempts at one call, the last answered
        log.reserve(reserved(request(7), cost=cost, tokens=100))
    log.settle(answer(request(7), cost=0.7, usage=Usage(input_tokens=5, output_tokens=5)))
    budget = Budget.resumed(SpendingLimits(usd=2.5, tokens=10_000), log)
    assert budget.spent.usd == 2.15  # 0.1 + 0.4 lost, 0.05, 0.3 + 0.6 lost, 0.7
    assert budget.spent.tokens == 2000 + 34 + 200 + 10 and budget.spent.held_usd == 0
    budget.reserve(0.35, 1)
    with pytest.raises(OutOfBudget):
        budget.reserve(1e-9, 1)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2 * NANO), st.booleans()), max_size=12))
def test_resuming_finds_what_was_spent_and_held_at_the_kill(calls: list[tuple[int, int, bool]]) -> None:
    """A kill and resume at any moment of a logged run preserves the exact spending."""
    log, budget, lost = MemoryCallLog(), Budget(SpendingLimits()), 0
    for key, nano, answered in calls:
        asked = request(key)
        reservation = budget.reserve(nano / NANO, 10)
        log.reserve(reserved(asked, cost=nano / NANO, tokens=10))
        if answered and log.find(asked.key) is None:
            budget.settle(reservation, nano / NANO / 2, 7)
            log.settle(answer(asked, cost=nano / NANO / 2, usage=Usage(input_tokens=4, output_tokens=3)))
        else:
            lost += 1
    resumed, live = Budget.resumed(SpendingLimits(), log).spent, budget.spent
    if all(sum(1 for other in calls if other[0] == key) == 1 for key, _, _ in calls):
        assert to_nano(resumed.usd) == to_nano(live.usd) + to_nano(live.held_usd)
    assert resumed.tokens == live.tokens + live.held_tokens
    assert len(log.lost()) == lost


def test_calls_that_a_provider_declined_eat_no_budget_of_the_resumed_run() -> None:
    """Calls refused for a wrong key cost nothing: the corrected run has its whole budget."""
    log, limits = MemoryCallLog(), SpendingLimits(usd=1.0, tokens=100_000)
    with LocalProvider(lambda messages, call: wrong_key()) as provider, pytest.MonkeyPatch.context() as patch:
        for name, value in provider.environment().items():
            patch.setenv(name, value)
        spec, budget = provider.spec("openai"), Budget(limits)
        with Client(log, budget, prices=Prices(parse_prices(["small=100,100"]))) as client:
            for number in range(3):
                with pytest.raises(ProviderError):
                    client.ask(request(number, model=spec, max_tokens=5000))
        assert len(provider.requests) == 3
    assert [r.request.number for r in log.reservations()] == []
    assert len(log.refusals()) == 3 and log.lost() == []
    assert budget.spent.held_usd == 0 and Budget.resumed(limits, log).spent.usd == 0
