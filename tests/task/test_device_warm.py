"""A zygote of device hosts preloads only what leaves its forks able to use the device."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from hipwright.sandbox import Zygote
from hipwright.task.device import warm
from hipwright.task.device.warm import device_works, goes_on_in_fork, harmless
from hipwright.verify.gpu.connection import DEVICE_HOST_WARM

state: dict[str, bool] = {}


def clean() -> None:
    """Does not touch the device."""


def touches() -> None:
    """Acts as an import that starts the device."""
    state["touched"] = True


def untouched() -> bool:
    return "touched" not in state


def test_stages_up_to_the_first_that_touches_the_device() -> None:
    assert harmless([clean, clean], untouched) == 2
    assert harmless([clean, touches, clean], untouched) == 1
    assert harmless([touches], untouched) == 0
    assert untouched(), "tried in a fork, not here"


def raises() -> None:
    raise ImportError("no such part of torch")


def dies() -> None:
    os.kill(os.getpid(), 9)


@pytest.mark.parametrize(("stage", "kept"), [(raises, 1), (dies, 0)])
def test_a_stage_that_fails_is_left_to_the_hosts(stage: Callable[[], None], kept: int) -> None:
    assert harmless([clean, stage], untouched) == kept


def cannot() -> bool:
    raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")


def test_a_device_that_raises_is_not_usable() -> None:
    assert harmless([clean], cannot) == 0


def test_a_stage_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hipwright.task.device.warm.LIMIT_S", 1)
    start = time.monotonic()
    assert harmless([lambda: time.sleep(30)], untouched) == 0
    assert time.monotonic() - start < 10


def ended(work: Callable[[], int]) -> int:
    """The exit code of a fork that does the work."""
    if (pid := os.fork()) == 0:
        os._exit(work())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_fork_that_passes_goes_on_and_the_first_process_ends_as_it_does() -> None:
    first, told = os.getpid(), os.pipe()

    def work() -> int:
        mine = os.getpid()
        assert goes_on_in_fork([clean, lambda: state.update(done=True)], untouched)
        os.write(told[1], f"{os.getpid() not in (first, mine)} {state}".encode())
        return 7

    assert ended(work) == 7
    assert os.read(told[0], 100) == b"True {'done': True}"


@pytest.mark.parametrize(
    ("stages", "usable"), [([clean, touches], untouched), ([raises], untouched), ([dies], untouched), ([clean], cannot)]
)
def test_where_a_fork_fails_nothing_was_done_here(stages: list[Callable[[], None]], usable: Callable[[], bool]) -> None:
    assert not goes_on_in_fork(stages, usable)
    assert untouched()


def test_a_fork_that_went_on_ends_with_the_first_process() -> None:
    told = os.pipe()
    if (pid := os.fork()) == 0:
        assert goes_on_in_fork([clean], untouched)
        os.write(told[1], str(os.getpid()).encode())
        time.sleep(60)
        os._exit(0)
    other = int(os.read(told[0], 20))
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    end = time.monotonic() + 10
    while Path(f"/proc/{other}").exists() and "Z" not in Path(f"/proc/{other}/stat").read_text().rpartition(")")[2]:
        assert time.monotonic() < end
        time.sleep(0.01)


SERVICE = """import sys
class Service:
    def __init__(self, *_): pass
    def imported(self, header, bundle):
        return {"found": "torch._inductor.compile_fx" in sys.modules}, None
"""


@pytest.mark.skipif(bool(torch.version.cuda or torch.version.hip), reason="this torch knows of devices")
def test_a_zygote_has_all_of_it_and_ends(tmp_path: Path) -> None:
    assert device_works()
    (tmp_path / "small.py").write_text(SERVICE)
    with Zygote(("torch", DEVICE_HOST_WARM), ro=[tmp_path], name="device host") as hosts:
        with hosts.session(f"{tmp_path / 'small.py'}:Service", {}) as session:
            assert session.call("imported", {}, timeout_s=60)[0] == {"found": True}
        process = hosts._process
        assert process is not None
    assert not process.is_alive()


def test_parts_that_a_release_lacks_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "_LATE", ("no.such.part", "torch._inductor.fx_passes.serialized_patterns"))
    monkeypatch.setattr(warm, "_ONCE", (("no.such.part", "key"), ("torch._inductor.codecache", "torch_key")))

    def work() -> int:
        warm.compiling()
        patterns = [name for name in sys.modules if "serialized_patterns._sfdp_pattern" in name]
        return len(patterns) > 10 and "torch._inductor.codecache" in sys.modules

    assert ended(work) == 1
