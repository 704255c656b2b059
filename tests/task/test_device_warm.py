"""A zygote of device hosts preloads only what leaves its forks able to use the device."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import pytest
import torch

from hipwright.sandbox import Zygote
from hipwright.task.device.warm import device_works, harmless

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


@pytest.mark.skipif(bool(torch.version.cuda or torch.version.hip), reason="this torch knows of devices")
def test_a_torch_without_devices_takes_all_of_it() -> None:
    assert device_works()
    assert "torch._inductor.compile_fx" in sys.modules, "importing the module runs its stages"


def test_a_zygote_takes_it() -> None:
    with Zygote(("torch", "hipwright.task.device.warm"), name="device host") as hosts:
        hosts.start().join()
