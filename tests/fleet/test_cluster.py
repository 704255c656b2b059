"""Orders on a real Ray cluster: values once, places by architecture, faults of every kind, drains and fences."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fleet.local_fleet import LocalFleet
from hipwright.errors import BadInput
from hipwright.fleet.client import ask, fleet_of, run_orders
from hipwright.fleet.cluster import drain
from hipwright.fleet.records import Order, OrderEnd, SeatWork
from tests.fleet.conftest import needs_ray

pytestmark = [needs_ray, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
SLEEPER = "benchmarks.fleet.sleeper:Sleeper"


def orders(count: int, seconds: float = 0.05, groups: int = 3) -> list[Order]:
    return [Order(id=f"{n}", group=f"{n % groups}", payload={"number": n, "seconds": seconds}) for n in range(count)]


class Run:
    """Runs orders and keeps what came. on_event: called with each event's kind and data."""

    def __init__(self, fleet: LocalFleet, on_event: Callable[[str, dict[str, Any]], None] | None = None) -> None:
        self.fleet, self.ends, self.events = fleet, list[OrderEnd](), list[tuple[str, dict[str, Any]]]()
        self._on_event = on_event

    def __call__(self, given: list[Order], patience_s: float = 40.0, **work: Any) -> dict[str, OrderEnd]:
        made = SeatWork(**{"factory": SLEEPER, "architecture": "fake", **work})
        run_orders(self.fleet.address, made, given, self.ends.append, listener=self._event, patience_s=patience_s)
        assert sorted(end.id for end in self.ends) == sorted(order.id for order in given), "lost or double"
        return {end.id: end for end in self.ends}

    def _event(self, kind: str, data: dict[str, Any]) -> None:
        self.events.append((kind, data))
        if self._on_event is not None:
            self._on_event(kind, data)


def assert_all_right(ends: dict[str, OrderEnd]) -> None:
    assert all(end.error is None and end.value["square"] == int(id) ** 2 for id, end in ends.items())


def gated(folder: Path, then: Callable[[str, dict[str, Any]], None] = lambda kind, data: None) -> Any:
    """A watcher that opens the gate in a folder when four seats are open, so that each of them has an order."""
    opened: set[str] = set()

    def watch(kind: str, data: dict[str, Any]) -> None:
        then(kind, data)
        if kind == "seat":
            opened.add(data["device"])
            if len(opened) == 4:
                (folder / "gate").touch()

    return watch


def test_orders_end_once_with_their_node(fleet: LocalFleet, tmp_path: Path) -> None:
    ends = Run(fleet, gated(tmp_path))(orders(24), setup={"gate": str(tmp_path / "gate")})
    assert_all_right(ends)
    hosts = {end.node.host for end in ends.values() if end.node is not None}
    assert hosts == {"one", "two"} and len({end.value["pid"] for end in ends.values()}) == 4


def test_only_seats_of_the_place_are_used(fleet: LocalFleet) -> None:
    ends = Run(fleet)(orders(3), architecture="gfx942", device="MI300X")
    assert {end.seat for end in ends.values()} == {"one/gfx942/0"}
    nowhere = Run(fleet)(orders(1), patience_s=1.5, architecture="gfx942", device="MI355X")
    assert nowhere["0"].error is not None and nowhere["0"].error.fault == "device"


def test_a_candidates_error_is_final_and_the_machines_is_tried_elsewhere(fleet: LocalFleet) -> None:
    given = [
        Order(id="bad", payload={"number": 1, "raise": "candidate"}),
        Order(id="broken", payload={"number": 1, "raise": "device"}),
    ]
    ends = Run(fleet)(given, attempts=3)
    bad, broken = ends["bad"], ends["broken"]
    assert bad.error is not None and (bad.error.fault, bad.attempts) == ("candidate", 1)
    assert broken.error is not None and (broken.error.fault, broken.attempts) == ("device", 3)


def test_killed_workers_lose_and_repeat_nothing(fleet: LocalFleet, tmp_path: Path) -> None:
    kills: list[int] = []

    def kill(kind: str, data: dict[str, Any]) -> None:
        if kind == "seat" and len(kills) < 6:
            kills.append(data["pid"])
            threading.Timer(0.3, os.kill, (data["pid"], signal.SIGKILL)).start()

    ends = Run(fleet, kill)(orders(32, 0.1))
    assert_all_right(ends)
    assert len(kills) == 6 and sum(end.attempts - 1 for end in ends.values()) >= 1


def test_a_drained_node_gets_nothing_more(fleet: LocalFleet) -> None:
    name = fleet_of(fleet.address)[0].name
    with pytest.raises(BadInput, match="are called 'nowhere'"):
        drain(fleet.address, "nowhere", undo=False, wait_s=1, listener=lambda kind, data: None)
    drain(fleet.address, "one", undo=False, wait_s=5, listener=lambda kind, data: None)
    try:
        assert {end.seat.partition("/")[0] for end in Run(fleet)(orders(6)).values()} == {"two"}
    finally:
        drain(fleet.address, "one", undo=True, wait_s=0, listener=lambda kind, data: None)
    assert name and not any(node.drained for node in fleet_of(fleet.address))


def test_doubtful_timings_fence_a_seat_and_say_so(fleet: LocalFleet, tmp_path: Path) -> None:
    def doubt(kind: str, data: dict[str, Any]) -> None:
        if kind == "seat" and data["device"] == "two/fake/1":
            (tmp_path / str(data["pid"])).write_text("A/A says 1.30")

    run = Run(fleet, gated(tmp_path, doubt))
    ends = run(orders(16), setup={"doubt": str(tmp_path), "gate": str(tmp_path / "gate")})
    assert_all_right(ends)
    said = [data for kind, data in run.events if kind == "device_lost"]
    assert said == [{"device": "two/fake/1", "why": "fenced: A/A says 1.30"}]
    _, fences = ask(fleet.address, {"type": "look"})
    assert [(fence["seat"], fence["why"]) for fence in fences] == [("two/fake/1", "A/A says 1.30")]


def test_a_killed_node_and_one_that_joins(fleet: LocalFleet) -> None:
    extra = fleet.add("three", {"fake": 2})
    began = threading.Event()
    threading.Thread(target=lambda: began.wait(20) and (time.sleep(0.5), fleet.kill_node(extra))).start()

    def watch(kind: str, data: dict[str, Any]) -> None:
        if kind == "seat" and data["device"].startswith("three"):
            began.set()

    run = Run(fleet, watch)
    assert_all_right(run(orders(40, 0.2)))
    assert began.is_set()


def test_a_head_that_is_gone_for_good_leaves_no_verdict(fleet: LocalFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last test of the module: the head does not come back. Seats answer on until the link ends, too."""
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "4")

    def kill(kind: str, data: dict[str, Any]) -> None:
        if kind == "seat" and data["device"] == "one/fake/0":
            threading.Timer(0.5, fleet.kill_head).start()

    ends = Run(fleet, kill)(orders(300, 0.5), patience_s=2.0)
    done = [end for end in ends.values() if end.error is None]
    lost = [end.error for end in ends.values() if end.error is not None]
    assert len(done) >= 6 and lost and {error.fault for error in lost} == {"service"}
    assert all(error.status == "unscorable" and error.machine for error in lost)
