"""The GPU that is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hipwright.device import topology
from hipwright.device.gpu_info import GpuInfo
from hipwright.errors import InfrastructureError
from hipwright.evaluation.gpu import context
from hipwright.targets import CUDA, TARGETS, Target
from hipwright.toolchain.cache import BuildCache


class Chosen(Exception):
    """Ends the opening once the GPU is chosen."""


@pytest.mark.parametrize(("index", "expected"), [(None, 1), (3, 3)])
def test_without_a_number_it_is_the_first_that_the_environment_allows(
    index: int | None, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA_VISIBLE_DEVICES=1,3 leaves no GPU 0."""
    found = [GpuInfo(index=n, kind="cuda", name="H200", architecture="sm_90") for n in (1, 3)]
    monkeypatch.setattr(topology, "find", lambda kind: found)

    def access(target: Target, number: int) -> Any:
        raise Chosen(number)

    monkeypatch.setattr(context, "GpuAccess", access)
    with pytest.raises(Chosen, match=str(expected)), context.open_gpu(CUDA, index, BuildCache(tmp_path)):
        pass


@pytest.mark.parametrize(("index", "said"), [(None, "no cuda GPU here"), (0, "no cuda GPU 0 here")])
def test_without_a_gpu_it_says_so(
    index: int | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topology, "find", lambda kind: [])
    with pytest.raises(InfrastructureError, match=said), context.open_gpu(CUDA, index, BuildCache(tmp_path)):
        pass


@pytest.mark.parametrize(
    ("architecture", "mebibytes"),
    [("gfx942", 256), ("gfx950", 256), ("gfx1100", 96), ("gfx90a", 16), ("sm_90a", 50), ("gfx000", 0)],
)
def test_the_last_cache_is_the_architectures(architecture: str, mebibytes: int) -> None:
    known = TARGETS.architecture(architecture)
    if architecture == "gfx90a" and known is not None:
        mebibytes = known.l2_bytes >> 20  # it has no Infinity Cache
    assert context.last_level_bytes(architecture) == mebibytes << 20
