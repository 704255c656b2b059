"""GPUs found through a stub NVML and a made-up /sys/class/kfd."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from hipwright.device import topology
from hipwright.device.amd import kfd
from hipwright.device.amd.kfd import gfx_name
from hipwright.device.gpu_info import GpuInfo
from hipwright.device.nvidia import nvml
from hipwright.device.topology import choose, find
from hipwright.errors import BadInput, DeviceError
from hipwright.targets import CUDA, ROCM, TARGETS

from .conftest import HERE, compile_c

CPU = "cpu_cores_count 96\nsimd_count 0\ngfx_target_version 0\n"
GPU = "cpu_cores_count 0\nsimd_count 1216\nsimd_per_cu 4\ngfx_target_version {}\nunique_id 2748\nlocation_id 768\n"


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    """A CPU, an MI300X (node 2) and an RX 7900 (node 10)."""
    for number, text, name in ((0, CPU, ""), (2, GPU.format(90402), "ip discovery"), (10, GPU.format(110000), "")):
        bank = tmp_path / str(number) / "mem_banks/0"
        bank.mkdir(parents=True)
        (tmp_path / str(number) / "properties").write_text(text)
        (tmp_path / str(number) / "name").write_text(name + "\n")
        (bank / "properties").write_text(f"heap_type {0 if not name else 1}\nsize_in_bytes 206141652992\nflags 0\n")
    return tmp_path


def test_amd_gpus_in_the_drivers_order(nodes: Path) -> None:
    first, second = kfd.gpus(nodes)
    assert first == GpuInfo(
        index=0,
        kind="rocm",
        name="ip discovery",
        architecture="gfx942",
        memory_bytes=206141652992,
        units=304,
        uuid="GPU-0000000000000abc",
    )
    assert (second.index, second.architecture, second.name, second.memory_bytes) == (1, "gfx1100", "AMD GPU", 0)
    assert kfd.gpus(nodes / "absent") == []


@pytest.mark.parametrize(
    ("version", "name"),
    [(90010, "gfx90a"), (90402, "gfx942"), (90500, "gfx950"), (110000, "gfx1100"), (90006, "gfx906")],
)
def test_names_of_architectures(version: int, name: str) -> None:
    assert gfx_name(version) == name


def test_nvidia_gpus_through_nvml(tmp_path: Path) -> None:
    library = compile_c(HERE / "stub_nvml.c", tmp_path / "libnvidia-ml.so.1")
    assert nvml.gpus(str(library)) == [
        GpuInfo(
            index=0,
            kind="cuda",
            name="NVIDIA H200",
            architecture="sm_90",
            memory_bytes=150754820096,
            uuid="GPU-0a1b2c3d",
        )
    ]
    assert ctypes.CDLL(str(library)).stub_started() == 0  # it was shut down again
    assert nvml.gpus("/nowhere.so") == []
    assert nvml.gpus("libc.so.6") == []  # a library without NVML's functions


def test_what_nvml_says_of_clocks_and_trouble(tmp_path: Path) -> None:
    library = str(compile_c(HERE / "stub_nvml.c", tmp_path / "libnvidia-ml.so.1"))
    assert (nvml.cuda_version(library), nvml.clocks_mhz(0, library)) == ("CUDA 13.0", (1980, 2619))
    say = ctypes.CDLL(library).stub_trouble
    say.argtypes = [ctypes.c_ulonglong, ctypes.c_ulonglong]
    found = []
    for errors, reasons in ((0, 0x4), (2, 0), (0, 0x48)):  # 0x4: the power limit, which is no fault
        say(errors, reasons)
        found.append(nvml.trouble(0, library))
    assert found == [
        "",
        "2 uncorrected memory errors (ECC) since the driver was loaded",
        "its clocks are held down: hardware slowdown, temperature",
    ]
    assert (nvml.clocks_mhz(1, library), nvml.trouble(1, library)) == ((0, 0), "")
    assert (nvml.cuda_version("/nowhere.so"), nvml.trouble(0, "libc.so.6")) == ("", "")


def test_errors_that_the_amdgpu_driver_counts(tmp_path: Path) -> None:
    for number, errors in ((0, 0), (1, 3)):
        ras = tmp_path / f"card{number}/device/ras"
        ras.mkdir(parents=True)
        (ras.parent / "unique_id").write_text(f"{number:016x}\n")
        (ras / "umc_err_count").write_text(f"ue: {errors}\nce: 7\n")
        (ras / "gfx_err_count").write_text("ue: 0\nce: 0\n")
    assert kfd.trouble("GPU-0000000000000000", tmp_path) == ""
    assert kfd.trouble("GPU-0000000000000001", tmp_path) == "3 uncorrected errors (RAS) since the driver was loaded"
    assert kfd.trouble("", tmp_path) == "" == kfd.trouble("GPU-1", tmp_path / "absent")


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [GpuInfo(index=i, kind="cuda", name="H200", architecture="sm_90", uuid=f"GPU-{i}aaaa") for i in range(4)]
    monkeypatch.setitem(topology.FINDERS, CUDA, lambda: made)
    monkeypatch.setitem(topology.FINDERS, ROCM, list)
    for name in {name for target in TARGETS.gpus for name in target.gpu_runtime.visible}:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("listed", "seen"),
    [(None, [0, 1, 2, 3]), ("1,3", [1, 3]), ("", []), ("-1", []), ("0,-1,2", [0]), ("GPU-2aa", [2]), ("nonsense", [])],
)
def test_the_environment_hides_gpus(
    four: None, monkeypatch: pytest.MonkeyPatch, listed: str | None, seen: list[int]
) -> None:
    if listed is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    assert [gpu.index for gpu in find()] == seen
    assert find("rocm") == []


def test_the_gpus_option(four: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [gpu.index for gpu in choose("all")] == [0, 1, 2, 3]
    assert [gpu.index for gpu in choose("2,0,2")] == [2, 0]
    with pytest.raises(BadInput, match="no GPU 7 here") as caught:
        choose("0,7")
    assert "3 (H200)" in caught.value.hint
    with pytest.raises(BadInput, match="not a list of GPUs"):
        choose("first")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(DeviceError, match="no usable GPU"):
        choose("all")
