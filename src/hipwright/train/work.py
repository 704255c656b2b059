"""One stage of a recipe, done: here, and by accelerate in each of several processes (`python -m hipwright.train.work`).

A dry run takes the same way with a random two-layer model of the recipe's architecture and one update, on the CPU.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from hipwright.errors import HipwrightError
from hipwright.train import data, grpo, hf, sft
from hipwright.train.judging.settings import EnvironmentSettings, environment
from hipwright.train.log import Log, Telling
from hipwright.train.recipe import Recipe, Stage, changed
from hipwright.train.records import AnswerOutcome, ScoredOutcome, TrainingProblem
from hipwright.train.rewards import RewardFunction

WORK, DONE = "work.json", "result.json"
"""Of a training's folder: what is to be done, and what came of it."""

Say = Callable[[str], None]


class StageWork(msgspec.Struct, frozen=True, kw_only=True):
    """recipe as resolved; model: another folder or name than the recipe's, such as what SFT left.

    trackers: as Log's; None: the default ones. dry: one update of a random model.
    """

    stage: Stage
    recipe: Recipe
    data: str
    out: str
    model: str = ""
    trackers: tuple[str, ...] | None = None
    resume: bool = False
    allow_device_change: bool = False
    unsafe: bool = False
    dry: bool = False

    @property
    def folder(self) -> Path:
        """Where the training is kept."""
        return Path(self.out)


def run(work: StageWork, say: Say) -> dict[str, Any]:
    """Do it. BadInput and InfrastructureError as the stages raise them; -> figures for people and --json."""
    begun = time.monotonic()
    if work.dry:
        work = shrunk(work)
    with warnings.catch_warnings():
        # peft and TRL call transformers by names that it is about to drop
        warnings.filterwarnings("ignore", ".*will be removed in v6.*", FutureWarning)
        done = _sft(work, say) if work.stage == "sft" else _rl(work, say)
    return {"stage": work.stage, **done, "seconds": round(time.monotonic() - begun, 1)}


def shrunk(work: StageWork) -> StageWork:
    """One update, with everything that costs time made small; what decides the code path stays."""
    recipe = work.recipe
    replace = msgspec.structs.replace
    fast = {"save_every": 1, "log_every": 1}
    small = changed(
        recipe,
        data=replace(recipe.data, problems=2),
        sft=replace(recipe.sft, max_steps=1, accumulate=1, evaluate_every=1, warmup=0.0, **fast),
        grpo=replace(
            recipe.grpo, steps=1, batch=2, accumulate=1, samples=2, max_new_tokens=8, vllm="", warmup=0.0, **fast
        ),
        rl=replace(
            recipe.rl,
            steps=1,
            prompts=1,
            samples=2,
            max_new_tokens=8,
            max_prompt_tokens=32_000,
            overlap=False,
            checkpoint_every=1,
            sample_every=1,
        ),
    )
    return msgspec.structs.replace(work, recipe=small, trackers=())


# ---------------------------------------------------------------- stages


def _sft(work: StageWork, say: Say) -> dict[str, Any]:
    recipe, folder = work.recipe, work.folder
    lessons = data.lessons(Path(work.data), rows=recipe.data.rows or None, held_rows=recipe.data.held_rows or None)
    if work.dry:
        lessons = _shortest(lessons)
    held = ", ".join(f"{len(rows)} {name}" for name, rows in lessons.held.items())
    say(f"{len(lessons.train)} rows to learn from; held out: {held or 'none'}; {len(lessons.bad)} unreadable lines")
    model, tokenizer = _model(work, [one["content"] for row in lessons.train for one in row.prompt + row.completion])
    known = sft.known(lessons, recipe.sft)
    with ExitStack() as stack:
        log = _log(stack, work, hf.resume_point(folder, known, allow_device_change=work.allow_device_change), say)
        watch = _watch(stack, work, tokenizer, log)
        done = sft.train_sft(
            model,
            tokenizer,
            lessons,
            recipe.sft,
            folder,
            log,
            resume=work.resume,
            allow_device_change=work.allow_device_change,
            watch=watch,
        )
    figures = {"loss": done.loss, "eval_loss": done.eval_loss, "too_long": done.too_long}
    return {"model": str(done.folder), "steps": done.steps, "rows": len(lessons.train), **figures}


def _rl(work: StageWork, say: Say) -> dict[str, Any]:
    recipe = work.recipe
    splits = data.problems(Path(work.data), limit=recipe.data.problems or None)
    problems = splits[data.TRAIN]
    say(f"{len(problems)} problems to answer; held out: {sum(map(len, splits.values())) - len(problems)}")
    model, tokenizer = _model(work, [data.system_prompt(), *(problem.source for problem in problems)])
    with ExitStack() as stack:
        opening = EnvironmentSettings(reward=recipe.reward, judge=recipe.judge, unsafe=work.unsafe)
        judging = stack.enter_context(environment(opening))
        if work.dry:
            judging.reward = DryRunReward(judging.reward)
        say(f"judging on {judging.judge.device or 'the processor'}, clock: {judging.judge.clock or 'none'}")
        train = _rl_here if recipe.launch.rl == "here" else _rl_trl
        return {"problems": len(problems), **train(work, stack, model, tokenizer, problems, judging, say)}


def _rl_trl(
    work: StageWork,
    stack: ExitStack,
    model: Any,
    tokenizer: Any,
    problems: list[TrainingProblem],
    judging: Any,
    say: Say,
) -> dict[str, Any]:
    """By TRL, in this process or in each of accelerate's."""
    known = grpo.known(problems, work.recipe.grpo)
    point = hf.resume_point(work.folder, known, allow_device_change=work.allow_device_change)
    done = grpo.train_grpo(
        model,
        tokenizer,
        problems,
        judging,
        work.recipe.grpo,
        work.folder,
        _log(stack, work, point, say),
        resume=work.resume,
        allow_device_change=work.allow_device_change,
    )
    return {"model": str(done.folder), "steps": done.steps, "reward": done.reward}


