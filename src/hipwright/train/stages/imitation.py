"""SFT of a recipe: rows to imitate, TRL's trainer, and samples of held-out problems."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hipwright.events import doing
from hipwright.train import data, hf, sft
from hipwright.train.log import ProgressLog
from hipwright.train.stages.parts import load_model, open_log, stage_environment
from hipwright.train.stages.stage_work import Say, StageWork


def run_sft(work: StageWork, say: Say) -> dict[str, Any]:
    """Runs the stage; returns its figures."""
    recipe, folder = work.recipe, work.folder
    doing("reading the data set")
    rows = data.imitation_rows(Path(work.data), rows=recipe.data.rows or None, held_rows=recipe.data.held_rows or None)
    if work.dry:
        rows = _shortest_rows(rows)
    held = ", ".join(f"{len(some)} {name}" for name, some in rows.held.items())
    say(f"{len(rows.train)} rows to learn from; held out: {held or 'none'}; {len(rows.bad)} unreadable lines")
    model, tokenizer = load_model(work, [one["content"] for row in rows.train for one in row.prompt + row.completion])
    fingerprint = sft.run_fingerprint(rows, recipe.sft)
    point = hf.resume_point(folder, fingerprint, allow_device_change=work.allow_device_change)
    with ExitStack() as stack:
        log = open_log(stack, work, point, say)
        sampler = _open_sampler(stack, work, tokenizer, log)
        done = sft.train_sft(
            model,
            tokenizer,
            rows,
            recipe.sft,
            folder,
            log,
            resume=work.resume,
            allow_device_change=work.allow_device_change,
            callback=sampler,
        )
    figures = {"loss": done.loss, "eval_loss": done.eval_loss, "too_long": done.too_long}
    return {"model": str(done.folder), "steps": done.steps, "rows": len(rows.train), **figures}


def _shortest_rows(rows: data.ImitationRows) -> data.ImitationRows:
    """The two shortest training rows and the shortest of each held-out split, on which a step takes seconds."""

    def length(row: data.ImitationRow) -> int:
        return sum(len(one["content"]) for one in row.prompt + row.completion)

    counts = {name: 2 if name == data.TRAIN else 1 for name in rows.splits}
    return data.ImitationRows(
        {name: sorted(some, key=length)[: counts[name]] for name, some in rows.splits.items()}, rows.bad
    )


def _open_sampler(stack: ExitStack, work: StageWork, tokenizer: Any, log: ProgressLog | None) -> Any:
    """The callback that samples held-out problems during SFT; None where the recipe's sample_every is 0."""
    every = work.recipe.sft.sample_every
    if not every:
        return None
    from hipwright.train.held_out_samples import HeldOutSampler

    opened = stack.enter_context(stage_environment(work)) if log is not None else None
    splits = data.problems(Path(work.data), limit=work.recipe.data.problems or None)
    held = [one for name, known in splits.items() if name != data.TRAIN for one in known]
    return HeldOutSampler(held or splits[data.TRAIN], opened, tokenizer, log, every=every)
