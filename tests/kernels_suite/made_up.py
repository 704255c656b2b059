"""Records as a GPU would give them, made up."""

from __future__ import annotations

from typing import Any

from benchmarks.suite.records import Against, Measured, Trial


def against(speedup: float, own_ms: float, spread: float = 0.02, latency: float | None = None) -> Against:
    return Against(
        speedup=speedup,
        interval=(speedup * (1 - spread), speedup * (1 + spread)),
        ms=own_ms * speedup,
        latency_speedup=latency,
    )


def row(task: str, stage: Any = "first", ms: float = 1.0, **changes: Any) -> Measured:
    sides = {"eager": against(2.0, ms), "compile": against(1.5, ms), "copy": against(0.9, ms)}
    base: dict[str, Any] = {
        "task": task,
        "family": task.partition("/")[0],
        "key": "k",
        "stage": stage,
        "status": "pass",
        "device": "a GPU",
        "architecture": "sm_90",
        "torch": "2",
        "version": "0",
        "program": "p",
        "median_ms": ms,
        "floor_ms": 0.8 * ms,
        "bytes": 1 << 30,
        "operations": float(1 << 30),
        "sides": sides,
        "first_s": 3.0 if stage == "first" else None,
        "clock": 1.0,
    }
    return Measured(**{**base, **changes})


def detail(memory: float, issue: float, efficiency: float) -> tuple[dict[str, Any], ...]:
    return (
        {
            "kind": "kernel",
            "name": "k",
            "seconds": max(memory, issue) + 3e-6,
            "bytes": memory * 4e12,
            "reread_bytes": 0.0,
            "memory_seconds": memory,
            "issue_seconds": issue,
            "bandwidth_efficiency": efficiency,
            "resident_waves_per_cu": 32,
            "bound": "memory",
        },
    )


def trials(*speedups: float | None) -> tuple[Trial, ...]:
    return tuple(
        Trial(number=n, microseconds=1e3 / s if s else None, speedup=s, interval=(s, s) if s else None)
        for n, s in enumerate(speedups, 1)
    )
