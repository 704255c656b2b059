"""Supervised fine-tuning by TRL: all weights or LoRA, packed, with the loss on completions alone.

Held-out rows give a loss while training; held-out problems, where a `TrainingWatch` is handed in, give what the model
writes. A training that was killed goes on with the batch that would have come next and gives the same losses (hf.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from hipwright.errors import BadInput
from hipwright.train import hf
from hipwright.train.data import TRAIN, ImitationRow, ImitationRows

if TYPE_CHECKING:
    from hipwright.train.rl.training import Metrics

STAGE = "sft"


class SftSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to fine-tune. batch: sequences a device and step; accumulate: steps an update; max_length: tokens.

    max_steps: 0 for all epochs. packing: several rows in a sequence of max_length, none of which sees another. A longer
    row is left out: half a program teaches half programs. warmup: share of the steps. evaluate_every, sample_every,
    save_every, log_every: updates between; 0 for never (the end is saved always).
    """

    epochs: float = 2.0
    max_steps: int = 0
    learning_rate: float = 1e-5
    schedule: str = "cosine"
    warmup: float = 0.03
    weight_decay: float = 0.0
    batch: int = 1
    accumulate: int = 8
    max_length: int = 8192
    packing: bool = True
    lora_rank: int = 0
    lora_alpha: int = 32
    lora_dropout: float = 0.0
    checkpoint_activations: bool = True
    evaluate_every: int = 100
    sample_every: int = 0
    save_every: int = 100
    log_every: int = 5
    seed: int = 0

    @property
    def lora(self) -> hf.Lora:
        """The adapters' part."""
        return hf.Lora(self.lora_rank, self.lora_alpha, self.lora_dropout)


class TrainingWatch(Protocol):
    """Looks at what the model writes while it trains; called by every process, after each update."""

    def __call__(self, trainer: Any, step: int) -> None:
        """Sample and score, where the step asks for it."""
        ...


@dataclass(frozen=True)
class SftResult:
    """folder: of the trained model and its tokenizer; steps: updates in all; loss: of the last update that was logged;
    eval_loss: by held-out split; too_long: rows left out."""

    folder: Path
    steps: int
    loss: float | None
    eval_loss: dict[str, float]
    too_long: int


def train_sft(
    model: Any,
    tokenizer: Any,
    lessons: ImitationRows,
    settings: SftSettings,
    folder: Path,
    log: Metrics | None,
    *,
    resume: bool = False,
    allow_device_change: bool = False,
    watch: TrainingWatch | None = None,
) -> SftResult:
    """Train a loaded model on the rows; checkpoints and the result in `folder`.

    log: None in all processes but the main one. BadInput where the folder holds a training and resume is False, where
    it was made on another device or with other settings or data, and where no row is short enough.
    """
    hf.quiet()
    if not resume:
        hf.refuse_used(folder)
    found = known(lessons, settings)
    point = hf.resume_point(folder, found, allow_device_change=allow_device_change)
    rows, too_long = fitting(lessons, tokenizer, settings.max_length)
    trainer = _trainer(model, tokenizer, rows, settings, folder)
    each = None if watch is None else lambda step, _: watch(trainer, step)
    hf.attach(trainer, hf.callbacks(STAGE, log, found, each))
    trainer.train(resume_from_checkpoint=str(point) if point is not None else None)
    trainer.save_model(str(folder / hf.FINAL))
    if trainer.is_world_process_zero():
        tokenizer.save_pretrained(folder / hf.FINAL)
    history = trainer.state.log_history
    losses = {name: _last(history, f"eval_{name}_loss") for name in rows if name != TRAIN}
    held = {name: loss for name, loss in losses.items() if loss is not None}
    return SftResult(folder / hf.FINAL, trainer.state.global_step, _last(history, "loss"), held, too_long)


def known(lessons: ImitationRows, settings: SftSettings) -> dict[str, Any]:
    """What a resumed training must agree with."""
    rows = {name: [row.columns() for row in rows] for name, rows in lessons.splits.items()}
    return hf.fingerprint(msgspec.to_builtins(settings), hf.digest(rows))


