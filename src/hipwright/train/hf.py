"""What SFT and TRL's GRPO share: the model and its tokenizer, whole checkpoints, and figures into our Log.

The Trainer writes a checkpoint file by file, so kill -9 leaves one torn. `whole.json` is written last, with what the
checkpoint was made under: a checkpoint without it is no checkpoint, and one of another device is refused.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from hipwright.errors import BadInput
from hipwright.records import content_key

if TYPE_CHECKING:
    from hipwright.train.rl.training import Metrics

WHOLE, PREFIX, FINAL = "whole.json", "checkpoint-", "model"
"""A folder of training holds checkpoint-STEP/ with whole.json, and at its end model/."""
ADAPTER = "adapter_config.json"
"""What peft leaves in a folder that holds adapters alone."""
MACHINE = ("device", "processes", "torch")
"""What of a fingerprint names where the training ran."""
KEEP = 2
"""Checkpoints: the last whole one survives a kill while the next is written."""


@dataclass(frozen=True)
class Lora:
    """Low-rank adapters on every linear layer but the head. rank 0: all weights are trained."""

    rank: int
    alpha: int
    dropout: float

    def config(self) -> Any:
        """peft's; None for full training."""
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
    """(a causal language model, its tokenizer) of a folder, or of a name that the cache or the Hub knows.

    dtype: "bfloat16" or "float32". BadInput where neither the cache nor the network has the weights, and for a
    tokenizer without a chat template.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        from accelerate import PartialState

        # only where the processes know each other does one alone read the weights for FSDP, and not each
        PartialState(cpu=not torch.cuda.is_available())
    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
        options = {"dtype": getattr(torch, dtype), "attn_implementation": attention}
        if (Path(name) / ADAPTER).is_file():  # what LoRA left: its base with the adapters in the weights
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
    """The model that a folder of adapters adapts; any other name as it is."""
    adapter = Path(name) / ADAPTER
    return str(json.loads(adapter.read_bytes())["base_model_name_or_path"]) if adapter.is_file() else name


def quiet() -> None:
    """No bars and no tables of the libraries': stdout carries results only, and progress has our own form."""
    import datasets
    import transformers

    datasets.disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()


def common(folder: Path, *, seed: int, checkpoint_activations: bool, save_every: int, log_every: int) -> dict[str, Any]:
    """Arguments that every trainer of TRL is given alike."""
    import torch

    gpu = torch.cuda.is_available()
    # FSDP has an own way that gathers no weights twice: accelerate's configuration asks for it (launch.py)
    sharded = os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"
    return {
        "output_dir": str(folder),
        "bf16": gpu,
        "use_cpu": not gpu,
        "activation_checkpointing": checkpoint_activations and not sharded,
        "save_strategy": "steps" if save_every else "no",
        "save_steps": save_every or 500,
        "save_total_limit": KEEP,
        "logging_steps": log_every,
        "logging_first_step": True,
        "seed": seed,
        "data_seed": seed,
        "report_to": "none",  # figures go through our Log
        "disable_tqdm": True,
    }


def attach(trainer: Any, callback: Any) -> None:
    """Our callback in the place of the one that prints."""
    from transformers import PrinterCallback

    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(callback)


# ---------------------------------------------------------------- resume


def fingerprint(settings: Mapping[str, Any], data: str) -> dict[str, Any]:
    """What exact continuation needs to be the same. data: a digest of the rows or problems, in order."""
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
    """20 hex digits of plain JSON types."""
    return content_key("training data", json.dumps(parts, sort_keys=True))


def resume_point(folder: Path, found: Mapping[str, Any], *, allow_device_change: bool = False) -> Path | None:
    """The last whole checkpoint; None where there is none. Torn ones are removed by the main process.

    BadInput where it was made with other settings or data, or on another device that nobody allowed: what would follow
    is another run.
    """
    whole = [path for path in _checkpoints(folder) if (path / WHOLE).is_file()]
    if os.environ.get("RANK", "0") == "0":
        for path in _checkpoints(folder):
            if path not in whole:
                shutil.rmtree(path, ignore_errors=True)
    if not whole:
        return None
    known = json.loads((whole[-1] / WHOLE).read_text(encoding="utf-8"))
    for name, value in found.items():
        if known.get(name) == value or (name in MACHINE and allow_device_change):
            continue
        hint = "--allow-device-change goes on with other rounding" if name in MACHINE else "a new --out begins anew"
        raise BadInput(_differs(whole[-1], name, known.get(name), value), hint=hint)
    return whole[-1]


def step_of(checkpoint: Path | None) -> int:
    """The step a checkpoint was made at; -1 for none."""
    return int(checkpoint.name.removeprefix(PREFIX)) if checkpoint is not None else -1


def refuse_used(folder: Path) -> None:
    """BadInput where a training was begun already."""
    if _checkpoints(folder) or (folder / FINAL).exists():
        refuse(folder)


def refuse(folder: Path) -> NoReturn:
    """Say so."""
    raise BadInput(f"{folder} already holds a training", hint="--resume goes on with it, or choose another --out")


def _checkpoints(folder: Path) -> list[Path]:
    found = [path for path in folder.glob(f"{PREFIX}*") if path.name.removeprefix(PREFIX).isdigit()]
    return sorted(found, key=step_of)


def _differs(checkpoint: Path, name: str, known: Any, value: Any) -> str:
    if isinstance(known, dict) and isinstance(value, dict):
        name = next(one for one in {**known, **value} if known.get(one) != value.get(one))
        known, value = known.get(name), value.get(name)
    return f"{checkpoint.parent} was trained with {name} {known}, and this is {value}"


# ---------------------------------------------------------------- callbacks


def callbacks(
    stage: str, log: Metrics | None, found: Mapping[str, Any], each: Callable[..., None] | None = None
) -> Any:
    """A TrainerCallback: figures go to the Log, saved checkpoints are marked whole. log: None but in the main process.

    each: called after every step as (step, model).
    """
    from transformers import TrainerCallback

    class Listener(TrainerCallback):  # type: ignore[misc]
        """Defined here, for its base class takes seconds to import."""

        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **more: Any) -> None:
            if log is None or not state.is_world_process_zero:
                return
            for name, values in _by_stage(stage, logs).items():
                log.metrics(name, state.global_step, values)

        def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if state.is_world_process_zero:
                marker = Path(args.output_dir) / f"{PREFIX}{state.global_step}" / WHOLE
                beside = marker.with_suffix(".new")
                beside.write_text(json.dumps(found, sort_keys=True), encoding="utf-8")
                beside.replace(marker)

        def on_step_end(self, args: Any, state: Any, control: Any, model: Any, **more: Any) -> None:
            if each is not None:
                each(state.global_step, model)

    return Listener()


def _by_stage(stage: str, logs: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Figures of one record: an evaluation's losses apart from those of training.

    Left out: rates and times of the machine and the totals of this process alone, for the log of a resumed training
    is that of one that was not interrupted.
    """
    split: dict[str, dict[str, float]] = {}
    for name, value in logs.items():
        if not isinstance(value, (int, float)):
            continue
        if name.startswith("eval_"):
            if name.endswith("_loss"):
                split.setdefault("eval", {})[name.removeprefix("eval_")] = float(value)
        elif not name.startswith("train_") and name not in ("total_flos", "epoch", "num_tokens"):
            split.setdefault(stage, {})[name] = float(value)
    return split
