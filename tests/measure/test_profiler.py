"""Profiling end to end without a GPU: the runner on the stub HIP runtime, and substitutes for ncu and rocprofv3."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from hipwright.device import hip_check
from hipwright.errors import CandidateError, DeviceError, InfrastructureError, ToolchainError
from hipwright.measure.profiling import amd, nvidia, profiled_process, profiler, vendors
from hipwright.measure.profiling.profiler import MARK, ProfiledProgram, ProfileJob, profile_program, write_job
from hipwright.records import Build, KernelResources
from hipwright.sandbox import GpuAccess
from hipwright.tensors import HostTensor
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.cache import BuildCache
from tests.rocm.conftest import HERE as STUBS
from tests.rocm.conftest import Stub, compile_c

DATA = Path(__file__).parent / "data"
PLAN = f"""HIP = r'''{hip_check.SOURCE}'''

def forward(self, x):
    y = torch.empty_like(x)
    trial[cdiv(x.numel(), 64), 64](x, y, x.numel(), 0.5)
    z = torch.empty_like(x)
    trial[cdiv(x.numel(), 128), 128](y, z, x.numel(), 2.0)
    return z
"""
STATE = {"params": {}, "buffers": {}, "attrs": {}, "modules": {}, "training": True}
LAUNCHES = [
    {"kernel": "scale", "grid": [1056, 1, 1], "block": [256, 1, 1], "argument_bytes": 8},
    {"kernel": "reduce", "grid": [12, 1, 1], "block": [256, 1, 1], "argument_bytes": 8},
]


def subject(
    target: str, code: bytes = b"", kernels: tuple[str, ...] = ("trial",), arch: str = "sm_90"
) -> ProfiledProgram:
    build = Build(target=target, ok=True, kernels=tuple(KernelResources(name=k, scratch_bytes=8) for k in kernels))
    x = HostTensor.of(np.arange(1000, dtype=np.float32))
    return ProfiledProgram(ProfileJob(target=target, text=PLAN), arch, build, code, [x], STATE)  # type: ignore[arg-type]


# ---------------------------------------------------------------- the runner


@pytest.fixture(scope="module")
def stub_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(STUBS / "stub_hip.c", tmp_path_factory.mktemp("stub") / "libamdhip64.so")


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    cache = BuildCache(tmp_path_factory.mktemp("cache"))
    return cache.get(amdgpu.build(hip_check.SOURCE, "gfx942", {}, cache=cache).blob)


def test_the_runner_warms_up_and_tells_one_calls_launches(stub_path: Path, trial: bytes, tmp_path: Path) -> None:
    stub = Stub(stub_path)
    stub.knows(trial)
    write_job(tmp_path, subject("rocm", trial))
    reported = profiled_process.run(tmp_path, stub.driver(), "cpu")
    assert [(t["kernel"], t["grid"], t["block"]) for t in reported] == [
        ("trial", [16, 1, 1], [64, 1, 1]),
        ("trial", [8, 1, 1], [128, 1, 1]),
    ]
    assert stub.calls("hipModuleLaunchKernel") == 2 * (profiler.WARM_CALLS + 1)


def test_the_runner_holds_the_code_object_against_the_text(stub_path: Path, trial: bytes, tmp_path: Path) -> None:
    stub = Stub(stub_path)
    stub.knows(trial)
    other = PLAN.replace("int n, float scale)", "long n, float scale)")
    wrong = subject("rocm", trial)
    write_job(
        tmp_path,
        ProfiledProgram(ProfileJob(target="rocm", text=other), "gfx942", wrong.build, trial, wrong.inputs, STATE),
    )
    with pytest.raises(CandidateError, match="the compiled code has n as 4 bytes"):
        profiled_process.run(tmp_path, stub.driver(), "cpu")
    assert stub.calls("hipModuleLaunchKernel") == 0


def test_the_runner_tells_errors_as_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    write_job(tmp_path, subject("cuda"))
    assert profiled_process.main(str(tmp_path)) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert json.loads(last.removeprefix(MARK))["error"]["fault"] == "service"


# ---------------------------------------------------------------- stand-ins for the profilers


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A shell script in place of the profiler; the test gives its text."""
    path = tmp_path / "bin/tool"
    path.parent.mkdir()
    monkeypatch.setattr(profiler, "find_tool", lambda target: path)
    yield path


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def said(value: object) -> str:
    return f"echo '{MARK}{json.dumps(value)}'"


def test_ncu_to_profiles_with_words(tool: Path) -> None:
    script(tool, f'{said({"launches": []})}; cat {DATA}/ncu_raw.csv; echo "$@" > $PWD/arguments; ls $PWD >&2')
    kernels = ("copy_all", "copy_strided", "tiny", "conflicts", "half_idle")
    report = profile_program(subject("cuda", kernels=kernels), unsafe=True, bandwidth=4.3e12)
    assert [p.kernel for p in report.profiles] == list(kernels)
    assert all(p.own and p.scratch_bytes == 8 for p in report.profiles)
    assert not report.contained and report.tool == str(tool)
    kinds = [p.bottleneck.kind for p in report.profiles if p.bottleneck]
    assert kinds == ["memory", "memory", "latency", "lds", "compute"]
    text = report.profiles[0].bottleneck
    assert text is not None and text.text.startswith("memory bound: 82 % of measured bandwidth")


