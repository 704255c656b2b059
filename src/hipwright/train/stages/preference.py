"""DPO of a recipe: preference pairs of a data set, and TRL's trainer."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hipwright.train import dpo, hf, preference_rows
from hipwright.train.data import TRAIN
from hipwright.train.stages.parts import load_model, open_log
from hipwright.train.stages.stage_work import Say, StageWork


def run_dpo(work: StageWork, say: Say) -> dict[str, Any]:
    """Runs the stage; returns its figures."""
    recipe = work.recipe
    limits = recipe.data
    rows = preference_rows.read(Path(work.data), rows=limits.rows or None, held_rows=limits.held_rows or None)
    if work.dry:
        rows = preference_rows.shortest(rows)
    held = ", ".join(f"{len(some)} {name}" for name, some in rows.items() if name != TRAIN)
    say(f"{len(rows[TRAIN])} preferences to learn from; held out: {held or 'none'}")
    texts = [one["content"] for row in rows[TRAIN] for one in row.prompt + row.chosen + row.rejected]
    model, tokenizer = load_model(work, texts)
    fingerprint = dpo.run_fingerprint(rows, recipe.dpo)
    point = hf.resume_point(work.folder, fingerprint, allow_device_change=work.allow_device_change)
    with ExitStack() as stack:
        done = dpo.train_dpo_by_trl(
            model,
            tokenizer,
            rows,
            recipe.dpo,
            work.folder,
            open_log(stack, work, point, say),
            reference=lambda: load_model(work, texts)[0],
            resume=work.resume,
            allow_device_change=work.allow_device_change,
        )
    figures = {"loss": done.loss, "accuracy": done.accuracy, "margin": done.margin, "too_long": done.too_long}
    return {"model": str(done.folder), "steps": done.steps, "rows": len(rows[TRAIN]), **figures}
