"""Which fleet and which of its devices a command uses, and what a command says of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hipwright.errors import BadInput, FleetAway, HipwrightError
from hipwright.events import Listener
from hipwright.fleet.client import fleet_of
from hipwright.fleet.nodes import FleetPlace, choose_place

_TOLD = {
    "note": "{text}",
    "retry": "{job}: tried again after: {error}",
    "node_lost": "{device}: its node is gone",
    "device_lost": "{device} is given up: {why}",
    "hang": "{device}: an evaluation takes {seconds:.0f} s, and is tried again",
}


@dataclass(frozen=True)
class FleetChoice:
    """Where a command's candidates are judged. address: of a fleet, "" for this machine; place: which of its devices.

    Raises BadInput for a place without a fleet.
    """

    address: str = ""
    place: str = ""

    def __post_init__(self) -> None:
        if self.place and not self.address:
            raise BadInput("--place chooses among the devices of a fleet", hint="--fleet ADDRESS")

    def __bool__(self) -> bool:
        return bool(self.address)

    def chosen(self, targets: tuple[str, ...]) -> FleetPlace:
        """The place of these targets. Raises BadInput where there is none, InfrastructureError without a fleet."""
        return choose_place(fleet_of(self.address), targets, self.place)

    def arguments(self) -> list[str]:
        """The options of a command line that choose the same."""
        return [*(("--fleet", self.address) if self.address else ()), *(("--place", self.place) if self.place else ())]


def told_as(kind_of_text: str, listener: Listener) -> Listener:
    """A listener of a fleet's run, which tells what went away, and what is tried again, as texts.

    kind_of_text: the event {text} that they become, "stage" or "note".
    """

    def tell(kind: str, data: dict[str, Any]) -> None:
        if kind in _TOLD:
            listener(kind_of_text, {"text": "fleet: " + _TOLD[kind].format(**data)})

    return tell


def away(error: HipwrightError, command: str = "") -> FleetAway:
    """The error of a fleet that stays away, with the command that goes on; "" where it is not known yet."""
    hint = f"nothing is lost: go on with {command}" if command else error.hint
    return FleetAway(error.message, hint=hint, status=error.status)