# ---------------------------------------------------------------- tokens


class Tokens(NamedTuple):
    """A row as token numbers; mask: 1 where the completion is."""

    ids: list[int]
    mask: list[int]


def fitting(lessons: ImitationRows, tokenizer: Any, max_length: int) -> tuple[dict[str, list[Tokens]], int]:
    """(rows by split that are at most max_length tokens long, how many are longer). Held-out splits may vanish.

    BadInput where no row to learn from is left.
    """
    splits: dict[str, list[Tokens]] = {}
    too_long = 0
    for name, rows in lessons.splits.items():
        encoded = encode(rows, tokenizer)
        kept = [one for one in encoded if len(one.ids) <= max_length]
        too_long += len(encoded) - len(kept)
        if kept:
            splits[name] = kept
    if TRAIN not in splits:
        raise BadInput(f"every row is longer than {max_length} tokens", hint="--set sft.max_length=...")
    return splits, too_long


def encode(rows: Sequence[ImitationRow], tokenizer: Any) -> list[Tokens]:
    """Prompt and completion by the tokenizer's chat template, each turned into tokens by itself, as they meet when a
    model answers. BadInput for a template that writes a prompt otherwise once it is answered."""
    asked = [tokenizer.apply_chat_template(row.prompt, tokenize=False, add_generation_prompt=True) for row in rows]
    whole = [tokenizer.apply_chat_template(row.prompt + row.completion, tokenize=False) for row in rows]
    if not all(text.startswith(start) for start, text in zip(asked, whole, strict=True)):
        raise BadInput("the chat template writes a prompt otherwise once it is answered", hint="take another template")
    said = [text.removeprefix(start) for start, text in zip(asked, whole, strict=True)]
    if not rows:
        return []
    before = tokenizer(asked, add_special_tokens=False)["input_ids"]
    after = tokenizer(said, add_special_tokens=False)["input_ids"]
    return [Tokens(p + c, [0] * len(p) + [1] * len(c)) for p, c in zip(before, after, strict=True)]


# ---------------------------------------------------------------- TRL


def _last(history: list[dict[str, Any]], name: str) -> float | None:
    return next((float(one[name]) for one in reversed(history) if name in one), None)


def _trainer(model: Any, tokenizer: Any, rows: dict[str, list[Tokens]], settings: SftSettings, folder: Path) -> Any:
    from trl import SFTTrainer

    held = {name: _dataset(found) for name, found in rows.items() if name != TRAIN}
    return SFTTrainer(
        model=model,
        args=_arguments(settings, folder, held=bool(held)),
        train_dataset=_dataset(rows[TRAIN]),
        eval_dataset=held or None,
        processing_class=tokenizer,
        peft_config=settings.lora.config(),
    )


def _arguments(settings: SftSettings, folder: Path, *, held: bool) -> Any:
    from trl import SFTConfig

    evaluate = settings.evaluate_every if held else 0
    return SFTConfig(
        num_train_epochs=settings.epochs,
        max_steps=settings.max_steps or -1,
        learning_rate=settings.learning_rate,
        lr_scheduler_type=settings.schedule,
        warmup_steps=settings.warmup,  # below 1: a share of all steps
        weight_decay=settings.weight_decay,
        per_device_train_batch_size=settings.batch,
        per_device_eval_batch_size=settings.batch,
        gradient_accumulation_steps=settings.accumulate,
        max_length=settings.max_length,
        packing=settings.packing,
        packing_strategy="bfd",
        eval_packing=False,  # a row's loss by itself
        completion_only_loss=True,
        eval_strategy="steps" if evaluate else "no",
        eval_steps=evaluate or None,
        **hf.common(
            folder,
            seed=settings.seed,
            checkpoint_activations=settings.checkpoint_activations,
            save_every=settings.save_every,
            log_every=settings.log_every,
        ),
    )


def _dataset(rows: list[Tokens]) -> Any:
    """Token numbers are handed over, not messages: what is trained on is then exactly what a prompt will be."""
    from datasets import Dataset

    return Dataset.from_list([{"input_ids": row.ids, "completion_mask": row.mask} for row in rows])
