"""Recipes: a TOML file each with a model, data, the settings of the stages and their launch (docs/recipes.md).

`recipes/NAME.toml` is part of hipwright; other files are given by their path. Every value has a type, an unknown name
is refused with the nearest known one, and `--set part.name=value` changes a value for one run.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from hipwright.errors import BadInput
from hipwright.train import dpo, sft
from hipwright.train.rl.settings import RLSettings
from hipwright.train.scaled.settings import GrpoSettings

FOLDER = Path(__file__).parent / "recipes"
Stage = Literal["sft", "dpo", "rl", "rft"]


class RecipeTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a recipe."""


class ModelSettings(RecipeTable, frozen=True, kw_only=True):
    """The model to train.

    name: a folder, or a name on the Hub. architecture: transformers' name of it, for dry runs. dtype: of the loaded
    weights. attention: transformers' name of the implementation. shape: values of the model's configuration by
    transformers' names, from which a dry run builds the real model without a network.
    """

    name: str
    architecture: str = "qwen2"
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    attention: Literal["sdpa", "flash_attention_2", "eager"] = "sdpa"
    shape: dict[str, Any] = {}


class DataSettings(RecipeTable, frozen=True, kw_only=True):
    """Limits: training rows, rows of a held-out split, and problems of a split; 0 for all."""

    rows: int = 0
    held_rows: int = 64
    problems: int = 0


class LaunchSettings(RecipeTable, frozen=True, kw_only=True):
    """What runs a stage: this process ("here"), accelerate, or verl on a Ray cluster.

    sft: of sft and dpo; rl: of rl and rft. gpus: of one machine. sharding: how accelerate distributes the weights;
    "none" gives each GPU all of them.
    """

    sft: Literal["here", "accelerate"] = "here"
    rl: Literal["here", "accelerate", "verl"] = "here"
    gpus: int = 1
    machines: int = 1
    sharding: Literal["none", "fsdp", "deepspeed"] = "none"

    def of(self, stage: Stage) -> str:
        """What runs the stage."""
        return self.sft if stage in ("sft", "dpo") else self.rl


class RewardSettings(RecipeTable, frozen=True, kw_only=True):
    """The name of a reward function of train/rewards.py, and its options."""

    name: str = "hipwright"
    options: dict[str, Any] = {}


class JudgeSettings(RecipeTable, frozen=True, kw_only=True):
    """How answers are judged.

    targets: as `--target`; none: a GPU where there is one, else the static estimate. gpu_memory_gb: 10^9 bytes of a GPU
    that judging may use beside training. counters: read the hardware counters of every correct program, for shaping and
    metrics of the reward (seconds a program; a GPU with its profiler). workers: programs verified at once, 0 for what
    the processors allow. urls: of servers (`hipwright serve`) that judge instead of this machine; their token is in the
    variable HIPWRIGHT_JUDGE_TOKEN. fleet: the address of a fleet that does; place: which of its devices, "" for the
    only one.
    """

    urls: tuple[str, ...] = ()
    fleet: str = ""
    place: str = ""
    targets: tuple[str, ...] = ()
    gpu_memory_gb: float = 0.0
    counters: bool = False
    workers: int = 0


class PolicySettings(RecipeTable, frozen=True, kw_only=True):
    """The policy of `train/rl`. lora_rank: 0 trains all weights. engine: what samples; "": vLLM where it is installed
    and there is a GPU, else transformers. vllm_memory: the share of the GPU's memory for vLLM.
    """

    lora_rank: int = 0
    engine: Literal["", "transformers", "vllm"] = ""
    vllm_memory: float = 0.3


class VerlSettings(RecipeTable, frozen=True, kw_only=True):
    """verl's settings beside the model, the data and the machines. overrides: hydra's, passed on unchanged.

    prompts, samples: problems a step, and answers for each. baseline: the mean of a prompt's other answers, or of all.
    turns: the most answers of a conversation; max_new_tokens: of one answer.
    mismatch: truncation of the ratio of the trainer's probabilities to the sampler's, by token or by sequence, at
    mismatch_max; "" for no correction. micro: sequences a GPU in one pass. engine: of generation;
    tensor_parallel: GPUs of one copy of it. save_every: steps between checkpoints.
    """

    steps: int = 200
    prompts: int = 64
    samples: int = 8
    micro: int = 1
    baseline: Literal["loo", "grpo"] = "loo"
    turns: int = 1
    mismatch: Literal["", "token", "sequence"] = "token"
    mismatch_max: float = 2.0
    learning_rate: float = 1e-6
    clip_low: float = 0.2
    clip_high: float = 0.28
    clip_worst: float = 3.0
    max_prompt_tokens: int = 4096
    max_new_tokens: int = 4096
    temperature: float = 1.0
    engine: Literal["vllm", "sglang"] = "vllm"
    tensor_parallel: int = 2
    gpu_memory: float = 0.5
    save_every: int = 20
    overrides: dict[str, Any] = {}


