"""Settings of the miniature, with presets of two sizes for a GPU, and for two processors, where it takes minutes."""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from hipwright.errors import BadInput
from hipwright.records import Record
from hipwright.targets import CPU as HOST
from hipwright.targets import CUDA, TARGETS
from hipwright.train.mini import corpus, model
from hipwright.train.rl.settings import CurriculumSettings, ImitationSettings, OptimSettings, RLSettings

CONTINUED, RFT, GRPO = "continued", "rft", "grpo"
ARMS = (CONTINUED, RFT, GRPO)
"""Arms from the SFT model: SFT on the same pairs, rejection fine-tuning, leave-one-out policy gradient."""
BASE, SFT = "base", "sft"

_CONSTANT = OptimSettings(learning_rate=2e-4, warmup=10, weight_decay=0.01)


class MiniEvaluationSettings(Record, frozen=True, kw_only=True):
    """Settings of the evaluation. tasks, samples: of each split and arm; regret: tasks of a split with a schedule grid;
    grid: the most schedules of a grid; examples: tasks that the report shows."""

    tasks: int = 100
    samples: int = 4
    regret: int = 2
    grid: int = 128
    examples: int = 6
    seed: int = 7


class MiniSettings(Record, frozen=True, kw_only=True):
    """One run. target: a GPU target, or the processor (static estimates). seeds: repetitions of all stages but corpus.

    shaping: the reward's weight of shaping terms (train/shaping.py).
    arm_minutes: wall time of each arm of each seed. rl_tasks: training tasks of the arms with a judge
    (tasks.py: Grammar.practice); rl_deeper: the share of them with more operators than the corpus has. open_tasks:
    tasks that the judge keeps open, half a gigabyte of a GPU each; larger ones count as several (tasks.py: weight).
    held: tasks of the corpus whose loss alone is computed. checked: programs of the corpus that are verified before
    training. corpus_folder: a finished corpus to copy.
    """

    target: str = CUDA.name
    reward: str = "hipwright"
    shaping: float = 0.0
    seeds: tuple[int, ...] = (0, 1)
    arms: tuple[str, ...] = ARMS
    arm_minutes: float = 4.0
    rl_tasks: int = 128
    rl_deeper: float = 0.4
    open_tasks: int = 136
    held: int = 32
    checked: int = 64
    corpus: corpus.CorpusSettings = corpus.CorpusSettings()
    corpus_folder: str = ""
    model: model.ModelShape = model.ModelShape()
    sft: ImitationSettings = ImitationSettings(
        steps=1500,
        batch_tokens=65536,
        micro_tokens=65536,
        checkpoint_every=500,
        evaluate_every=250,
        optim=OptimSettings(learning_rate=2e-3, warmup=100, schedule="cosine", weight_decay=0.05),
    )
    continued: ImitationSettings = ImitationSettings(
        steps=1_000_000, batch_tokens=65536, micro_tokens=65536, checkpoint_every=500, optim=_CONSTANT
    )
    rl: RLSettings = RLSettings(
        steps=1_000_000,
        max_new_tokens=768,
        max_prompt_tokens=256,
        updates=3,
        kl=0.02,
        keep=8,
        curriculum=CurriculumSettings(floor=1.0),  # uniform, since speed is learnt on solved tasks
        optim=replace(_CONSTANT, learning_rate=1.5e-4, warmup=5),
    )
    evaluation: MiniEvaluationSettings = MiniEvaluationSettings()

    def __post_init__(self) -> None:
        if not 0 <= self.rl_deeper <= 1:
            raise ValueError("rl_deeper must be from 0 to 1")


GPU = MiniSettings()
LARGE = replace(
    GPU,
    arm_minutes=2.0,
    model=model.LARGE,
    sft=replace(
        GPU.sft,
        steps=600,
        micro_tokens=32768,
        row_tokens=512,
        checkpoint_every=300,
        evaluate_every=300,
        optim=replace(GPU.sft.optim, learning_rate=6e-4, warmup=60),
    ),
    continued=replace(
        GPU.continued,
        micro_tokens=32768,
        row_tokens=512,
        checkpoint_every=1000,
        evaluate_every=1000,
        optim=replace(_CONSTANT, learning_rate=6e-5),
    ),
    rl=replace(
        GPU.rl,
        micro_tokens=16384,
        keep=4,
        checkpoint_every=50,
        optim=replace(GPU.rl.optim, learning_rate=2e-5),
    ),
)
"""With a model of 86 million parameters. A checkpoint has a gigabyte or more, so there are few; the activations of
32,768 tokens take 17 GB."""
CPU = MiniSettings(
    target=HOST.name,
    seeds=(0,),
    arm_minutes=0.3,
    rl_tasks=6,
    open_tasks=24,
    held=1,
    checked=2,
    corpus=corpus.CorpusSettings(scale="cpu", tasks=8, shapes=4, programs=6),
    model=model.TINY,
    sft=ImitationSettings(
        steps=120,
        batch_tokens=4096,
        micro_tokens=4096,
        row_tokens=256,
        checkpoint_every=60,
        evaluate_every=60,
        optim=OptimSettings(learning_rate=4e-3, warmup=10, schedule="cosine", weight_decay=0.01),
    ),
    continued=ImitationSettings(
        steps=20,
        batch_tokens=4096,
        micro_tokens=4096,
        row_tokens=256,
        checkpoint_every=10,
        evaluate_every=20,
        optim=_CONSTANT,
    ),
    rl=RLSettings(
        steps=2,
        prompts=2,
        samples=3,
        max_new_tokens=320,
        max_prompt_tokens=256,
        checkpoint_every=1,
        optim=replace(_CONSTANT, learning_rate=3e-4),
    ),
    evaluation=MiniEvaluationSettings(tasks=2, samples=2, regret=1, grid=4, examples=2),
)
"""Without a GPU: tiny tasks, verified on the processor, with static estimates. It runs all stages."""


Size = Literal["small", "large"]


def preset(target: str, size: Size = "small") -> MiniSettings:
    """The settings for a target. Raises BadInput for targets without a judge, and for the large size without a GPU."""
    if TARGETS.is_gpu(target):
        return replace(LARGE if size == "large" else GPU, target=target)
    if target != HOST.name:
        raise BadInput(
            f"the miniature has no target {target!r}", hint=f"{TARGETS.gpu_choices(joint=', ')} or {HOST.name}"
        )
    if size == "large":
        raise BadInput("the large size needs a GPU", hint=f"--target {TARGETS.gpu_choices()}, or leave out --size")
    return CPU
