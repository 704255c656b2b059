"""`hipwright audit --fleet`: an audit session whose candidates are judged in the seats of a fleet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hipwright.api.fleet.choice import FleetChoice
from hipwright.api.fleet.machine import FleetMachine, fleet_machine
from hipwright.audit.verifiers import LIMITS, AuditSession, OpenTask
from hipwright.events import Listener, silent
from hipwright.targets import Target


@dataclass
class FleetAuditSession(AuditSession):
    """Opens the corpus's tasks here, for what is measured on the reference alone, and in seats, which judge."""

    machine: FleetMachine = field(kw_only=True)

    def open_task(self, task: Path) -> OpenTask:
        """A task, open here and in a seat."""
        with ExitStack() as stack:
            bench = stack.enter_context(self.machine.open(task, seed=self.seed, listener=silent))
            return OpenTask(bench.handle, bench.evaluator, stack.pop_all())


@contextmanager
def open_fleet_audit(
    fleet: FleetChoice, target: Target, *, seed: int | None, seats: int | None, unsafe: bool, listener: Listener
) -> Iterator[FleetAuditSession]:
    """An audit session on a fleet. seats: the most to use, None for all.

    Raises BadInput where the fleet has no seat for the target, InfrastructureError where none answers.
    """
    how = {"unsafe": unsafe, "limits": LIMITS, "listener": listener, "told": "note"}
    with fleet_machine(fleet, (target.name,), seats=seats, **how) as made:  # type: ignore[arg-type]
        session = FleetAuditSession(made.host, made.candidates, made.cache, target.name, {}, seed, unsafe, machine=made)
        with ExitStack() as stack:
            stack.callback(session.close)
            yield session