class Recipe(RecipeTable, frozen=True, kw_only=True):
    """A recipe. rl, grpo, verl: settings of rl and rft where `launch.rl` is here, accelerate, verl."""

    name: str
    about: str
    model: ModelSettings
    data: DataSettings = DataSettings()
    launch: LaunchSettings = LaunchSettings()
    reward: RewardSettings = RewardSettings()
    judge: JudgeSettings = JudgeSettings()
    sft: sft.SftSettings = sft.SftSettings()
    dpo: dpo.DpoSettings = dpo.DpoSettings()
    policy: PolicySettings = PolicySettings()
    rl: RLSettings = RLSettings()
    grpo: GrpoSettings = GrpoSettings()
    verl: VerlSettings = VerlSettings()


def recipe_names() -> list[str]:
    """The names of the recipes that are part of hipwright."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name: str, changes: Sequence[str] = ()) -> Recipe:
    """A recipe by its name or its file's path, with `part.name=value` changes. Raises BadInput for any error in it."""
    path = FOLDER / f"{name}.toml"
    if not path.is_file():
        path = Path(name)
    if not (path.is_file() and path.suffix == ".toml"):
        raise BadInput(
            f"no recipe {name!r}",
            hint=f"recipes: {', '.join(recipe_names())}; or a .toml file{_did_you_mean(name, recipe_names())}",
        )
    try:
        plain = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not TOML: {error}") from error
    plain.setdefault("name", path.stem)
    for one in changes:
        apply_change(plain, one)
    return from_tables(plain, str(path))


def from_tables(plain: dict[str, Any], where: str) -> Recipe:
    """A recipe from its tables. where: the file, for messages. Raises BadInput for the first error."""
    refuse_unknown(plain, Recipe, where, "")
    try:
        recipe = msgspec.convert(plain, Recipe)
    except msgspec.ValidationError as error:
        raise BadInput(f"{where}: {error}", hint="docs/recipes.md lists names and types") from error
    _check(recipe)
    return recipe


# ---------------------------------------------------------------- checks


def apply_change(plain: dict[str, Any], change: str) -> None:
    """Sets part.name=value in the tables; the value is TOML, or text without quotes. Raises BadInput otherwise."""
    name, equals, text = change.partition("=")
    *tables, last = name.strip().split(".")
    if not equals or not all((*tables, last)):
        raise BadInput(f"--set {change}: not of the form part.name=value", hint="e.g. --set sft.learning_rate=2e-5")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    table = plain
    for part in tables:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise BadInput(f"--set {change}: {part} is no table", hint="docs/recipes.md lists names and types")
    table[last] = value


def refuse_unknown(plain: dict[str, Any], kind: Any, where: str, prefix: str) -> None:
    """Raises BadInput for a name that is no field of `kind`, with the nearest field. prefix: of nested tables."""
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    for name, value in plain.items():
        if name not in fields:
            raise BadInput(
                f"{where}: unknown name {prefix}{name}", hint=f"names: {', '.join(fields)}{_did_you_mean(name, fields)}"
            )
        inner = next((one for one in (fields[name].type, *get_args(fields[name].type)) if _is_struct(one)), None)
        if inner is not None and isinstance(value, dict):
            refuse_unknown(value, inner, where, f"{prefix}{name}.")


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _did_you_mean(name: str, known: Any) -> str:
    found = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {found[0]}?" if found else ""


def _check(recipe: Recipe) -> None:
    """Raises BadInput for combinations of values that the types allow but no launcher can run."""
    launch, work = recipe.launch, recipe.grpo
    wrong = {
        "launch.gpus must be 1 or more": launch.gpus < 1,
        "launch.machines must be 1 or more": launch.machines < 1,
        'one process cannot use several GPUs: launch.sft = "accelerate"': launch.gpus > 1 and launch.sft == "here",
        'sharding needs launch.sft or launch.rl = "accelerate"': launch.sharding != "none"
        and "accelerate" not in (launch.sft, launch.rl),
        "DeepSpeed's ZeRO-3 and LoRA here: take fsdp": launch.sharding == "deepspeed"
        and max(recipe.sft.lora_rank, recipe.dpo.lora_rank, recipe.grpo.lora_rank) > 0,
        # a group of completions is scored together, so it must lie within one process
        "grpo.batch * grpo.accumulate must be a multiple of grpo.samples": work.batch * work.accumulate % work.samples
        != 0,
        "grpo.samples must be 2 or more: an advantage needs a group": work.samples < 2,
        "sft.batch and sft.accumulate must be 1 or more": recipe.sft.batch < 1 or recipe.sft.accumulate < 1,
        "dpo.batch and dpo.accumulate must be 1 or more": recipe.dpo.batch < 1 or recipe.dpo.accumulate < 1,
        "dpo.beta and dpo.learning_rate must be above 0": min(recipe.dpo.beta, recipe.dpo.learning_rate) <= 0,
        "verl.turns must be 1 to 8": not 1 <= recipe.verl.turns <= 8,
        "grpo.turns must be 1 to 8": not 1 <= work.turns <= 8,
        "sft.max_length must be 16 or more": recipe.sft.max_length < 16,
        "sft.learning_rate must be above 0": recipe.sft.learning_rate <= 0,
    }
    for message, is_wrong in wrong.items():
        if is_wrong:
            raise BadInput(f"recipe {recipe.name}: {message}", hint="--set changes a value for one run")
