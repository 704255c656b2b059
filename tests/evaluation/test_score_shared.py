"""Programs of one task shared by several scorers: order, faults of one device, an error of all."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hipwright.api.score import score_shared
from hipwright.errors import DeviceError
from hipwright.records import Evaluation, Program

PROGRAMS = [Program(text=f"# {number}\n") for number in range(7)]


class Device:
    """Passes every program, or fails as a broken GPU does: by an error, or by evaluations that say so."""

    def __init__(self, broken: str = "") -> None:
        self.broken = broken
        self.asked: list[str] = []

    def score(self, programs: Sequence[Program], /) -> list[Evaluation]:
        self.asked += [program.key for program in programs]
        if self.broken == "raises":
            raise DeviceError("the GPU is lost")
        fault = {"status": "unscorable", "fault": "device"} if self.broken else {"status": "pass"}
        return [Evaluation.from_dict({"task": "t", "program": program.key, **fault}) for program in programs]


def test_scorers_share_the_programs_and_the_order_is_kept() -> None:
    devices = [Device(), Device(), Device()]
    found = score_shared(devices, PROGRAMS)
    assert [one.program for one in found] == [program.key for program in PROGRAMS]
    assert [len(one.asked) for one in devices] == [3, 2, 2]


@pytest.mark.parametrize("how", ["raises", "answers"])
def test_what_met_a_broken_gpu_is_scored_on_a_sound_one(how: str) -> None:
    found = score_shared([Device(how), Device(), Device(how)], PROGRAMS)
    assert [one.status for one in found] == ["pass"] * len(PROGRAMS)


def test_without_a_sound_gpu_the_fault_is_told() -> None:
    with pytest.raises(DeviceError, match="lost"):
        score_shared([Device("raises"), Device("raises")], PROGRAMS)
    assert {one.fault for one in score_shared([Device("answers")], PROGRAMS)} == {"device"}
