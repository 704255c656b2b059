"""The real model of a recipe on meta devices, sharded as the recipe launches it: parameters and bytes of one GPU.

A dry run builds it: no weights are read and no memory is used. FSDP's sharding is torch's own (`fully_shard` of each
decoder layer and of the rest, as accelerate and verl do) over a process group without other processes; DeepSpeed's
ZeRO-3 divides each parameter by the number of GPUs, rounded up.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hipwright.errors import BadInput
from hipwright.train.hf import Lora
from hipwright.train.recipe import Recipe, Stage

GRADIENT, ADAM = 1, 2
"""Copies of a trained parameter beside the weights: its gradient, and Adam's two moments in float32."""


def shard_figures(recipe: Recipe, stage: Stage, model: str = "") -> dict[str, int | float]:
    """Figures of the real model: parameters, trained, parameters_a_gpu, state_gb_a_gpu and largest_unit_gb.

    state: weights, gradients and Adam's moments, in 10^9 bytes; activations and the sampler are not in it.
    largest_unit: the weights that FSDP gathers at once. model: as the command's `--model`. {} where the model's shape
    is not known here (neither in the recipe nor in a local folder). Raises BadInput for a shape that is no model's.
    """
    built = meta_model(recipe, model)
    if built is None:
        return {}
    lora = lora_of(recipe, stage)
    if lora.rank:
        built = _with_adapters(built, lora)
    total = sum(one.numel() for one in built.parameters())
    trained = sum(one.numel() for one in built.parameters() if one.requires_grad)
    launch, gpus = recipe.launch, recipe.launch.gpus * recipe.launch.machines
    kind = "fsdp" if launch.of(stage) == "verl" else launch.sharding
    figures: dict[str, int | float] = {"parameters": total, "trained": trained}
    if kind == "fsdp" and gpus > 1:
        with _process_group(gpus):
            unit = _shard(built, gpus)
            local = [(one.to_local().numel(), one) for one in built.parameters()]
        figures["largest_unit_gb"] = unit / 1e9
    else:
        share = gpus if kind == "deepspeed" else 1
        local = [(-(-one.numel() // share), one) for one in built.parameters()]
    held = sum(count * _bytes(one) for count, one in local)
    return {**figures, "parameters_a_gpu": sum(count for count, _ in local), "state_gb_a_gpu": held / 1e9}


def lora_of(recipe: Recipe, stage: Stage) -> Lora:
    """The adapters of a stage; rank 0 where all weights are trained."""
    if stage in ("sft", "dpo"):
        return recipe.sft.lora if stage == "sft" else recipe.dpo.lora
    if recipe.launch.rl == "here":
        return Lora(recipe.policy.lora_rank, recipe.policy.lora_rank, 0.0)
    return recipe.grpo.lora if recipe.launch.rl == "accelerate" else Lora(0, 0, 0.0)


def meta_model(recipe: Recipe, model: str = "") -> Any:
    """The recipe's causal language model with parameters on torch's meta device; None without a known shape."""
    import torch
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig, AutoModelForCausalLM

    chosen = recipe.model
    folder = Path(model or chosen.name)
    if (folder / "config.json").is_file():
        config = AutoConfig.from_pretrained(str(folder))
    elif chosen.shape and not model:
        try:
            config = AutoConfig.for_model(chosen.architecture, **chosen.shape)
        except (ValueError, TypeError, StrictDataclassError) as error:
            why = " ".join(str(error).split())
            raise BadInput(f"recipe {recipe.name}: model.shape is no {chosen.architecture}: {why}") from error
    else:
        return None
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=getattr(torch, chosen.dtype))


def _with_adapters(built: Any, lora: Lora) -> Any:
    import torch
    from peft import get_peft_model

    with torch.device("meta"), warnings.catch_warnings():
        # peft calls transformers by names that it is about to drop
        warnings.filterwarnings("ignore", ".*will be removed in v6.*", FutureWarning)
        return get_peft_model(built, lora.config(), autocast_adapter_dtype=True)


def _bytes(parameter: Any) -> int:
    """Bytes of the training state of one element."""
    size = int(parameter.element_size())
    return size + (GRADIENT * size + ADAM * 4 if parameter.requires_grad else 0)


def _shard(built: Any, gpus: int) -> int:
    """Shards the model over so many GPUs, as accelerate's wrapping by decoder layers does; returns the bytes in
    bfloat16 of the largest unit that is gathered at once."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (gpus,))
    names = set(built._no_split_modules or ())
    units = [one for one in built.modules() if type(one).__name__ in names]
    sizes = [sum(one.numel() for one in unit.parameters()) for unit in units]
    rest = sum(one.numel() for one in built.parameters()) - sum(sizes)
    for unit in (*units, built):
        fully_shard(unit, mesh=mesh, reshard_after_forward=True)
    return 2 * int(max([rest, *sizes]))


@contextmanager
def _process_group(size: int) -> Iterator[None]:
    """A process group of so many ranks, of which this process is the first and the others do not exist."""
    import torch.distributed as distributed
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", rank=0, world_size=size, store=FakeStore())
    try:
        yield
    finally:
        distributed.destroy_process_group()
