"""Parts that SFT and GRPO by TRL share: loading models, complete checkpoints, and figures for our Log.

The Trainer writes a checkpoint file by file, so that kill -9 may leave it incomplete. `whole.json` is written last and
holds the run's fingerprint: a checkpoint without it is ignored, and one with another fingerprint is refused.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from hipwright.errors import BadInput
from hipwright.records import content_key

if TYPE_CHECKING:
    from hipwright.train.rl.training import Metrics

COMPLETE, PREFIX, FINAL = "whole.json", "checkpoint-", "model"
"""A training's folder holds checkpoint-STEP/ with whole.json, and model/ once it is finished."""
ADAPTER = "adapter_config.json"
"""The file of peft that marks a folder of adapters."""
MACHINE_FIELDS = ("device", "processes", "torch")
"""The fields of a fingerprint that name the machine."""
KEPT_CHECKPOINTS = 2
"""Two, so that one complete checkpoint remains while the next is written."""


@dataclass(frozen=True)
class Lora:
    """Low-rank adapters on every linear layer but the head. rank 0: all weights are trained instead."""

    rank: int
    alpha: int
    dropout: float

    def config(self) -> Any:
        """peft's configuration; None where all weights are trained."""
        if not self.rank:
            return None
        from peft import LoraConfig

        return LoraConfig(
            r=self.rank,
            lora_alpha=self.alpha,
            lora_dropout=self.dropout,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        )


def load_model(name: str, *, dtype: str, attention: str) -> tuple[Any, Any]:
    """(a causal language model, its tokenizer) of a folder, or of a name in the cache or on the Hub.

    dtype: "bfloat16" or "float32". A folder of adapters gives its base model with the adapters merged. Raises BadInput
    where the weights cannot be loaded, and for a tokenizer without a chat template.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        from accelerate import PartialState

        # with the process group initialised one process alone reads the weights for FSDP
        PartialState(cpu=not torch.cuda.is_available())
    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
        options = {"dtype": getattr(torch, dtype), "attn_implementation": attention}
        if (Path(name) / ADAPTER).is_file():
            from peft import AutoPeftModelForCausalLM

            model = AutoPeftModelForCausalLM.from_pretrained(name, **options).merge_and_unload()
        else:
            model = AutoModelForCausalLM.from_pretrained(name, **options)
    except ImportError as error:
        raise BadInput(f"{attention} is not installed: {error}", hint="--set attention=sdpa") from error
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise BadInput(
            f"the model {name!r} cannot be loaded: {first}",
            hint="a folder with its weights, or a network that reaches the Hub; --dry-run needs neither",
        ) from error
    if not tokenizer.chat_template:
        raise BadInput(f"the tokenizer of {name!r} has no chat template", hint="take the instruct model")
    return model, tokenizer


def base_of(name: str) -> str:
    """The base model of a folder of adapters; any other name unchanged."""
    adapter = Path(name) / ADAPTER
    return str(json.loads(adapter.read_bytes())["base_model_name_or_path"]) if adapter.is_file() else name


def silence_libraries() -> None:
    """Turns off the libraries' progress bars and messages, since stdout is for results only."""
    import datasets
    import transformers

    datasets.disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()


class TrlSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all trainings by TRL have in common. batch: rows or conversations a device and pass; accumulate: passes an
    update. warmup: share of the steps. save_every, log_every: updates between two; 0 for never (the final model is
    always saved).
    """

    learning_rate: float
    warmup: float = 0.03
    batch: int
    accumulate: int = 8
    lora_rank: int = 0
    lora_alpha: int = 32
    checkpoint_activations: bool = True
    save_every: int
    log_every: int
    seed: int = 0

    @property
    def lora(self) -> Lora:
        """The settings of the adapters."""
        return Lora(self.lora_rank, self.lora_alpha, 0.0)

    def common_arguments(self, folder: Path) -> dict[str, Any]:
        """The arguments that all of TRL's configurations take."""
        import torch

        gpu = torch.cuda.is_available()
        # FSDP has its own activation checkpointing, which launchers/accelerate.py sets in the configuration
        sharded = os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"
        return {
            "output_dir": str(folder),
            "bf16": gpu,
            "use_cpu": not gpu,
            "learning_rate": self.learning_rate,
            "warmup_steps": self.warmup,  # below 1: a share of all steps
            "per_device_train_batch_size": self.batch,
            "gradient_accumulation_steps": self.accumulate,
            "activation_checkpointing": self.checkpoint_activations and not sharded,
            "save_strategy": "steps" if self.save_every else "no",
            "save_steps": self.save_every or 500,
            "save_total_limit": KEPT_CHECKPOINTS,
            "logging_steps": self.log_every,
            "logging_first_step": True,
            "seed": self.seed,
            "data_seed": self.seed,
            "report_to": "none",  # figures go through our Log
            "disable_tqdm": True,
        }


