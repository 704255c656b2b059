"""Zygotes lent to other processes: imported once, contained and ended as those of one's own."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from contained import HERE, SERVICE

from hipwright.errors import WorkerError
from hipwright.sandbox import Borrower, Lender, Session, Zygote

LIMIT_S = 20.0


@pytest.fixture
def lender() -> Iterator[Lender]:
    found = Lender(borrowers=2)
    with found((), ro=[HERE], name="worker") as zygote:
        zygote.start()
        yield found


def borrowed(lender: Lender) -> Zygote:
    """A zygote that uses what the lender lends, as in another process."""
    loans = lender.lend()
    try:
        return Borrower({name: os.dup(loan.fileno()) for name, loan in loans.items()})((), ro=[HERE], name="worker")
    finally:
        for loan in loans.values():
            loan.close()


def lent_by(lender: Lender) -> Zygote:
    return lender._made["worker"]


def ends(session: Session) -> bool:
    until = time.monotonic() + LIMIT_S
    while session.running and time.monotonic() < until:
        time.sleep(0.01)
    return not session.running


def test_a_borrower_starts_no_process_of_its_own(lender: Lender, monkeypatch: pytest.MonkeyPatch) -> None:
    lent_by(lender).session(SERVICE, {}).close()  # it has started
    monkeypatch.setattr(Zygote, "_command", lambda *_: pytest.fail("another zygote starts"))
    with borrowed(lender) as one, borrowed(lender) as two:
        for zygote in (one, two):
            with zygote.session(SERVICE, {}) as session:
                assert session.call("echo", {"n": 1}, timeout_s=LIMIT_S)[0]["n"] == 1


def test_what_is_not_begun_is_not_lent() -> None:
    lender = Lender(borrowers=1)
    with lender((), name="worker"):
        assert lender.lend() == {}


def test_a_borrower_sees_the_process_and_its_tasks(lender: Lender) -> None:
    with borrowed(lender) as zygote, zygote.session(SERVICE, {}):
        assert zygote._process is not None and zygote._process.pid is not None
        lines = Path(f"/proc/{zygote._process.pid}/status").read_text().splitlines()
        inner = next(line for line in lines if line.startswith("NSpid:")).split()
        assert inner[1] == str(zygote._process.pid) and len(inner) >= 3, "a process of the sandbox, seen from outside"


def test_closing_ends_the_borrowers_sessions_and_no_others(lender: Lender) -> None:
    with lent_by(lender).session(SERVICE, {}) as lenders, borrowed(lender) as other:
        zygote = borrowed(lender)
        session, others = zygote.session(SERVICE, {}), other.session(SERVICE, {})
        zygote.close()
        assert ends(session)
        assert lenders.running and others.call("echo", {"n": 1}, timeout_s=LIMIT_S)[0]["n"] == 1
        session.close(), others.close()


def test_a_borrower_whose_process_is_closed_starts_one_of_its_own(lender: Lender) -> None:
    with borrowed(lender) as zygote:
        before = zygote.session(SERVICE, {})
        zygote.close()
        with zygote.session(SERVICE, {}) as session:
            assert session.call("echo", {"n": 1}, timeout_s=LIMIT_S)[0]["n"] == 1
            with pytest.raises(WorkerError):
                before.call("echo", {"n": 1}, timeout_s=LIMIT_S)
        before.close()


def test_the_end_of_the_lender_ends_what_it_lent_and_the_next_session_has_a_zygote_of_its_own(lender: Lender) -> None:
    with borrowed(lender) as zygote:
        before = zygote.session(SERVICE, {})
        lent_by(lender).close()
        assert ends(before)
        with zygote.session(SERVICE, {}) as session:
            assert session.call("echo", {"n": 1}, timeout_s=LIMIT_S)[0]["n"] == 1
        before.close()


def test_where_the_lenders_does_not_start_the_borrower_starts_its_own() -> None:
    lender = Lender(borrowers=1)
    with lender(("no_such_library",), name="worker") as broken:
        broken.start().join()
        with borrowed(lender) as zygote, zygote.session(SERVICE, {}) as session:
            assert session.call("echo", {"n": 1}, timeout_s=LIMIT_S)[0]["n"] == 1


def test_a_lent_zygote_has_room_for_its_borrowers() -> None:
    own, lent = Zygote(()), Lender(borrowers=3)((), name="worker")
    assert lent._most_tasks == 4 * own._most_tasks
    size = "--size"
    command = lent._command(3)
    assert int(command[command.index(size) + 1]) == 4 * int(own._command(3)[own._command(3).index(size) + 1])
