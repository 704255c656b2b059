"""Choices that the targets of a run decide: split products on NVIDIA's GPUs, gfx950's options in runs for it alone."""

from __future__ import annotations

import pytest

from hipwright.api.task_engine import measured_choices
from hipwright.engine.knobs import CDNA4, FLOAT8_UNITS, SPLIT


@pytest.mark.parametrize(
    ("targets", "gpus", "choice"),
    [
        (["gfx950@sim"], {}, CDNA4),
        (["gfx950", "cpu"], {}, CDNA4),
        (["rocm", "cpu"], {"rocm": "gfx950"}, CDNA4),
        (["rocm"], {"rocm": "gfx942"}, ""),
        (["rocm"], {"rocm": "gfx1234"}, ""),
        (["gfx950@sim", "gfx942"], {}, ""),
        (["gfx950", "rocm"], {"rocm": "gfx942"}, ""),
        (["cpu"], {}, ""),
        (["cuda"], {"cuda": "sm_90"}, SPLIT),
        (["cuda", "gfx950"], {"cuda": "sm_90"}, ""),
    ],
)
def test_what_targets_choose(targets: list[str], gpus: dict[str, str], choice: str) -> None:
    found = measured_choices(targets, gpus)
    assert ({CDNA4, SPLIT} & set(found)) == ({choice} if choice else set())


@pytest.mark.parametrize(
    ("targets", "gpus", "units"),
    [
        (["gfx942", "cpu"], {}, "gfx942"),
        (["gfx950@sim", "gfx942"], {}, "gfx942,gfx950"),
        (["rocm"], {"rocm": "gfx950"}, "gfx950"),
        (["gfx942", "gfx90a"], {}, None),
        (["cpu"], {}, None),
        (["cuda", "gfx942"], {"cuda": "sm_90"}, None),
    ],
)
def test_the_gpus_that_multiply_8_bit_floats(targets: list[str], gpus: dict[str, str], units: str | None) -> None:
    """Named only where all GPUs of a run do."""
    assert measured_choices(targets, gpus).get(FLOAT8_UNITS) == units
