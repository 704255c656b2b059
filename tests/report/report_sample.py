"""An artificial run for the report tests: every section filled, optionally with hostile text in every string."""

from __future__ import annotations

import random

from hipwright.archive import TrialDetail
from hipwright.records import (
    Build,
    Estimate,
    Evaluation,
    KernelResources,
    Program,
    Run,
    TargetResult,
    Task,
    TensorSpec,
    Timing,
    Verdict,
    Versus,
    Workload,
)
from hipwright.report import ReportData

SOURCE = '''import torch
import torch.nn as nn


class Model(nn.Module):
    """RMSNorm, then a gated product."""

    def __init__(self, width: int):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(width))

    def forward(self, x):
        rms = x.pow(2).mean(-1, keepdim=True).add(1e-6).rsqrt()
        a, b = (x * rms * self.gamma).chunk(2, -1)
        return torch.nn.functional.silu(a) * b


def get_inputs():
    return [torch.randn(64, 4096)]


def get_init_inputs():
    return [4096]
'''
HIP = """#include <hip/hip_runtime.h>

extern "C" __global__ void rms_swiglu(const float* x, const float* g, float* y, int width, float eps) {
    __shared__ float part[BLOCK / 64];
    const long row = blockIdx.x;
    float sum = 0.f;
    for (int i = threadIdx.x; i < width; i += BLOCK) sum += x[row * width + i] * x[row * width + i];
    for (int d = 32; d > 0; d >>= 1) sum += __shfl_down(sum, d);
    if (threadIdx.x % 64 == 0) part[threadIdx.x / 64] = sum;
    __syncthreads();
}
"""
PLAN = """BLOCK = knob(256, choices=[64, 128, 256, 512, 1024])

def forward(self, x):
    y = torch.empty(x.shape[0], x.shape[1] // 2, dtype=x.dtype)
    rms_swiglu[x.shape[0], BLOCK](x, self.gamma, y, x.shape[1], 1e-6)
    return y
"""
HOSTILE = "</style><script>alert(1)</script><img src=http://evil.test/x onerror=alert(1)>\u202e\x1b[31m{{ 7*7 }}"


def sample(text: str = "", *, proposals: int = 40, passed: bool = True) -> ReportData:
    """A full report; `text` is appended to every free string of it."""
    program = Program(text=f"HIP = r'''{HIP}'''\n{PLAN}", knobs={"BLOCK": 256})
    workload = Workload(name="given" + text, specs=(TensorSpec(dtype="float32", shape=(64, 4096)),))
    task = Task(name="rmsnorm_swiglu" + text, source=SOURCE + text, workloads=(workload,), provenance="sample" + text)
    return ReportData(
        task=task,
        program=program,
        hip=HIP + text,
        plan=PLAN + text,
        evaluation=evaluation(task, program, text, passed),
        run=Run(id="r20260101" + text, task=task.key, targets=("gfx942", "cpu"), budget=40, policy="islands", seed=7),
        trials=history(proposals, text),
        explanation={
            "kernels": [
                {"name": "rms_swiglu" + text, "nodes": ["pow", "mean", "silu" + text], "mapping": "block" + text}
            ],
            "library": {"linear" + text: {"op": "aten.linear" + text, "reason": "a product" + text}},
        },
        not_measured=("no AMD GPU here: speed on MI300X (gfx942) was not measured" + text,),
        environment={"hipwright": "0.1.0", "clang": "22.1" + text},
        command="hipwright optimize task.py --seed 7" + text,
        version="0.1.0",
        seconds=41.5,
        evaluations=proposals,
        note=text,
    )


def measured(text: str = "", *, target: str = "cuda") -> TargetResult:
    """A timed target: 1.5x against eager, just about equal to torch.compile, with a few spikes."""
    rng = random.Random(11)

    def versus(name: str, ratio: float, half: float, pairs: int) -> Versus:
        own = [0.0421 * rng.gauss(1, 0.004) for _ in range(pairs)]
        base = [
            0.0421 * ratio * rng.gauss(1, 0.004) * (rng.choice([1.4, 1.9]) if n % 23 == 9 else 1) for n in range(pairs)
        ]
        return Versus(
            baseline=name + text,
            speedup=ratio,
            interval=(ratio * (1 - half), ratio * (1 + half)),
            samples_ms=tuple(own),
            baseline_ms=tuple(base),
            pairs=pairs,
            stopped="precise",
            latency_speedup=1.31,
        )

    timing = Timing(
        device=("NVIDIA H200" if target == "cuda" else "AMD Instinct MI300X") + text,
        architecture=("sm_90" if target == "cuda" else "gfx942") + text,
        policy="graph",
        median_ms=0.0421,
        latency_ms=0.0612,
        versus={
            "eager" + text: versus("eager", 1.523, 0.007, 54),
            "compile" + text: versus("compile", 1.004, 0.008, 54),
        },
        clock_gap=0.0012,
        floor_ms=0.0309,
        bound="memory",
        roofline_fraction=0.734,
        own_time=0.98,
        prepare_ms=0.31,
        seconds=0.61,
        notes=("measured again in a fresh process, on fresh inputs: the figures are of the second measurement" + text,),
    )
    return TargetResult(target=target, timing=timing, build=Build(target=target, ok=True))


