"""An artificial training folder in the form of the miniature: two seeds, five arms, four splits."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

ARMS = ("base", "sft", "continued", "rft", "grpo")
SPLITS = ("unseen shapes", "unseen compositions", "deeper chains", "larger tensors")
LEVELS = (1, 2, 3, 4, 5)
SOURCE = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2  # TEXT


def get_inputs():
    return [torch.randn(64, 128)]
"""
PROGRAM = """BLOCK = 256
HIP = r'''
extern "C" __global__ void run(const float* x, float* out, long n) {
  for (long i = blockIdx.x * (long)BLOCK + threadIdx.x; i < n; i += (long)gridDim.x * BLOCK)
    out[i] = relu(x[i]) * 2.0f;  // TEXT
}
'''
def forward(self, x):
    out = torch.empty_like(x)
    run[cdiv(x.numel(), BLOCK), BLOCK](x, out, x.numel())
    return out
"""


def outcome(status: str = "pass", **fields: Any) -> dict[str, Any]:
    right = status == "pass"
    said = {"speedup": 1.37, "message": ""} if right else {"speedup": None, "message": "it does not build"}
    where = {"clock": "device", "device": "NVIDIA H200", "baseline": "eager"}
    return {"status": status, "compiled": right, "correct": right, **where, **said, **fields}


def write(folder: Path, *, text: str = "", evaluation: bool = True, clock: str = "device", seeds: int = 2) -> Path:
    """Writes the folder; text: inserted wherever a policy or a task can write."""
    rng = random.Random(0)
    for seed in range(seeds):
        for arm in ARMS[1:]:
            training(folder / f"seed-{seed}" / "work" / arm, arm, rng, text)
    command = "hipwright train mini --out OUT --target cuda"
    run = {"recipe": "mini", "command": command, "settings": {"seeds": [0, 1], "rl": {"samples": 8, "note": text}}}
    (folder / "run.json").write_text(json.dumps(run))
    if evaluation:
        device = "NVIDIA H200" if clock == "device" else ""
        (folder / "evaluation.json").write_text(json.dumps({**evaluated(rng, text), "device": device, "clock": clock}))
    return folder


def training(folder: Path, arm: str, rng: random.Random, text: str) -> None:
    folder.mkdir(parents=True)
    stage, steps = ("sft", 400) if arm in ("sft", "continued") else ("rl", 120)
    lines, samples = [], []
    for step in range(1, steps + 1):
        far = step / steps
        if stage == "sft":
            start = 5.0 if arm == "sft" else 0.4
            values = {"loss": start * math.exp(-4 * far) + 0.3 + rng.gauss(0, 0.03), "minutes": 2 * far}
            if step % 50 == 0:
                lines.append({"stage": "eval", "step": step, "values": {"loss": values["loss"] + 0.08, "parsed": far}})
        else:
            gain = 0.5 if arm == "grpo" else 0.25
            values = {
                "reward": 0.2 + gain * far + rng.gauss(0, 0.08),
                "correct": min(1.0, 0.4 + gain * far + rng.gauss(0, 0.06)),
                "compiled": min(1.0, 0.7 + 0.3 * far + rng.gauss(0, 0.03)),
                "speedup": 1.0 + gain * far,
                "zero_variance": max(0.0, 0.5 - 0.3 * far),
                "hack": 0.002,
                "infra": 0.0,
                "loss": rng.gauss(0, 0.02),
                "entropy": 0.9 - 0.5 * far,
                "scored": 128.0,
                "seconds_step": 4.0,
                "seconds_generate": 1.1,
                "seconds_submit": 0.1,
                "seconds_wait": 1.6,
                "seconds_train": 0.9,
                "rewards_an_hour": 115200.0,
                "minutes": 8 * far,
                "gpu_busy": 0.62,
            }
            if step % 20 == 0:
                said = outcome() if step > 60 else outcome("wrong_value", message=f"wrong at 3 {text}")
                record = {
                    "problem": f"chain 7 {text}",
                    "source": SOURCE.replace("TEXT", text),
                    "reward": far,
                    "completion": PROGRAM.replace("TEXT", text),
                    "outcome": said,
                }
                samples.append({"stage": stage, "step": step, "record": record})
        lines.append({"stage": stage, "step": step, "values": values})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in samples))


def evaluated(rng: random.Random, text: str) -> dict[str, Any]:
    rows, comparisons = [], []
    for place, arm in enumerate(ARMS):
        for split in SPLITS:
            value = 0.05 + 0.17 * place
            rows += [row(arm, split, seed, value + rng.uniform(-0.03, 0.03)) for seed in (0, 1, None)]
    for split in SPLITS:
        for better, worse, shift in (("sft", "base", 0.3), ("grpo", "continued", 0.12), ("grpo", "rft", 0.02)):
            for metric in ("correct", "fast_1", "reward"):
                value = shift + rng.uniform(-0.04, 0.04)
                found = {"split": split, "better": better, "worse": worse, "metric": metric}
                comparisons.append({**found, "difference": [value, value - 0.06, value + 0.06]})
    levels = []
    for level in LEVELS:
        for place, arm in enumerate(ARMS):
            whole = row(arm, "", None, 0.9 - 0.1 * level + 0.05 * place)
            kept = {name: whole[name] for name in ("tasks", "compiled", "correct", "fast_1", "fast_1.2")}
            levels.append({"level": level, "arm": arm, **kept})
    said = {
        "base": {"completion": f"ddx;;) {text}", "outcome": outcome("parse_error", message=f"no program {text}")},
        "sft": {"completion": PROGRAM.replace("TEXT", text), "outcome": outcome("wrong_value", message="wrong at 5")},
        "grpo": {"completion": PROGRAM.replace("TEXT", text), "outcome": outcome()},
    }
    example = {
        "problem": f"relu_scale {text}",
        "split": SPLITS[0],
        "source": SOURCE.replace("TEXT", text),
        "arms": said,
    }
    known = {"tasks": 12, "schedules": 900, "ratio": [1.4, 1.3, 1.5], "best_of": [1.2, 1.1, 1.3]}
    regret: list[dict[str, Any]] = [{"arm": arm, **known} for arm in ARMS[1:]]
    regret.append({"arm": "base", "tasks": 0, "schedules": 900, "ratio": None, "best_of": None})
    return {"arms": rows, "levels": levels, "comparisons": comparisons, "regret": regret, "examples": [example]}


def row(arm: str, split: str, seed: int | None, value: float) -> dict[str, Any]:
    def around(share: float) -> list[float] | None:
        share = min(max(share, 0.0), 1.0)
        return [share, max(0.0, share - 0.07), min(1.0, share + 0.07)]

    return {
        "arm": arm,
        "seed": seed,
        "split": split,
        "tasks": 100,
        "samples": 4,
        "compiled": around(value + 0.2),
        "correct": around(value),
        "fast_1": around(value - 0.1),
        "fast_1.2": around(value - 0.2),
        "roofline": around(value / 2) if arm != "base" else None,
        "reward": around(value - 0.05),
        "speedup": [1.1, 1.05, 1.2] if arm != "base" else None,
        "pass_at_k": {"1": value, "4": min(1.0, value + 0.15)},
        "hack": 0.0,
        "infra": 0.01,
    }
