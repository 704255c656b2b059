"""SFT, DPO and GRPO of a two-layer model on several GPUs, as the 8-GPU recipe launches them: FSDP and NCCL.

    python scripts/several_gpus.py --gpus 2 --out out/several [--stages sft dpo rl] [--cpu]

Prints one JSON object: for each stage and each number of GPUs (1, then --gpus) the logged losses and the seconds, and
the largest relative difference of SFT's losses between the two. --cpu: processes on the CPU with gloo, to test this
script.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from hipwright.train import data, launch, recipe, tiny
from hipwright.train.launchers import accelerate
from hipwright.train.stages.stage_work import StageWork

ROOT = Path(__file__).resolve().parents[1]
ROWS, TASKS = ROOT / "data" / "sample", ROOT / "src/hipwright/audit/corpus/tasks"
BATCH = 4
STEPS = 3


def changes(gpus: int, cpu: bool) -> list[str]:
    """The recipe's settings for a small run whose update has the same rows for each number of GPUs."""
    each = ["accumulate=1", "evaluate_every=0", "log_every=1", "save_every=0", f"batch={BATCH // gpus}"]
    both = [f"{stage}.{one}" for stage in ("sft", "dpo") for one in (f"max_steps={STEPS}", "learning_rate=1e-3", *each)]
    grpo = [f"steps={STEPS}", f"batch={BATCH // gpus}", "accumulate=1", "samples=2", "turns=2", "lessons=2", "vllm="]
    grpo += ["max_new_tokens=16", "max_prompt_tokens=32000", "save_every=0"]
    judged = "judge.targets=['cpu','gfx942']" if cpu else "judge.targets=['cuda']"
    return [*both, *(f"grpo.{one}" for one in grpo), "sft.packing=false", f"launch.gpus={gpus}", judged]


def run(work: StageWork, processes: int, cpu: bool) -> dict[str, Any]:
    """Runs a stage in so many processes; returns its losses and seconds."""
    command = accelerate.accelerate_command(work, launch.SINGLE_NODE)
    launch._write_inputs(work, command)
    config = accelerate.accelerate_config(work) | {"num_processes": processes}
    config |= {"mixed_precision": "no"} if cpu else {}
    (work.folder / accelerate.CONFIG).write_text(yaml.safe_dump(config))
    begun = time.monotonic()
    more = {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"} if cpu else {}
    done = subprocess.run(command.argv, env={**os.environ, **more}, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"failed": done.stderr[-3000:]}
    lines = [json.loads(line) for line in (work.folder / "metrics.jsonl").read_text().splitlines()]
    losses = [one["values"]["loss"] for one in lines if one["stage"] in (work.stage, "rl") and "loss" in one["values"]]
    return {"losses": losses, "seconds": round(time.monotonic() - begun, 1)}


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--stages", nargs="+", default=["sft", "dpo", "rl"], choices=["sft", "dpo", "rl", "rft"])
    parser.add_argument("--cpu", action="store_true")
    asked = parser.parse_args()
    texts = [one.source for one in data.problems(TASKS)[data.TRAIN]]
    model, tokenizer = tiny.tiny_model("qwen2", [data.system_prompt(), *texts])
    folder = asked.out / "tiny"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    found: dict[str, Any] = {}
    for stage in asked.stages:
        for gpus in (1, asked.gpus):
            chosen = recipe.load("qwen2.5-coder-14b-8gpu", changes(gpus, asked.cpu))
            place = str(ROWS if stage in ("sft", "dpo") else TASKS)
            out = str(asked.out / f"{stage}-{gpus}")
            work = StageWork(stage=stage, recipe=chosen, data=place, out=out, model=str(folder), trackers=())
            found.setdefault(stage, {})[gpus] = run(work, gpus, asked.cpu)
            print(stage, gpus, json.dumps(found[stage][gpus]), file=sys.stderr, flush=True)
    losses = [one.get("losses") or [] for one in found.get("sft", {}).values()]
    if len(losses) == 2 and all(losses):
        found["sft_difference"] = max(abs(a - b) / abs(a) for a, b in zip(*losses, strict=True))
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
