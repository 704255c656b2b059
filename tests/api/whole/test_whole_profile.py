"""A model's profile in its own process: regions with real arguments, equal ones once, and what stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from hipwright.api.whole.handle import clock_of, model_zygote, opened
from hipwright.api.whole.profile import ModelProfile, profile_model
from hipwright.api.whole.source import model_source
from hipwright.errors import TaskError

FILES = Path(__file__).parent / "files"
EXAMPLE = Path(__file__).parents[3] / "examples" / "models" / "encoder.py"


def profile(given: str, *targets: str) -> ModelProfile:
    clock = clock_of(targets)
    source = model_source(given)
    with model_zygote(source, clock) as zygote, opened(source, clock, zygote) as handle:
        return profile_model(handle, clock)


@pytest.mark.slow
def test_the_blocks_of_an_encoder_are_one_region() -> None:
    found = profile(str(EXAMPLE), "gfx942", "cpu")
    assert found.clock.times == "estimate" and found.clock.label == "ESTIMATE"
    first = found.regions[0]
    assert first.paths == ("blocks.0", "blocks.1", "blocks.2")
    assert found.at_most(first) == max(map(found.at_most, found.regions)) > 1.5
    covered = sum(region.seconds for region in found.regions) + sum(one.seconds for one in found.stays)
    assert covered == pytest.approx(found.seconds)


@pytest.mark.slow
def test_a_part_that_reads_values_is_taken_in_parts_on_the_processors_clock() -> None:
    found = profile(f"{FILES / 'branches.py'}:make", "cpu")
    assert found.clock.times == "processor"
    assert {path for region in found.regions for path in region.paths} == {"odd.linear", "other"}
    why = next(one.why for one in found.stays if one.path == "odd")
    assert why and "taken in parts" not in why


WRONG = [
    ("raises", r"branches.py:38: raises\(\) raises ValueError: no weights"),
    ("alone", r"alone\(\) returns no model with inputs"),
    ("missing", "there is no missing"),
    ("reads", "PermissionError|FileNotFoundError"),
    ("connects", "PermissionError"),
    ("", "no Model and get_inputs"),
]


@pytest.mark.slow
def test_what_the_models_code_does_wrong_is_its_fault() -> None:
    clock = clock_of(["cpu"])
    with model_zygote(model_source(str(FILES / "branches.py")), clock) as zygote:
        for factory, says in WRONG:
            source = model_source(f"{FILES / 'branches.py'}:{factory}".rstrip(":"))
            with pytest.raises(TaskError, match=says), opened(source, clock, zygote):
                pass


def test_a_models_gpu_is_the_first_that_the_environment_allows(monkeypatch):
    from hipwright.device import topology
    from hipwright.device.gpu_info import GpuInfo

    gpus = [
        GpuInfo(index=n, kind="cuda", name=f"H{n}", architecture="sm_90", memory_bytes=1 << 30, units=132)
        for n in range(4)
    ]
    monkeypatch.setattr(topology, "FINDERS", {"cuda": lambda: gpus})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    found = clock_of(["cuda"])
    assert found.gpu is not None and found.gpu.index == 2
