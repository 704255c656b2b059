"""A small fine-tuning that can be killed: `python -m tests.train.sft_small FOLDER KILL_AT` from the repository's root.

Every batch adds a line to FOLDER/batches.txt, so that batches after a resume can be compared.
"""

from __future__ import annotations

import os
import signal
import sys
import zlib
from pathlib import Path
from typing import Any

from hipwright.train import data, sft, tiny
from hipwright.train.log import Log

WORDS = ["load", "store", "add", "mul", "exp", "max", "sum", "block", "lane", "wave", "row", "col", "tile", "scale"]


def row(number: int, split: str = "train") -> data.ImitationRow:
    """A row whose answer is a function of its question."""
    words = [WORDS[(number * 7 + place * 3) % len(WORDS)] for place in range(3 + number % 4)]
    asked = [{"role": "system", "content": "Reverse."}, {"role": "user", "content": " ".join(words)}]
    return data.ImitationRow(
        asked, [{"role": "assistant", "content": " ".join(reversed(words))}], f"task {number}", split
    )


def imitation_rows(count: int = 24) -> data.ImitationRows:
    held = {"unseen_shapes": [row(100 + n, "unseen_shapes") for n in range(2)]}
    return data.ImitationRows({"train": [row(number) for number in range(count)], **held})


def model() -> tuple[Any, Any]:
    return tiny.tiny_model("qwen2", [" ".join(WORDS), "Reverse.", "system user assistant"], seed=3)


SETTINGS = sft.SftSettings(
    max_steps=8,
    learning_rate=3e-3,
    batch=2,
    accumulate=1,
    max_length=96,
    warmup=0.0,
    evaluate_every=4,
    save_every=3,
    log_every=1,
    checkpoint_activations=False,
    seed=5,
    lora_dropout=0.0,
)


def run(folder: Path, *, resume: bool = False, kill_at: int = 0) -> sft.SftResult:
    """Trains. kill_at: the batch, from 1, before which the process kills itself by SIGKILL."""
    from trl import SFTTrainer

    seen = 0
    plain = SFTTrainer.training_step

    def step(self: Any, model: Any, inputs: dict[str, Any], *more: Any, **named: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        with (folder / "batches.txt").open("a") as stream:
            stream.write(f"{self.state.global_step + 1} {zlib.crc32(inputs['input_ids'].numpy().tobytes())}\n")
        return plain(self, model, inputs, *more, **named)

    folder.mkdir(exist_ok=True)
    SFTTrainer.training_step = step
    try:
        resume_step = None
        if resume:
            from hipwright.train import hf

            resume_step = hf.step_of(hf.resume_point(folder, sft.run_fingerprint(imitation_rows(), SETTINGS)))
        with Log(folder, (), resume_step=resume_step) as log:
            return sft.train_sft(*model(), imitation_rows(), SETTINGS, folder, log, resume=resume)
    finally:
        SFTTrainer.training_step = plain


if __name__ == "__main__":
    run(Path(sys.argv[1]), kill_at=int(sys.argv[2]))
