"""Direct preference optimisation by TRL (Rafailov et al. 2023), for models of any size; rl/arms.py serves one GPU.

The reference is the model before the first update. Its log-probabilities are computed once, before training, so that
no second copy of the weights is held during it; under FSDP TRL needs a copy for that computation.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hipwright.errors import BadInput
from hipwright.train import hf
from hipwright.train.data import TRAIN, ImitationRow
from hipwright.train.preference_rows import PreferenceRow, PreferenceSplits, columns
from hipwright.train.sft import encode_rows

if TYPE_CHECKING:
    from hipwright.train.rl.training import Metrics

STAGE = "dpo"
PAIRS = "preferences"
"""The folder of the tokens while a training runs."""


class DpoSettings(hf.TrainerSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of DPO. beta: weight of the reference; batch counts pairs, and max_length a prompt with one answer."""

    epochs: float = 1.0
    learning_rate: float = 5e-7
    beta: float = 0.1


@dataclass(frozen=True)
class DpoResult:
    """A finished training. loss, accuracy (share of pairs in order), margin (of the implicit rewards): of the last
    logged update; too_long: pairs that were left out."""

    folder: Path
    steps: int
    loss: float | None
    accuracy: float | None
    margin: float | None
    too_long: int


def train_dpo_by_trl(
    model: Any,
    tokenizer: Any,
    rows: PreferenceSplits,
    settings: DpoSettings,
    folder: Path,
    log: Metrics | None,
    *,
    reference: Callable[[], Any],
    resume: bool = False,
    allow_device_change: bool = False,
) -> DpoResult:
    """Trains a loaded model on preferences. log: None in all processes but the main one.

    reference: loads the same weights again, which only a sharded training of all weights needs. Raises BadInput as
    `train_sft` does, and where every pair is too long.
    """
    hf.silence_libraries()
    if not resume:
        hf.refuse_used(folder)
    found = run_fingerprint(rows, settings)
    point = hf.resume_point(folder, found, allow_device_change=allow_device_change)
    tokens, too_long = pairs_that_fit(rows, tokenizer, settings.max_length)
    sharded = os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"
    copy = reference() if sharded and not settings.lora_rank else None
    trainer = _trainer(model, copy, tokenizer, tokens, settings, folder)
    hf.attach_callback(trainer, hf.trainer_callback(STAGE, log, found))
    trainer.train(resume_from_checkpoint=str(point) if point is not None else None)
    trainer.save_model(str(folder / hf.FINAL))
    if trainer.is_world_process_zero():
        tokenizer.save_pretrained(folder / hf.FINAL)
        shutil.rmtree(folder / PAIRS, ignore_errors=True)
    last = {name: value for one in trainer.state.log_history for name, value in one.items()}
    return DpoResult(
        folder / hf.FINAL,
        trainer.state.global_step,
        loss=last.get("loss"),
        accuracy=last.get("rewards/accuracies"),
        margin=last.get("rewards/margins"),
        too_long=too_long,
    )


def run_fingerprint(rows: PreferenceSplits, settings: DpoSettings) -> dict[str, Any]:
    """The fingerprint that a resumed training must match."""
    return hf.fingerprint(msgspec.to_builtins(settings), hf.digest(columns(rows)))


PairTokens = dict[str, list[int]]
"""prompt_ids, chosen_ids and rejected_ids of one preference, as TRL's collator takes them."""


def pairs_that_fit(
    rows: Mapping[str, Sequence[PreferenceRow]], tokenizer: Any, max_length: int
) -> tuple[dict[str, list[PairTokens]], int]:
    """(token ids by split, number of pairs with an answer that is too long). Raises BadInput where train has none."""
    splits: dict[str, list[PairTokens]] = {}
    too_long = 0
    for name, known in rows.items():
        encoded = _encode(known, tokenizer)
        kept = [one for one in encoded if _longest(one) <= max_length]
        too_long += len(encoded) - len(kept)
        if kept:
            splits[name] = kept
    if TRAIN not in splits:
        raise BadInput(f"every preference is longer than {max_length} tokens", hint="--set dpo.max_length=...")
    return splits, too_long


def _encode(rows: Sequence[PreferenceRow], tokenizer: Any) -> list[PairTokens]:
    """The rows as tokens, prompt and answers tokenised separately as in SFT."""

    def answers(which: str) -> list[tuple[list[int], list[int]]]:
        made = encode_rows(
            [ImitationRow(one.prompt, getattr(one, which), one.task, one.split) for one in rows], tokenizer
        )
        starts = [row.mask.index(1) for row in made]
        return [(row.ids[:start], row.ids[start:]) for row, start in zip(made, starts, strict=True)]

    return [
        {"prompt_ids": prompt, "chosen_ids": chosen, "rejected_ids": rejected}
        for (prompt, chosen), (_, rejected) in zip(answers("chosen"), answers("rejected"), strict=True)
    ]


def _longest(tokens: PairTokens) -> int:
    return len(tokens["prompt_ids"]) + max(len(tokens["chosen_ids"]), len(tokens["rejected_ids"]))


def _trainer(
    model: Any,
    reference: Any,
    tokenizer: Any,
    tokens: Mapping[str, list[PairTokens]],
    settings: DpoSettings,
    folder: Path,
) -> Any:
    from trl import DPOTrainer

    class TokenTrainer(DPOTrainer):  # type: ignore[misc]
        """Takes rows of token ids, which TRL would tokenise in another way from messages."""

        def _prepare_dataset(self, dataset: Any, *arguments: Any) -> Any:
            return dataset

    datasets = _shared_datasets(tokens, folder / PAIRS)
    held = {name: found for name, found in datasets.items() if name != TRAIN}
    return TokenTrainer(
        model=model,
        ref_model=reference,
        args=_arguments(settings, folder, held=bool(held)),
        train_dataset=datasets[TRAIN],
        eval_dataset=held or None,
        processing_class=tokenizer,
        peft_config=settings.lora.config(),
    )


def _shared_datasets(tokens: Mapping[str, list[PairTokens]], folder: Path) -> dict[str, Any]:
    """The rows as data sets on disk, which all processes read: TRL hands the reference's log-probabilities
    from one process to the others through a file beside them."""
    from accelerate import PartialState
    from datasets import Dataset, load_from_disk

    state = PartialState()
    if state.is_main_process:  # the folder is on a disk that all machines share
        shutil.rmtree(folder, ignore_errors=True)
        for name, rows in tokens.items():
            Dataset.from_list(rows).save_to_disk(str(folder / name))
    state.wait_for_everyone()
    return {name: load_from_disk(str(folder / name)) for name in tokens}


def _arguments(settings: DpoSettings, folder: Path, *, held: bool) -> Any:
    from trl import DPOConfig

    return DPOConfig(beta=settings.beta, precompute_ref_log_probs=True, **settings.arguments(folder, held=held))
