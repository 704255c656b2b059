"""`hipwright profile`: its errors, and one run end to end with a substitute for rocprofv3."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_tools import FILES, one_object

from hipwright.cli import main
from hipwright.device import topology
from hipwright.device.gpu_info import GpuInfo
from hipwright.measure.profiling import profiler, vendors
from hipwright.measure.profiling.profiler import MARK
from hipwright.records import Build, KernelResources
from hipwright.sandbox import Zygote
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.nvidia import nvrtc

TASK, PROGRAM = str(FILES / "scale.py"), str(FILES / "good.py")
SAMPLE = FILES.parent / "measure/data/ncu_raw.csv"
LAUNCH = {"kernel": "scale", "grid": [3, 1, 1], "block": [256, 1, 1], "argument_bytes": 1}
COLUMNS = (
    "Dispatch_Id",
    "Kernel_Name",
    "Counter_Name",
    "Counter_Value",
    "VGPR_Count",
    "Accum_VGPR_Count",
    "LDS_Block_Size",
    "Scratch_Size",
)
ROWS = ",".join(COLUMNS) + "\n1,scale,SQ_WAVES,12,8,4,0,0\n"
TRACE = '"Dispatch_Id","Kernel_Name","Start_Timestamp","End_Timestamp"\n1,"scale",1000,4500\n'


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(topology, "find", lambda kind=None: [])
    assert main.main(["profile", TASK, PROGRAM]) == 3
    assert "error: device: no usable GPU on this machine" in capsys.readouterr().err


def test_other_targets_have_no_counters(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["profile", TASK, PROGRAM, "--target", "gfx942"]) == 2
    assert "no counters can be read of target 'gfx942'" in capsys.readouterr().err


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """One fake AMD GPU, and a script for rocprofv3."""
    gpu = GpuInfo(index=0, kind="rocm", name="MI300X", architecture="gfx942")
    monkeypatch.setattr(topology, "find", lambda kind=None: [gpu] if kind in (None, "rocm") else [])
    monkeypatch.setenv("HIPWRIGHT_CACHE", str(tmp_path / "cache"))
    tool = tmp_path / "rocprofv3"
    (tmp_path / "counters.csv").write_text(ROWS)
    (tmp_path / "trace.csv").write_text(TRACE)
    tool.write_text(f"""#!/bin/sh
mkdir -p counters; cp {tmp_path}/counters.csv counters/1_counter_collection.csv
cp {tmp_path}/trace.csv counters/1_kernel_trace.csv
echo '{MARK}{json.dumps({"launches": [LAUNCH]})}'
""")
    tool.chmod(0o755)
    monkeypatch.setattr(profiler, "find_tool", lambda target: tool)
    monkeypatch.setattr(vendors, "find_tool", lambda target: tool)
    return tool


def test_a_program_that_does_not_compile(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = str(FILES / "does_not_compile.py")
    assert main.main(["profile", TASK, broken, "--target", "rocm"]) == 1
    assert "the program does not compile for gfx942" in capsys.readouterr().err


def test_an_unknown_workload(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["profile", TASK, PROGRAM, "--workload", "huge"]) == 2
    assert "the task has no workload 'huge'" in capsys.readouterr().err


@pytest.mark.slow
def test_from_files_to_words(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["profile", TASK, PROGRAM, "--target", "rocm", "--unsafe", "--json"]) == 0
    printed = one_object(capsys.readouterr().out)
    (launch,) = printed["profiles"]
    assert (launch["kernel"], launch["own"], launch["waves"], launch["duration_us"]) == ("scale", True, 12.0, 3.5)
    assert launch["bottleneck"]["text"].startswith("latency: 3 blocks cannot fill 304 CUs")
    assert main.main(["profile", TASK, PROGRAM, "--unsafe"]) == 0
    out = capsys.readouterr().out
    assert "0 scale: latency: 3 blocks cannot fill 304 CUs" in out and "3 x 256" in out


@pytest.mark.slow
def test_the_same_on_nvidia(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The compiler is a substitute too: its arguments are checked, and that its cubin reaches the profiled process."""
    asked: list[dict[str, object]] = []

    def build(hip: str, defines: dict[str, int], *, arch: str, pool: object, cache: BuildCache, unsafe: bool) -> Build:
        asked.append({"defines": defines, "arch": arch})
        kernels = (KernelResources(name="tiny", scratch_bytes=4),)
        return Build(target="cuda", ok=True, blob=cache.put(b"cubin"), kernels=kernels)

    tool = tmp_path / "ncu"
    tool.write_text(f"""#!/bin/sh
grep -q cubin kernels.bin && echo '{MARK}{json.dumps({"launches": []})}' && cat {SAMPLE}
""")
    tool.chmod(0o755)
    gpu = GpuInfo(index=0, kind="cuda", name="H200", architecture="sm_90")
    monkeypatch.setattr(topology, "find", lambda kind=None: [gpu])
    monkeypatch.setattr(nvrtc, "build", build)
    monkeypatch.setattr(nvrtc, "zygote", lambda *, unsafe: Zygote((), unsafe=unsafe, name="compiler"))
    monkeypatch.setattr(profiler, "find_tool", lambda target: tool)
    monkeypatch.setattr(vendors, "find_tool", lambda target: tool)
    monkeypatch.setenv("HIPWRIGHT_CACHE", str(tmp_path / "cache"))
    assert main.main(["profile", TASK, PROGRAM, "--target", "cuda", "--unsafe"]) == 0
    assert asked == [{"defines": {"BLOCK": 256}, "arch": "sm_90"}]
    out = capsys.readouterr().out
    assert "2 tiny: latency: 12 blocks cannot fill 132 SMs" in out