def _rl_here(
    work: StageWork,
    stack: ExitStack,
    model: Any,
    tokenizer: Any,
    problems: list[TrainingProblem],
    judging: Any,
    say: Say,
) -> dict[str, Any]:
    """By our own loop, on one GPU."""
    from hipwright.train.forms import ChatForm
    from hipwright.train.rl import checkpoint
    from hipwright.train.rl.loop import train_rl

    policy = _policy(work, model, tokenizer)
    step = checkpoint.latest_step(work.folder)
    if step is not None and not work.resume:
        hf.refuse(work.folder)
    log = Telling(stack.enter_context(Log(work.folder, work.trackers, resume_step=-1 if step is None else step)), say)
    done = train_rl(
        policy,
        problems,
        judging,
        ChatForm(tokenizer),
        work.recipe.rl,
        work.folder,
        log,
        allow_device_change=work.allow_device_change,
    )
    policy.save(work.folder / hf.FINAL)
    tokenizer.save_pretrained(work.folder / hf.FINAL)
    return {"model": str(work.folder / hf.FINAL), "steps": done.step, "finished": done.finished, **done.metrics}


# ---------------------------------------------------------------- parts


def _policy(work: StageWork, model: Any, tokenizer: Any) -> Any:
    """The loop's policy: sampled by vLLM where the recipe does not say otherwise and it can be."""
    import torch

    from hipwright.train.rl.policy import HFPolicy, with_lora
    from hipwright.train.rl.vllm_policy import VLLMPolicy

    chosen, rl = work.recipe.policy, work.recipe.rl
    if chosen.lora_rank:
        model = with_lora(model, chosen.lora_rank)
    ends: dict[str, Any] = {"end": [tokenizer.eos_token_id], "pad": tokenizer.pad_token_id or 0}
    if work.dry:
        return HFPolicy(model, device="cpu", **ends)
    possible = torch.cuda.is_available() and find_spec("vllm") is not None
    if chosen.engine == "vllm" or (not chosen.engine and possible):
        base = hf.base_of(work.model or work.recipe.model.name)
        length = rl.max_prompt_tokens + rl.max_new_tokens
        return VLLMPolicy(model, base, memory=chosen.vllm_memory, length=length, **ends)
    return HFPolicy(model, **ends)


def _model(work: StageWork, texts: list[str]) -> tuple[Any, Any]:
    chosen = work.recipe.model
    if work.dry:
        from hipwright.train.tiny import tiny

        return tiny(chosen.architecture, texts)
    return hf.load_model(work.model or chosen.name, dtype=chosen.dtype, attention=chosen.attention)


def _shortest(lessons: data.ImitationRows) -> data.ImitationRows:
    """The two shortest rows to learn from, and one of each held-out split: a step over them takes seconds."""

    def length(row: data.ImitationRow) -> int:
        return sum(len(one["content"]) for one in row.prompt + row.completion)

    counts = {name: 2 if name == data.TRAIN else 1 for name in lessons.splits}
    return data.ImitationRows(
        {name: sorted(rows, key=length)[: counts[name]] for name, rows in lessons.splits.items()}, lessons.bad
    )


def _log(stack: ExitStack, work: StageWork, point: Path | None, say: Say) -> Telling | None:
    """Of the main process alone."""
    if os.environ.get("RANK", "0") != "0":
        return None
    return Telling(stack.enter_context(Log(work.folder, work.trackers, resume_step=hf.step_of(point))), say)


def _watch(stack: ExitStack, work: StageWork, tokenizer: Any, log: Telling | None) -> Any:
    """What samples held-out problems while SFT goes on; None where the recipe does not ask."""
    every = work.recipe.sft.sample_every
    if not every:
        return None
    from hipwright.train.watch import SampleWatch

    opening = EnvironmentSettings(reward=work.recipe.reward, judge=work.recipe.judge, unsafe=work.unsafe)
    judging = stack.enter_context(environment(opening)) if log is not None else None
    splits = data.problems(Path(work.data), limit=work.recipe.data.problems or None)
    held = [one for name, known in splits.items() if name != data.TRAIN for one in known]
    return SampleWatch(held or splits[data.TRAIN], judging, tokenizer, log, every=every)


class DryRunReward:
    """A dry run's reward: random text earns nothing alike, and without a difference no step would be taken."""

    def __init__(self, plain: RewardFunction) -> None:
        self._plain = plain
        self.name = plain.name

    def __call__(self, outcomes: Sequence[AnswerOutcome]) -> list[ScoredOutcome]:
        """The plain rewards, a little more for each next answer."""
        return [
            one if one.reward is None else msgspec.structs.replace(one, reward=one.reward + place / 10)
            for place, one in enumerate(self._plain(outcomes))
        ]


def main() -> int:
    """What accelerate starts in each process: `python -m hipwright.train.work FOLDER/work.json`."""
    work = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=StageWork)
    first = os.environ.get("RANK", "0") == "0"

    def say(text: str) -> None:
        if first:
            print(text, file=sys.stderr, flush=True)

    try:
        done = run(work, say)
    except HipwrightError as error:
        hint = f"\nhint: {error.hint}" if error.hint else ""
        print(f"error: {error.message}{hint}", file=sys.stderr, flush=True)
        return error.exit_code
    if first:
        (work.folder / DONE).write_bytes(msgspec.json.encode(done))
    return 0


if __name__ == "__main__":
    sys.exit(main())
