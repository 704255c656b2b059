"""Rows with the tests' own programs and references, and invented figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hipwright.dataset.records import BuildSummary, Pair
from hipwright.program.parse import parse
from hipwright.records import Program, Task, Timing, Versus, Workload

PROGRAMS = Path(__file__).parents[1] / "programs"
CORRECT = {
    "softmax_online": "softmax",
    "softmax_block": "softmax",
    "layer_norm_welford": "layer_norm",
    "layer_norm_two_pass": "layer_norm",
    "row_sum_wave": "row_sum",
    "row_sum_tree": "row_sum",
    "bfloat_gelu": "bfloat_gelu",
    "half_residual_half2": "half_residual",
    "linear_packed": "linear",
    "scale_bias_guarded": "scale_bias",
    "log_signed": "log_signed",
}
WRONG = {"softmax_overflow": "softmax", "missing_barrier": "row_sum"}
FACTS = {
    "softmax": ("test_family", ("_softmax",), ("normalise",), "float32", "easy"),
    "layer_norm": ("train", ("native_layer_norm",), ("normalise",), "float32", "medium"),
    "row_sum": ("train", ("sum",), ("reduction",), "float32", "easy"),
    "bfloat_gelu": ("unseen_shapes", ("gelu",), ("pointwise",), "bfloat16", "easy"),
    "half_residual": ("train", ("add", "relu"), ("pointwise",), "float16", "easy"),
    "scale_bias": ("train", ("mul", "add"), ("pointwise",), "float32", "easy"),
    "log_signed": ("train", ("log", "neg"), ("pointwise",), "float32", "easy"),
    "linear": ("unseen_shapes", ("addmm",), ("product",), "float32", "hard"),
}


def program(name: str, folder: str = "honest", **knobs: int) -> Program:
    return Program(text=(PROGRAMS / folder / f"{name}.py").read_text(), knobs=knobs)


def pair(name: str, task: str, *, kind: str = "engine", folder: str = "honest", us: float = 10.0, **more: Any) -> Pair:
    """A row with two builds, and for a right program two estimates."""
    source = (PROGRAMS / "tasks" / f"{task}.py").read_text()
    split, operators, families, dtype, difficulty = FACTS[task]
    right = kind != "negative"
    known: dict[str, Any] = {
        "task": Task(name=task, source=source, workloads=(Workload(name="given"),)).key,
        "task_name": task,
        "task_source": source,
        "kind": kind,
        "correct": right,
        "program": program(name, folder),
        "status": "pass" if right else "wrong_value",
        "evidence": "" if right else f"- verdict: wrong_value\n- {name} is wrong in element 3",
        "coverage": 1.0 if right and task != "linear" else 0.4,
        "builds": {
            "gfx942": BuildSummary(ok=True, kernels=1, vgpr=24, sgpr=18, lds_bytes=512, occupancy=8),
            "gfx950": BuildSummary(ok=True, kernels=1, vgpr=26, sgpr=18, lds_bytes=512, occupancy=8),
        },
        "estimate_us": {"gfx942": us, "gfx950": us * 0.8} if right else {},
        "operators": operators,
        "families": families,
        "dtype": dtype,
        "composition": "+".join(operators),
        "difficulty": difficulty,
        "split": split,
        "provenance": {"mind": "engine", "seed": 7, "made": ["a", {"b": 1}]},
    }
    return Pair(**(known | more))


def timing(low: float, high: float, device: str = "NVIDIA H200") -> Timing:
    middle = (low + high) / 2
    versus = Versus(
        baseline="eager", speedup=middle, interval=(low, high), samples_ms=(1.0,), baseline_ms=(middle,), pairs=1
    )
    return Timing(device=device, architecture="sm_90", median_ms=1.0, versus={"eager": versus})


def variant(name: str, task: str, us: float, **more: Any) -> Pair:
    """The same program with another value of its first knob, or a comment where it has none."""
    base = program(name)
    knobs = parse(base.text).knobs
    if knobs:
        first = next(iter(knobs))
        other = next(int(v) for v in knobs[first].choices if v != knobs[first].default)
        changed = Program(text=base.text, knobs={first: other})
    else:
        changed = Program(text=f"# another schedule: {us}\n{base.text}")
    return pair(name, task, kind="variant", us=us, program=changed, **more)


def sample() -> list[Pair]:
    """Engine programs, variants, a repair, a step and wrong programs, over eight tasks and three splits."""
    rows = [pair(name, task, us=8.0 + place) for place, (name, task) in enumerate(CORRECT.items())]
    rows += [pair(name, task, kind="negative", folder="wrong") for name, task in WRONG.items()]
    rows += [variant("softmax_block", "softmax", 6.0), variant("scale_bias_guarded", "scale_bias", 30.0)]
    broken = program("odd_tail", "wrong")
    rows.append(pair("log_signed", "log_signed", kind="repair", before=broken, evidence="- the remainder is missing"))
    faster = variant("row_sum_tree", "row_sum", 5.0)
    rows.append(pair("row_sum_tree", "row_sum", kind="step", us=5.0, program=faster.program, before=rows[5].program))
    return rows
