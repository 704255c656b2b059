"""A head that is killed and comes back: a new cluster at the same address, which knows nothing of the old one."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fleet.local_fleet import TOKEN, LocalFleet, local_fleet
from benchmarks.fleet.seat_killer import marked
from hipwright import config
from hipwright.api.fleet import machine
from hipwright.api.fleet.choice import FleetChoice
from hipwright.api.inputs import task_source
from hipwright.api.optimize import SearchRequest, run_search
from hipwright.archive import Archive, export
from hipwright.errors import FleetAway
from hipwright.fleet.client import run_orders
from hipwright.fleet.records import Order, OrderEnd, SeatWork
from tests.fleet.conftest import needs_ray

pytestmark = [needs_ray, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
TASK = Path(__file__).parents[2] / "examples" / "l2_normalize.py"
PATIENCE_S = 120.0


@pytest.fixture
def fleet() -> Iterator[LocalFleet]:
    with local_fleet() as made:
        made.add("one", {"fake": 2, "cpu": 1})
        yield made


def beside(work: Callable[[], Any], meanwhile: Callable[[], None]) -> None:
    """Runs work in a thread, and something in this one, as Ray starts nodes in the main thread alone."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    meanwhile()
    thread.join(PATIENCE_S)
    assert not thread.is_alive(), "the work hangs"


def kill_seats() -> None:
    for pid, line in marked("RAY_AUTH_TOKEN", TOKEN).items():
        if line.startswith(b"ray::SeatProcess"):
            os.kill(pid, signal.SIGKILL)


def wait_for(condition: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.05)


def test_orders_go_on_at_the_head_that_came_back(fleet: LocalFleet) -> None:
    """The old head's seats are killed too: only the new one can give others."""
    orders = [Order(id=f"{n}", group=f"{n % 2}", payload={"number": n, "seconds": 0.3}) for n in range(60)]
    ends: list[OrderEnd] = []
    seats: list[int] = []
    links: list[int] = []

    def event(kind: str, data: dict[str, Any]) -> None:
        seats.extend([data["pid"]] if kind == "seat" else [])
        links.extend([data["pid"]] if kind == "link" else [])

    def judge() -> None:
        work = SeatWork(factory="benchmarks.fleet.sleeper:Sleeper", architecture="fake")
        run_orders(fleet.address, work, orders, ends.append, listener=event, patience_s=PATIENCE_S)

    def meanwhile() -> None:
        wait_for(lambda: len(ends) >= 6)
        fleet.kill_head()
        old = list(seats)
        fleet.restart()
        for pid in old:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    beside(judge, meanwhile)
    assert sorted(end.id for end in ends) == sorted(order.id for order in orders), "lost or double"
    assert all(end.error is None and end.value["square"] == int(end.id) ** 2 for end in ends)
    assert len(links) >= 2 and len(seats) >= 3


def test_a_search_waits_for_the_head_or_ends_in_one_line(
    fleet: LocalFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First the head stays away too long: the command ends and blames nobody. The run goes on at the next head."""
    search: dict[str, Any] = {"task": task_source(TASK), "targets": ("cpu",), "budget": 4, "seed": 5}
    far = FleetChoice(fleet.address)
    monkeypatch.setenv("HIPWRIGHT_HOME", str(tmp_path / "here"))
    alone = run_search(SearchRequest(**search))
    with Archive(config.archive()) as archive:
        expected = export(archive, alone.run, canonical=True)

    monkeypatch.setenv("HIPWRIGHT_HOME", str(tmp_path / "there"))
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "4")
    monkeypatch.setattr(machine, "PATIENCE_S", 1.0)
    runs: list[str] = []
    done: list[int] = []
    said: list[BaseException] = []

    def listen(kind: str, data: dict[str, Any]) -> None:
        runs.extend([data["run"]] if kind in ("run_started", "resumed") else [])
        if kind == "evaluated":
            done.append(data["number"])
            if len(done) == 1 and not said:
                fleet.kill_head()
                kill_seats()

    with pytest.raises(FleetAway, match="no fleet answers") as away:
        run_search(SearchRequest(**search, fleet=far), listener=listen)
    assert away.value.hint == f"nothing is lost: go on with hipwright resume {runs[0]} --fleet {fleet.address}"
    with Archive(config.archive()) as archive:
        faults = [one for one in archive.events(runs[0]) if one.kind == "evaluated" and one.data["evaluation"]["fault"]]
        assert not faults and 1 <= len(done) < 4

    monkeypatch.setattr(machine, "PATIENCE_S", PATIENCE_S)
    monkeypatch.delenv("RAY_gcs_rpc_server_reconnect_timeout_s")
    fleet.restart()
    found = run_search(SearchRequest(task=search["task"], resume=runs[0], fleet=far), listener=listen)
    assert found.passed
    with Archive(config.archive()) as archive:
        assert export(archive, runs[0], canonical=True) == expected
    assert sorted(done) == sorted(set(done)), "evaluated twice"