def test_a_kernel_that_cuda_has_a_function_of_the_same_name_for(tool: Path) -> None:
    text = (DATA / "ncu_raw.csv").read_text().replace('"tiny"', '"hw_fma"')
    (tool.parent / "sample.csv").write_text(text)
    script(tool, f"{said({'launches': []})}; cat {tool.parent}/sample.csv")
    report = profile_program(subject("cuda", kernels=("fma",)), unsafe=True)
    assert [p.kernel for p in report.profiles if p.own] == ["fma"]


def test_a_librarys_kernel_is_not_the_programs(tool: Path) -> None:
    script(tool, f"{said({'launches': []})}; cat {DATA}/ncu_raw.csv")
    report = profile_program(subject("cuda", kernels=("tiny",)), unsafe=True)
    assert [p.kernel for p in report.profiles if p.own] == ["tiny"]
    assert report.profiles[0].scratch_bytes is None


def test_rocprofv3_runs_once_a_group(tool: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    script(
        tool,
        f"""echo "$@" >> {log}
mkdir -p counters/host
case "$*" in
    *TCC_EA0_RDREQ_sum*) cp {DATA}/counter_collection_reads.csv counters/host/1_counter_collection.csv;;
    *SQ_WAVES*) cp {DATA}/counter_collection_waves.csv counters/host/1_counter_collection.csv;;
esac
cp {DATA}/kernel_trace.csv counters/host/1_kernel_trace.csv
{said({"launches": LAUNCHES})}""",
    )
    report = profile_program(subject("rocm", kernels=("scale", "reduce"), arch="gfx942:xnack-"), unsafe=True)
    scale, reduce = report.profiles
    assert scale.waves == 4224 and scale.dram_read_bytes == 265_600_000 and scale.architecture == "gfx942"
    assert reduce.bottleneck is not None and "12 blocks cannot fill 304 CUs" in reduce.bottleneck.text
    lines = log.read_text().splitlines()
    assert len(lines) == len(amd.groups("gfx942"))
    assert all("--kernel-trace --output-format csv" in line for line in lines)
    assert any("MfmaUtil" in note for note in report.notes)  # the substitute does not have this counter


@pytest.mark.parametrize(
    ("fault", "kind"), [("candidate", CandidateError), ("service", DeviceError), ("device", DeviceError)]
)
def test_what_went_wrong_in_the_runner(tool: Path, fault: str, kind: type[Exception]) -> None:
    script(tool, said({"error": {"fault": fault, "status": "launch_error", "message": "no kernel named trial"}}))
    with pytest.raises(kind, match="no kernel named trial"):
        profile_program(subject("cuda"), unsafe=True)


def test_a_profiler_that_dies(tool: Path) -> None:
    script(tool, "echo '==ERROR== An error was reported by the driver' >&2; exit 9")
    with pytest.raises(InfrastructureError, match="ended with 9 before its work: ==ERROR== An error"):
        profile_program(subject("cuda"), unsafe=True)


def test_counters_that_are_not_permitted(tool: Path) -> None:
    script(tool, f"{said({'launches': []})}; echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission'")
    with pytest.raises(DeviceError, match="may not read the GPU's performance counters"):
        profile_program(subject("cuda"), unsafe=True)


def test_a_profiler_that_hangs(tool: Path) -> None:
    script(tool, "sleep 60")
    with pytest.raises(InfrastructureError, match=r"longer than 0\.5 s") as caught:
        profile_program(subject("cuda"), unsafe=True, limit_s=0.5)
    assert caught.value.status == "timeout"


def test_without_a_gpu_a_contained_run_is_refused_not_done_uncontained(tool: Path, tmp_path: Path) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a GPU")
    script(tool, f"touch {tmp_path}/ran")
    with pytest.raises(DeviceError, match="no cuda GPU 0 here"):
        profile_program(subject("cuda"))
    assert not (tmp_path / "ran").exists()


def test_the_contained_runner_finds_all_it_needs_but_a_gpu(tool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A substitute that runs its program as ncu would, in the sandbox, until torch needs a GPU."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    monkeypatch.setattr(GpuAccess, "nodes", lambda self: [Path("/dev/null")])
    script(tool, 'while [ "$1" != "-B" ]; do program="$1"; shift; done; exec "$program" "$@"')
    with pytest.raises(DeviceError, match="CUDA") as caught:
        profile_program(subject("cuda"))
    assert "ModuleNotFound" not in caught.value.message and "No such file" not in caught.value.message


def test_where_the_profilers_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(nvidia, "NCU_PLACES", ())
    monkeypatch.setattr(amd.rocm_paths, "roots", list)
    for target, name, hint in (("cuda", "ncu", "Nsight Compute"), ("rocm", "rocprofv3", "rocprofiler-sdk")):
        with pytest.raises(ToolchainError, match=f"no {name} on this machine") as caught:
            vendors.find_tool(target)
        assert hint in caught.value.hint
        script(tmp_path / name, "exit 0")
        assert vendors.find_tool(target) == tmp_path / name
