"""Profilers' output as Profiles, and the bottleneck of a Profile. The samples are hand-made (tests/measure/data)."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipwright.errors import DeviceError, InfrastructureError
from hipwright.measure.profiling import amd, nvidia
from hipwright.measure.profiling.bottleneck import diagnose
from hipwright.measure.profiling.metrics import METRICS
from hipwright.measure.profiling.nvidia import CountersDenied, number
from hipwright.measure.profiling.profile import KernelBottleneck, Profile

DATA = Path(__file__).parent / "data"
NCU = (DATA / "ncu_raw.csv").read_text()
READS = (DATA / "counter_collection_reads.csv").read_text()
WAVES = (DATA / "counter_collection_waves.csv").read_text()
TRACE = (DATA / "kernel_trace.csv").read_text()
LAUNCHES = [
    {"kernel": "scale", "grid": [1056, 1, 1], "block": [256, 1, 1]},
    {"kernel": "reduce", "grid": [12, 1, 1], "block": [256, 1, 1]},
]


def ncu_profile(name: str) -> Profile:
    return next(profile for profile in nvidia.parse(NCU) if profile.kernel.startswith(name))


def bottleneck_of(profile: Profile, bandwidth: float | None = None) -> KernelBottleneck:
    return diagnose(profile, bandwidth=bandwidth)


def test_every_figure_is_a_named_metric_with_a_unit() -> None:
    fields = {field.name: field.type for field in msgspec.structs.fields(Profile)}
    figures = {name for name, kind in fields.items() if kind == float | None}
    assert figures == set(METRICS)
    assert len(METRICS) >= 24
    assert all(metric.unit and metric.meaning and (metric.nvidia or metric.amd) for metric in METRICS.values())


# ---------------------------------------------------------------- NVIDIA


def test_ncu_launches_in_order_with_units() -> None:
    found = nvidia.parse(NCU)
    assert [(p.number, p.kernel) for p in found] == [
        (0, "copy_all"),
        (1, "copy_strided"),
        (2, "tiny"),
        (3, "conflicts"),
        (4, "half_idle(float *, int)"),
    ]
    copy = found[0]
    assert (copy.device, copy.architecture, copy.units) == ("NVIDIA H200", "sm_90", 132)
    assert (copy.grid, copy.block) == ((1056, 1, 1), (256, 1, 1))
    assert copy.duration_us == 150.0
    assert copy.dram_read_bytes == 268435456.0
    assert copy.dram_bytes_per_s == pytest.approx((268435456 + 260e6) / 150e-6)
    assert copy.valu_pct == 9.9  # the busier of FMA and ALU
    assert copy.cache_throughput_pct == 45.5
    assert copy.lanes_pct == 100.0
    assert found[4].lds_bytes == 131072.0 and found[4].block == (32, 16, 2)
    assert found[3].lds_conflict_pct == pytest.approx(100 * 1047552000 / 1081344000)
    assert found[0].lds_conflict_pct is None  # no work in LDS: there is no share of it


def test_ncu_stalls_are_shares_of_the_waiting() -> None:
    stalls = ncu_profile("conflicts").stalls
    assert list(stalls) == ["lds", "barrier"]
    assert stalls["lds"] == pytest.approx(100 * 180 / 182, abs=0.01)
    assert sum(ncu_profile("copy_all").stalls.values()) == pytest.approx(100, abs=0.1)


def test_a_metric_that_this_gpu_has_not_is_none() -> None:
    text = NCU.replace("dram__bytes_read.sum", "dram__bytes_read.other").replace('"NVIDIA H200"', '"n/a"')
    found = nvidia.parse(text)[0]
    assert found.dram_read_bytes is None and found.dram_bytes_per_s is None
    assert found.dram_write_bytes == 260e6


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("1,234.5", "ns", 1.2345),
        ("2.5", "ms", 2500.0),
        ("3", "usecond", 3.0),
        ("1.5", "Mbyte", 1.5e6),
        ("2", "Kbyte/block", 2000.0),
        ("7", "byte", 7.0),
        ("84.2", "%", 84.2),
        ("n/a", "%", None),
        ("", "", None),
        ("nan", "", None),
        ("1e999", "", None),
        ("(1, 1, 1)", "", None),
        ("12", "sector/request", 12.0),
    ],
)
def test_numbers_as_ncu_prints_them(text: str, unit: str, value: float | None) -> None:
    assert number(text, unit) == (pytest.approx(value) if value is not None else None)


def test_counters_that_are_not_permitted() -> None:
    text = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"
    with pytest.raises(CountersDenied, match="may not read") as caught:
        nvidia.parse(text)
    assert isinstance(caught.value, DeviceError) and "NVreg_RestrictProfilingToAdminUsers" in caught.value.hint


@pytest.mark.parametrize("text", ["", "==ERROR== no kernels were profiled.\n", '"ID","Kernel Name"\n"","",\n'])
def test_output_without_launches(text: str) -> None:
    with pytest.raises(InfrastructureError, match="no table of launches"):
        nvidia.parse(text)


def test_the_command_asks_for_every_metric() -> None:
    line = nvidia.command(["python", "x.py"], ncu="/opt/ncu")
    assert line[0] == "/opt/ncu" and line[-2:] == ["python", "x.py"]
    assert set(line[line.index("--metrics") + 1].split(",")) == set(nvidia.METRICS)
    assert line[line.index("--clock-control") + 1] == "none"


# ---------------------------------------------------------------- AMD


def amd_profiles(arch: str = "gfx942") -> list[Profile]:
    runs = [amd.read_pass(text, TRACE) for text in (WAVES, READS)]
    return amd.profiles(runs, LAUNCHES, arch)


def test_rocprofv3_counters_of_the_last_call() -> None:
    scale, reduce = amd_profiles()
    assert (scale.kernel, scale.number, reduce.kernel) == ("scale", 0, "reduce")
    assert scale.waves == 4224.0  # not the first, cold call's three times as many
    assert scale.dram_read_bytes == 128 * 2_000_000 + 32 * 100_000 + 64 * 100_000
    assert scale.duration_us == 98.0  # the trace's, not the counter file's 100
    assert scale.ipc == 800_000 / 250_000 / 4
    assert (scale.registers, scale.lds_bytes, reduce.lds_bytes) == (12.0, 0.0, 1024.0)
    assert (scale.grid, scale.units) == ((1056, 1, 1), 304)
    assert scale.dram_write_bytes is None and scale.dram_throughput_pct is None  # their run is missing
    assert scale.stalls == {"memory or barrier": 70.0, "issue": 10.0}


def test_amd_residency_by_the_targets_own_limits() -> None:
    scale, reduce = amd_profiles()
    assert scale.occupancy_limit_pct == 100.0
    assert scale.rounds == pytest.approx(1056 / (8 * 304))  # 8 blocks of 4 waves fill the 32 wave slots of a CU
    assert reduce.rounds == pytest.approx(12 / (8 * 304))


def test_read_requests_differ_between_generations() -> None:
    old = READS.replace("TCC_EA0", "TCC_EA")
    runs = [amd.read_pass(old, TRACE)]
    scale = amd.profiles(runs, LAUNCHES, "gfx90a")[0]
    assert scale.dram_read_bytes == 32 * 100_000 + 64 * 2_100_000
    assert amd.profiles(runs, LAUNCHES, "gfx1100")[0].dram_read_bytes is None


def test_all_l2_figures() -> None:
    text = WAVES
    renamed = {
        "SQ_WAVES": "TCC_HIT_sum",
        "SQ_INSTS": "TCC_MISS_sum",
        "SQ_WAVE_CYCLES": "TCP_TOTAL_CACHE_ACCESSES_sum",
        "SQ_WAIT_ANY": "TCP_TCC_READ_REQ_sum",
        "SQ_WAIT_INST_ANY": "TCP_TCC_WRITE_REQ_sum",
        "SQ_ACTIVE_INST_ANY": "SQ_LDS_BANK_CONFLICT",
        "SQ_BUSY_CU_CYCLES": "SQ_LDS_IDX_ACTIVE",
    }
    for name, other in renamed.items():
        text = text.replace(f'"{name}"', f'"{other}"')
    scale = amd.profiles([amd.read_pass(text, TRACE)], LAUNCHES, "gfx942")[0]
    assert scale.l2_hit_pct == pytest.approx(100 * 4224 / (4224 + 800_000))
    assert scale.l1_hit_pct == pytest.approx(100 * (1 - 800_000 / 1_000_000))
    assert scale.lds_conflict_pct == pytest.approx(100 * 200_000 / 250_000)


def test_counter_groups_by_architecture() -> None:
    known = {name for group in amd.groups("gfx942") for name in group}
    assert {"TCC_EA0_RDREQ_sum", "TCC_BUBBLE_sum", "MfmaUtil", "SQ_WAVES"} <= known
    old = {name for group in amd.groups("gfx90a") for name in group}
    assert "TCC_EA_RDREQ_sum" in old and "TCC_BUBBLE_sum" not in old
    assert not any(name.startswith(("TCC", "Mfma")) for group in amd.groups("gfx1100") for name in group)
    assert all(len(group) <= 8 for group in amd.groups("gfx942"))  # SQ counts eight events at a time


def test_a_run_without_its_counters_still_has_durations() -> None:
    run = amd.read_pass("", TRACE)
    assert run.counters == set()
    assert amd.profiles([run], LAUNCHES, "gfx942")[0].duration_us == 98.0
    with pytest.raises(InfrastructureError, match="no dispatches"):
        amd.read_pass("", "")


def test_another_programs_launches_are_not_taken() -> None:
    run = amd.read_pass(WAVES, TRACE)
    with pytest.raises(InfrastructureError, match="saw 4 launches of the program's kernels, not 5"):
        amd.profiles([run], [*LAUNCHES, *LAUNCHES, LAUNCHES[0]], "gfx942")
    with pytest.raises(InfrastructureError, match="saw 2 launches"):
        amd.profiles([run], [LAUNCHES[0], {**LAUNCHES[0], "kernel": "absent"}], "gfx942")


def test_files_of_another_format_are_refused() -> None:
    with pytest.raises(InfrastructureError, match=r"counter_collection\.csv has no column Counter_Value"):
        amd.read_pass(WAVES.replace("Counter_Value", "Value"), TRACE)
    with pytest.raises(InfrastructureError, match=r"kernel_trace\.csv has no column"):
        amd.read_pass(WAVES, "a,b\n1,2\n")


# ---------------------------------------------------------------- broken text


@st.composite
def damaged(draw: st.DrawFn, whole: str) -> str:
    """The text with a few cuts, swaps and insertions at random places."""
    rng, text = random.Random(draw(st.integers(0, 1 << 30))), whole
    for _ in range(draw(st.integers(1, 6))):
        at = rng.randrange(len(text) + 1)
        match draw(st.sampled_from(["cut", "drop", "insert", "line", "huge"])):
            case "cut":
                text = text[:at]
            case "drop":
                text = text[:at] + text[at + rng.randrange(40) :]
            case "insert":
                text = text[:at] + draw(st.text(max_size=8)) + text[at:]
            case "line":
                lines = text.splitlines(keepends=True)
                rng.shuffle(lines)
                text = "".join(lines)
            case "huge":
                text = text[:at] + "9" * 400 + text[at:]
    return text


def check_figures(profiles: list[Profile]) -> None:
    for profile in profiles:
        for name in METRICS:
            value = getattr(profile, name)
            assert value is None or (value == value and abs(value) != float("inf"))
        assert diagnose(profile).text


@given(text=damaged(NCU))
def test_damaged_ncu_output_is_refused_or_read_in_part(text: str) -> None:
    try:
        check_figures(nvidia.parse(text))
    except (InfrastructureError, DeviceError) as error:
        assert error.message


@given(counters=damaged(READS), trace=damaged(TRACE))
def test_damaged_rocprof_files_are_refused_or_read_in_part(counters: str, trace: str) -> None:
    try:
        check_figures(amd.profiles([amd.read_pass(counters, trace)], LAUNCHES, "gfx942"))
    except InfrastructureError as error:
        assert error.message


# ---------------------------------------------------------------- plain words


def test_memory_bound_by_the_measured_bandwidth() -> None:
    found = bottleneck_of(ncu_profile("copy_all"), 4.3e12)
    assert found.kind == "memory" and found.text == "memory bound: 82 % of measured bandwidth"
    assert bottleneck_of(ncu_profile("copy_all")).text == "memory bound: 84 % of peak bandwidth"


def test_uncoalesced_access_is_named() -> None:
    found = bottleneck_of(ncu_profile("copy_strided"))
    assert found.kind == "memory"
    assert "loads use 4 of 32 bytes of each sector; stores use 4 of 32 bytes of each sector" in found.text


def test_too_few_blocks() -> None:
    found = bottleneck_of(ncu_profile("tiny"))
    assert found.kind == "latency" and found.text.startswith("latency: 12 blocks cannot fill 132 SMs")
    assert "waves wait 88 % of their time for global memory" in found.text
    assert "only 3 % of the wave slots are filled" in found.text
    assert bottleneck_of(amd_profiles()[1]).text.startswith("latency: 12 blocks cannot fill 304 CUs")


def test_lds_bank_conflicts() -> None:
    found = bottleneck_of(ncu_profile("conflicts"))
    assert found.kind == "lds" and found.text.startswith("LDS bound: 97 % of its work is bank conflicts")


def test_compute_bound_with_its_waste() -> None:
    found = bottleneck_of(ncu_profile("half_idle"))
    assert found.kind == "compute"
    assert found.text.startswith("compute bound: the matrix units are busy 72 % of the time; ")
    assert "52 % of the lanes work" in found.text and "loads use 16 of 32 bytes" in found.text
    assert "the blocks fill the device 1.25 times: 38 % of the last rounds is idle" in found.text


def test_latency_names_the_stall_and_the_limit() -> None:
    profile = Profile(
        kernel="k",
        target="cuda",
        units=132,
        grid=(1000, 1, 1),
        dram_throughput_pct=20.0,
        valu_pct=15.0,
        occupancy_limit_pct=25.0,
        stalls={"barrier": 55.0, "memory": 20.0},
    )
    found = bottleneck_of(profile)
    assert found.kind == "latency" and found.text.split("; ") == [
        "latency: only 20 % of peak bandwidth and 15 % of what the vector ALUs can do",
        "waves wait 55 % of their time at barriers",
        "registers or LDS allow only 25 % of the waves a unit can hold",
    ]


def test_scratch_and_cache() -> None:
    profile = Profile(
        kernel="k", target="rocm", cache_throughput_pct=77.0, l2_hit_pct=95.0, scratch_bytes=64.0, coalescing_pct=25.0
    )
    found = bottleneck_of(profile)
    assert found.kind == "cache"
    assert found.text == (
        "cache bound: 77 % of the peak of L1 or L2 (L2 hits 95 %); accesses are coalesced to 25 %; 64 bytes of scratch "
        "a lane: spills or indexed arrays go through memory"
    )


def test_nothing_known_is_said_so() -> None:
    assert bottleneck_of(Profile(kernel="k", target="rocm")) == KernelBottleneck(
        kind="unknown", text="not enough counters to tell"
    )


shares = st.none() | st.floats(0, 100)


@given(
    figures=st.fixed_dictionaries(dict.fromkeys(METRICS, shares)),
    blocks=st.integers(0, 10_000),
    stalls=st.dictionaries(st.sampled_from(["memory", "barrier", "unnamed"]), st.floats(0, 100)),
)
def test_any_figures_give_a_text(figures: dict[str, float | None], blocks: int, stalls: dict[str, float]) -> None:
    profile = Profile(kernel="k", target="cuda", units=132, grid=(blocks, 1, 1), stalls=stalls, **figures)  # type: ignore[arg-type]
    found = diagnose(profile, bandwidth=4e12)
    assert found.text and "None" not in found.text and "nan" not in found.text
