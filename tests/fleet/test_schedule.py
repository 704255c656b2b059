"""The fleet's bookkeeping: whatever seats do, every order ends once, and a fault of the machine is never a verdict."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from hipwright.fleet.records import Order, OrderEnd, OrderError, SeatReply, SeatWork
from hipwright.fleet.schedule import MAX_DEATHS, MAX_FAULTS, FleetSchedule

MACHINE = OrderError(fault="device", status="unscorable", message="planted", machine=True)
WRONG = OrderError(fault="candidate", status="wrong_value", message="planted")


def orders(count: int, groups: int = 1) -> list[Order]:
    return [Order(id=f"{number}", group=f"{number % groups}") for number in range(count)]


def schedule(count: int, groups: int = 1, **work: int) -> FleetSchedule:
    return FleetSchedule(SeatWork(factory="none:none", **work), orders(count, groups))  # type: ignore[arg-type]


def ok(order: Order) -> SeatReply:
    return SeatReply(end=OrderEnd(id=order.id, value=1))


def failed(order: Order, error: OrderError = MACHINE, doubt: str = "") -> SeatReply:
    return SeatReply(end=OrderEnd(id=order.id, error=error), doubt=doubt)


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_every_order_ends_once_whatever_seats_do(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    made = schedule(count, data.draw(st.integers(1, 3)), depth=data.draw(st.integers(1, 3)))
    ends: list[OrderEnd] = []
    held: dict[str, list[Order]] = {}
    for _ in range(400):
        if not made.left:
            break
        seat = data.draw(st.sampled_from(["a", "b", "c"]))
        if seat not in held:
            if seat in made.fenced:
                continue
            made.join(seat)
            held[seat] = []
        if (order := made.take(seat)) is not None:
            held[seat].append(order)
        move = data.draw(st.sampled_from(["end", "end", "end", "fault", "wrong", "lost", "late"]))
        if move == "lost":
            ends += made.lost(seat, "killed")
            del held[seat]
        elif held[seat]:
            first = held[seat].pop(0)
            reply = {"fault": failed(first), "wrong": failed(first, WRONG)}.get(move, ok(first))
            found = [made.ended(seat, reply)] + ([made.ended(seat, reply)] if move == "late" else [])
            ends += [end for end in found if end is not None]
            if seat in made.fenced:
                del held[seat]
    ends += made.give_up(MACHINE)
    assert sorted(end.id for end in ends) == sorted(str(number) for number in range(count))
    assert all(end.error is None or end.error.machine or end.error == WRONG for end in ends)


def test_a_lost_seat_counts_an_attempt_of_the_order_that_ran_alone() -> None:
    made = schedule(2, depth=2)
    made.join("a")
    first, second = made.take("a"), made.take("a")
    assert first is not None and second is not None and made.take("a") is None
    assert made.lost("a", "killed") == []
    assert (made.tries[first.id], made.tries[second.id]) == (1, 0)


def test_an_order_that_always_meets_a_fault_ends_with_it() -> None:
    made = schedule(1, attempts=2)
    ends = []
    for seat in ("a", "b"):
        made.join(seat)
        order = made.take(seat)
        assert order is not None
        ends.append(made.ended(seat, failed(order)))
    assert ends[0] is None and ends[1] is not None
    assert ends[1].attempts == 2 and ends[1].error == MACHINE and not made.left


def test_orders_of_a_group_stay_where_it_is_open() -> None:
    made = schedule(12, groups=3, depth=1)
    seen: dict[str, list[str]] = {seat: [] for seat in "abc"}
    for seat in seen:
        made.join(seat)
    while made.left:
        for seat, groups in seen.items():
            if (order := made.take(seat)) is not None:
                groups.append(order.group)
                made.ended(seat, ok(order))
    changes = sum(one != next_one for groups in seen.values() for one, next_one in pairwise(groups))
    assert sum(map(len, seen.values())) == 12 and changes == 0


def test_doubtful_timings_fence_a_seat_and_void_its_evaluation() -> None:
    made = schedule(1)
    made.join("a")
    order = made.take("a")
    assert order is not None
    assert made.ended("a", failed(order, doubt="A/A says 1.30")) is None
    assert made.fenced == {"a": "A/A says 1.30"} and made.seats == ()
    made.join("b")
    again = made.take("b")
    assert again is not None and made.ended("b", ok(again)) is not None


def test_faults_in_a_row_and_deaths_in_a_row_fence_a_slot() -> None:
    made = schedule(20, attempts=9, depth=1)
    made.join("a")
    made.join("idle")
    for _ in range(MAX_FAULTS):
        order = made.take("a")
        assert order is not None
        made.ended("a", failed(order))
    assert "a" in made.fenced
    for _ in range(MAX_DEATHS):
        assert "b" not in made.fenced
        made.join("b")
        made.lost("b", "killed")
    assert "b" in made.fenced
