"""Supervised fine-tuning by TRL: all weights or LoRA, packed rows, with the loss on completions alone.

The loss of held-out rows is logged during training; a `StepCallback` may sample answers to held-out problems. A killed
training resumes with the batch that would have come next, and has the same losses (hf.py).
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
from hipwright.train.step_times import StepTimes

if TYPE_CHECKING:
    from hipwright.train.rl.training import Metrics

STAGE = "sft"


class SftSettings(hf.TrainerSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of fine-tuning. packing: several rows in a sequence of max_length, none of which attends to another.

    Longer rows are left out, since truncated programs would be imitated. sample_every: updates between two samples.
    """

    epochs: float = 2.0
    learning_rate: float = 1e-5
    weight_decay: float = 0.0
    packing: bool = True
    lora_dropout: float = 0.0
    sample_every: int = 0

    @property
    def lora(self) -> hf.Lora:
        """The settings of the adapters."""
        return hf.Lora(self.lora_rank, self.lora_alpha, self.lora_dropout)


class StepCallback(Protocol):
    """A callback after each update, in every process."""

    def __call__(self, trainer: Any, step: int) -> None:
        """Called after update `step` of TRL's trainer."""
        ...


@dataclass(frozen=True)
class SftResult:
    """A finished training.

    folder: of the model and its tokenizer; steps: updates in all; loss: of the last logged update; eval_loss: by
    held-out split; too_long: rows that were left out.
    """

    folder: Path
    steps: int
    loss: float | None
    eval_loss: dict[str, float]
    too_long: int


def train_sft(
    model: Any,
    tokenizer: Any,
    data: ImitationRows,
    settings: SftSettings,
    folder: Path,
    log: Metrics | None,
    *,
    resume: bool = False,
    allow_device_change: bool = False,
    callback: StepCallback | None = None,
) -> SftResult:
    """Trains a loaded model on the rows; checkpoints and the model are written to `folder`.

    log: None in all processes but the main one. callback: called after each update. Raises BadInput where the folder
    holds a training and resume is False, where that was made on another device or with other settings or data, and
    where no row is short enough.
    """
    hf.silence_libraries()
    if not resume:
        hf.refuse_used(folder)
    found = run_fingerprint(data, settings)
    point = hf.resume_point(folder, found, allow_device_change=allow_device_change)
    rows, too_long = rows_that_fit(data, tokenizer, settings.max_length)
    trainer = _trainer(model, tokenizer, rows, settings, folder)
    times = StepTimes(folder)

    def each(step: int, _: Any) -> None:
        times.step(step, getattr(trainer, "_total_train_tokens", None))  # TRL's own count, which it only logs
        if callback is not None:
            callback(trainer, step)

    hf.attach_callback(trainer, hf.trainer_callback(STAGE, log, found, each))
    trainer.train(resume_from_checkpoint=str(point) if point is not None else None)
    trainer.save_model(str(folder / hf.FINAL))
    if trainer.is_world_process_zero():
        tokenizer.save_pretrained(folder / hf.FINAL)
    history = trainer.state.log_history
    losses = {name: _last_figure(history, f"eval_{name}_loss") for name in rows if name != TRAIN}
    held = {name: loss for name, loss in losses.items() if loss is not None}
    return SftResult(folder / hf.FINAL, trainer.state.global_step, _last_figure(history, "loss"), held, too_long)


def run_fingerprint(data: ImitationRows, settings: SftSettings) -> dict[str, Any]:
    """The fingerprint that a resumed training must match."""
    columns = {name: [row.columns() for row in rows] for name, rows in data.splits.items()}
    return hf.fingerprint(msgspec.to_builtins(settings), hf.digest(columns))


# ---------------------------------------------------------------- tokens


class TokenRow(NamedTuple):
    """A row as token ids. mask: 1 for the completion's tokens, else 0."""

    ids: list[int]
    mask: list[int]


def rows_that_fit(data: ImitationRows, tokenizer: Any, max_length: int) -> tuple[dict[str, list[TokenRow]], int]:
    """(rows by split of at most max_length tokens, number of longer rows). Splits without such rows are left out.

    Raises BadInput where that is the training split.
    """
    splits: dict[str, list[TokenRow]] = {}
    too_long = 0
    for name, rows in data.splits.items():
        encoded = encode_rows(rows, tokenizer)
        kept = [one for one in encoded if len(one.ids) <= max_length]
        too_long += len(encoded) - len(kept)
        if kept:
            splits[name] = kept
    if TRAIN not in splits:
        raise BadInput(f"every row is longer than {max_length} tokens", hint="--set sft.max_length=...")
    return splits, too_long


def encode_rows(rows: Sequence[ImitationRow], tokenizer: Any) -> list[TokenRow]:
    """The rows as tokens. Prompt and completion are tokenised separately, as they are when a model answers.

    Raises BadInput for a chat template that changes the prompt's text once there is an answer.
    """
    prompts = [tokenizer.apply_chat_template(row.prompt, tokenize=False, add_generation_prompt=True) for row in rows]
    whole = [tokenizer.apply_chat_template(row.prompt + row.completion, tokenize=False) for row in rows]
    if not all(text.startswith(start) for start, text in zip(prompts, whole, strict=True)):
        raise BadInput("the chat template changes the prompt once there is an answer", hint="take another template")
    completions = [text.removeprefix(start) for start, text in zip(prompts, whole, strict=True)]
    if not rows:
        return []
    prompt_ids = tokenizer(prompts, add_special_tokens=False)["input_ids"]
    completion_ids = tokenizer(completions, add_special_tokens=False)["input_ids"]
    return [TokenRow(p + c, [0] * len(p) + [1] * len(c)) for p, c in zip(prompt_ids, completion_ids, strict=True)]


# ---------------------------------------------------------------- TRL


def _last_figure(history: list[dict[str, Any]], name: str) -> float | None:
    return next((float(one[name]) for one in reversed(history) if name in one), None)


def _trainer(model: Any, tokenizer: Any, rows: dict[str, list[TokenRow]], settings: SftSettings, folder: Path) -> Any:
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

    return SFTConfig(
        weight_decay=settings.weight_decay,
        packing=settings.packing,
        packing_strategy="bfd",
        eval_packing=False,  # the loss of each row by itself
        completion_only_loss=True,
        **settings.arguments(folder, held=held),
    )


def _dataset(rows: list[TokenRow]) -> Any:
    """A data set of token ids instead of messages, so that TRL does not tokenise them in another way."""
    from datasets import Dataset

    return Dataset.from_list([{"input_ids": row.ids, "completion_mask": row.mask} for row in rows])