def evaluation(task: Task, program: Program, text: str, passed: bool) -> Evaluation:
    mix = {"valu": 61, "vmem_load": 6, "vmem_store": 2, "lds": 4, "barrier": 1}
    kernel = KernelResources(name="rms_swiglu" + text, vgpr=38, sgpr=22, lds_bytes=1024, occupancy=8, instructions=mix)
    slow = KernelResources(name="tail", vgpr=255, sgpr=90, scratch_bytes=160, spills=12, occupancy=2, instructions=mix)
    detail = ({"kind": "kernel", "name": "rms_swiglu" + text, "seconds": 4e-6, "bytes": 2.1e6, "bound": "memory"},)
    families = ("uniform", "normal", "shifted", "outliers", "tiny", "large", "sparse", "equal_rows", "non_contiguous")
    errors = {
        name + text: {family: round(random.Random(name + family).random() * 0.7, 3) for family in families}
        for name in ("given", "derived_odd", "derived_small")
    }
    verdict = Verdict(
        status="pass" if passed else "wrong_value",
        fault=None if passed else "candidate",
        worst_error=0.42 if passed else 31.0,
        message="" if passed else "element (3, 17) is wrong" + text,
        evidence={} if passed else {"index": [3, 17], "expected": 1.25, "got": -0.5, "family": "outliers" + text},
        workloads=("given" + text, "derived_odd", "derived_small"),
        skipped={"derived_zero" + text: "an empty output proves nothing" + text},
        checks={
            "errors": errors,
            "races": "none found",
            "memory": {"workspace_bytes": 4096, "memory_mb": 12.5, "written": 0.01},
            "waves": [64, 32],
            "poison": "outputs agree",
            "note": text,
            "shapes": {"given" + text: ["float32[8, 512]", "float32[512]" + text]},
            "evidence": {
                "minimum": 3,
                "rejecting": {"zeros": 21, "constant": 20, "other_inputs": 21, "shifted" + text: 4},
                "cases": {"given" + text: list(families), "derived_odd": ["normal", "given" + text]},
            },
        },
    )
    return Evaluation(
        task=task.key,
        program=program.key,
        status=verdict.status,
        fault=verdict.fault,
        message=verdict.message,
        coverage=0.87 if passed else 0.0,
        score=9.4 if passed else None,
        score_kind="estimate" if passed else "none",
        targets={
            "gfx942": TargetResult(
                target="gfx942",
                build=Build(target="gfx942", ok=True, kernels=(kernel, slow), device_math="ocml"),
                estimate=Estimate(
                    target="gfx942", microseconds=9.4, bound="memory", roofline_fraction=0.61, detail=detail
                ),
                why_none={"timing": "no AMD GPU was used" + text, "verdict": "compiled, not run"},
            ),
            "gfx950": TargetResult(
                target="gfx950", build=Build(target="gfx950", ok=False, log="prog.hip:3: error: no" + text)
            ),
            "cuda": measured(text),
            "cpu": TargetResult(target="cpu", build=Build(target="cpu", ok=True), verdict=verdict),
        },
    )


def history(count: int, text: str = "") -> tuple[TrialDetail, ...]:
    rng, best, keys, found = random.Random(3), 40.0, ["p000000"], []
    for n in range(count):
        status = rng.choice(["pass"] * 6 + ["compile_error", "wrong_value", "out_of_bounds"]) if n else "pass"
        score = 40.0 * rng.uniform(0.55, 1.2) * 0.97**n if status == "pass" else None
        better = score is not None and score < best
        best = score if better and score is not None else best
        kept = better or (score is not None and rng.random() < 0.4)
        found.append(
            TrialDetail(
                round=0,
                number=n,
                operator=rng.choice(["seed", "knob", "fuse", "crossover"]) + text,
                program=f"p{n:06d}",
                parents=(rng.choice(keys[-6:]),) if n else (),
                action={"BLOCK" + text: 128 * rng.randint(1, 8)},
                status=status,
                score=score,
                score_kind="none" if score is None else "estimate",
                kept=kept,
                best=better,
                reason=("faster than the best" if better else "kept for its cell" if kept else "slower") + text,
                message="" if status == "pass" else f"{status} in rms_swiglu" + text,
            )
        )
        if kept:
            keys.append(f"p{n:06d}")
    return tuple(found)
