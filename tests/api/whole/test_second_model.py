"""A second copy of the model, which a thread opens while the first is profiled."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from hipwright.api.whole.handle import SecondModel, clock_of, model_zygote, opened
from hipwright.api.whole.profile import profile_model
from hipwright.api.whole.source import ModelSource, model_source
from hipwright.errors import TaskError

MODEL = """import time

import torch

time.sleep({sleeps})
{more}


def make():
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()), torch.ones(2, 8)
"""
CPU = clock_of(("cpu",))


def source(folder: Path, sleeps: float = 0.0, more: str = "") -> ModelSource:
    path = folder / "model.py"
    path.write_text(MODEL.format(sleeps=sleeps, more=more))
    return model_source(f"{path}:make")


@pytest.mark.slow
def test_it_opens_while_the_first_is_traced(tmp_path: Path) -> None:
    given = source(tmp_path)
    with model_zygote(given, CPU) as zygote, opened(given, CPU, zygote) as first:
        with SecondModel(given, CPU, zygote) as second:
            profile_model(first, CPU, timed=second.start)
            opening = second._handle
            assert opening is not None
            assert second.handle() is opening.result(0) and second.handle() is second.handle()
            assert second.handle().told == first.told
            turn = threading.Lock()
            with turn:
                second.trace([{"numbers": [0], "text": "no such task"}], turn)
                assert second._handle is not opening and not second._handle.done()
            assert second.handle() is opening.result(0)
            second.trace([{"numbers": "junk"}], turn)
            assert second.handle().ask("describe")[0] == first.told
        assert first.ask("describe")[0] == first.told, "its zygote lives"


@pytest.mark.slow
def test_leaving_ends_an_opening(tmp_path: Path) -> None:
    given = source(tmp_path, sleeps=200.0)
    with model_zygote(given, CPU) as zygote:
        begun = time.monotonic()
        with SecondModel(given, CPU, zygote) as second:
            second.start()
            while zygote._control is None:
                time.sleep(0.05)
            time.sleep(1.0)
    assert time.monotonic() - begun < 60


@pytest.mark.slow
def test_what_opening_raises_is_raised_where_it_is_needed(tmp_path: Path) -> None:
    given = source(tmp_path, more="raise ValueError('no such weights')")
    with model_zygote(given, CPU) as zygote, SecondModel(given, CPU, zygote) as second:
        second.start()
        with pytest.raises(TaskError, match="no such weights"):
            second.handle()