class TrainerSettings(TrlSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What trainings on given rows have in common. max_steps: 0 for all epochs. max_length: tokens; longer rows are
    left out. evaluate_every: updates between two; 0 for never.
    """

    epochs: float
    max_steps: int = 0
    schedule: str = "cosine"
    batch: int = 1
    max_length: int = 8192
    evaluate_every: int = 100
    save_every: int = 100
    log_every: int = 5

    def arguments(self, folder: Path, *, held: bool) -> dict[str, Any]:
        """The arguments of TRL's configuration. held: whether there are rows that are held out."""
        evaluate = self.evaluate_every if held else 0
        return {
            "num_train_epochs": self.epochs,
            "max_steps": self.max_steps or -1,
            "lr_scheduler_type": self.schedule,
            "per_device_eval_batch_size": self.batch,
            "max_length": self.max_length,
            "eval_strategy": "steps" if evaluate else "no",
            "eval_steps": evaluate or None,
            **self.common_arguments(folder),
        }


def attach_callback(trainer: Any, callback: Any) -> None:
    """Replaces the trainer's printing callback by another one."""
    from transformers import PrinterCallback

    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(callback)


# ---------------------------------------------------------------- resume


def fingerprint(settings: Mapping[str, Any], data: str) -> dict[str, Any]:
    """What must be equal for an exact resume. data: a digest of the rows or problems, in order."""
    import torch

    count = torch.cuda.device_count()
    device = ", ".join(sorted({torch.cuda.get_device_name(one) for one in range(count)})) if count else "cpu"
    return {
        "device": device,
        "processes": int(os.environ.get("WORLD_SIZE", "1")),
        "torch": torch.__version__,
        "settings": json.loads(json.dumps(dict(settings))),
        "data": data,
    }


def digest(parts: Any) -> str:
    """A hash of plain JSON types, 20 hex digits."""
    return content_key("training data", json.dumps(parts, sort_keys=True))


def resume_point(folder: Path, found: Mapping[str, Any], *, allow_device_change: bool = False) -> Path | None:
    """The last complete checkpoint; None for none. The main process removes incomplete ones.

    found: this run's fingerprint. Raises BadInput where the checkpoint has other settings or data, or another device
    without allow_device_change.
    """
    whole = [path for path in _checkpoints(folder) if (path / COMPLETE).is_file()]
    if os.environ.get("RANK", "0") == "0":
        for path in _checkpoints(folder):
            if path not in whole:
                shutil.rmtree(path, ignore_errors=True)
    if not whole:
        return None
    known = json.loads((whole[-1] / COMPLETE).read_text(encoding="utf-8"))
    for name, value in found.items():
        if known.get(name) == value or (name in MACHINE_FIELDS and allow_device_change):
            continue
        hint = "--allow-device-change resumes with other rounding" if name in MACHINE_FIELDS else "use a new --out"
        raise BadInput(_describe_difference(whole[-1], name, known.get(name), value), hint=hint)
    return whole[-1]


def step_of(checkpoint: Path | None) -> int:
    """The step of a checkpoint; -1 for None."""
    return int(checkpoint.name.removeprefix(PREFIX)) if checkpoint is not None else -1


def refuse_used(folder: Path) -> None:
    """Raises BadInput for a folder that holds a checkpoint or a model."""
    if _checkpoints(folder) or (folder / FINAL).exists():
        raise_folder_in_use(folder)


def raise_folder_in_use(folder: Path) -> NoReturn:
    """Raises the BadInput for a folder that already holds a training."""
    raise BadInput(f"{folder} already holds a training", hint="--resume continues it, or choose another --out")


def _checkpoints(folder: Path) -> list[Path]:
    found = [path for path in folder.glob(f"{PREFIX}*") if path.name.removeprefix(PREFIX).isdigit()]
    return sorted(found, key=step_of)


def _describe_difference(checkpoint: Path, name: str, known: Any, value: Any) -> str:
    if isinstance(known, dict) and isinstance(value, dict):
        name = next(one for one in {**known, **value} if known.get(one) != value.get(one))
        known, value = known.get(name), value.get(name)
    return f"{checkpoint.parent} was trained with {name} {known}, and this is {value}"


# ---------------------------------------------------------------- trainer_callback


def trainer_callback(
    stage: str, log: Metrics | None, found: Mapping[str, Any], each: Callable[..., None] | None = None
) -> Any:
    """A TrainerCallback that logs figures and marks saved checkpoints complete.

    log: None in all processes but the main one. found: the run's fingerprint. each: called after every update with
    (step, model).
    """
    from transformers import TrainerCallback

    class Listener(TrainerCallback):  # type: ignore[misc]
        """Defined in this function, since the import of its base class takes seconds."""

        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **more: Any) -> None:
            if log is None or not state.is_world_process_zero:
                return
            for name, values in _by_stage(stage, logs).items():
                log.metrics(name, state.global_step, values)

        def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if state.is_world_process_zero:
                marker = Path(args.output_dir) / f"{PREFIX}{state.global_step}" / COMPLETE
                temporary = marker.with_suffix(".new")
                temporary.write_text(json.dumps(found, sort_keys=True), encoding="utf-8")
                temporary.replace(marker)

        def on_step_end(self, args: Any, state: Any, control: Any, model: Any, **more: Any) -> None:
            if each is not None:
                each(state.global_step, model)

    return Listener()


TIMES_AND_TOTALS = ("total_flos", "epoch", "num_tokens", "step_time")
"""Figures of the trainer that say something of this process alone."""


def _by_stage(stage: str, logs: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """The figures of one record by stage: "eval" for losses of held-out splits, and `stage`.

    Times, rates and totals of this process are left out, so that a resumed training's log equals that of an
    uninterrupted one.
    """
    split: dict[str, dict[str, float]] = {}
    for name, value in logs.items():
        if not isinstance(value, (int, float)):
            continue
        if name.startswith("eval_"):
            if name.endswith("_loss"):
                split.setdefault("eval", {})[name.removeprefix("eval_")] = float(value)
        elif not name.startswith("train_") and name not in TIMES_AND_TOTALS:
            split.setdefault(stage, {})[name] = float(value)
    return split
