"""The list of targets: what it holds, and that a new AMD architecture needs nothing but a record."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hipwright.device.open import DRIVERS
from hipwright.device.topology import FINDERS
from hipwright.errors import BadInput
from hipwright.measure.profiling.vendors import PROFILERS
from hipwright.sandbox.gpu.access import DRIVER_FILES
from hipwright.targets import AMD, NVIDIA, OFFLINE, REPRESENTATIVE, TARGETS, offline_amd
from hipwright.toolchain.amd import codeobject, offline
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.gpu_compilers import GPU_COMPILERS
from hipwright.toolchain.probe import TRIAL

DESIGN = Path(__file__).parents[2] / "docs/design.md"


def test_the_list_and_its_order() -> None:
    """Offline targets come first, however many there are."""
    offline = [target.name for target in TARGETS if target.is_offline]
    simulated = tuple(target.name for target in TARGETS.simulated)
    assert TARGETS.names() == (*offline, "cpu", *simulated, "rocm", "cuda")
    assert simulated[:2] == ("gfx90a@sim", "gfx942@sim") and all(TARGETS.is_simulated(name) for name in simulated)
    assert offline[:4] == ["gfx90a", "gfx942", "gfx950", "gfx1100"] and list(OFFLINE) == offline
    assert len(OFFLINE) == len(offline)
    assert [target.name for target in TARGETS.gpus] == ["rocm", "cuda"]
    assert [target.name for target in TARGETS.running] == ["cpu", *simulated, "rocm", "cuda"]
    assert TARGETS.default_offline == ("gfx942", "gfx950") and REPRESENTATIVE.name == "gfx942"
    assert TARGETS.gpu_choices() == "cuda or rocm"


def test_what_a_target_is() -> None:
    assert TARGETS.is_gpu("rocm") and not TARGETS.is_gpu("gfx942") and not TARGETS.is_gpu("metal")
    assert TARGETS.is_host("cpu") and not TARGETS.is_host("cuda")
    assert {target.vendor for target in TARGETS.gpus} == {AMD, NVIDIA}
    assert all(target.proves and target.waves for target in TARGETS)
    with pytest.raises(BadInput, match="unknown target 'metal'"):
        TARGETS["metal"]
    with pytest.raises(BadInput, match="'cpu' is no GPU target"):
        TARGETS.gpu("cpu")
    with pytest.raises(ValueError, match="no GPU runtime"):
        _ = TARGETS["cpu"].gpu_runtime
    with pytest.raises(KeyError):
        OFFLINE["cpu"]


def test_the_docs_say_what_a_target_proves() -> None:
    """The table of docs/design.md has one row for the offline targets and one for the host."""
    rows = [line for line in DESIGN.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    for target in TARGETS:
        if not target.is_gpu:
            named = "`gfx942`" if target.is_offline else f"`{target.name}`"
            assert any(named in row and row.endswith(f"| {target.proves} |") for row in rows), target.name


def test_every_layer_knows_every_gpu_runtime() -> None:
    for registry in (DRIVER_FILES, GPU_COMPILERS, FINDERS, DRIVERS, PROFILERS):
        assert set(registry) == set(TARGETS.gpus)


def test_a_new_amd_architecture_is_one_record(tmp_path: Path) -> None:
    """The toy has the machine code of gfx942 and other figures: as a product with fewer registers would."""
    figures = msgspec.structs.replace(
        OFFLINE["gfx942"], name="gfxtoy", compiler_name="gfx942", product="Toy", max_waves_per_simd=2
    )
    with TARGETS.added(offline_amd(figures)):
        assert list(OFFLINE)[-1] == "gfxtoy" and TARGETS.names()[len(OFFLINE)] == "cpu"
        assert TARGETS.architecture("gfxtoy") == figures
        build = offline.build(TRIAL, "gfxtoy", {}, cache=BuildCache(tmp_path))
        with pytest.raises(ValueError, match="already"), TARGETS.added(offline_amd(figures)):
            pass
    assert build.ok and build.target == "gfxtoy"
    assert [kernel.occupancy for kernel in build.kernels] == [2]
    assert codeobject.machine(BuildCache(tmp_path).get(build.blob)) == OFFLINE["gfx942"].elf_machine
    assert "gfxtoy" not in TARGETS
    with pytest.raises(BadInput, match="unknown AMD target"):
        offline.build(TRIAL, "gfxtoy", {}, cache=BuildCache(tmp_path))
