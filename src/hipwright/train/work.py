"""Runs one stage of a recipe, in this process or in each of accelerate's (`python -m hipwright.train.work`).

A dry run uses the same code with a random two-layer model of the recipe's architecture for one update on the CPU.
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
from hipwright.events import doing
from hipwright.train import data, grpo, hf, sft
from hipwright.train.environment import Environment
from hipwright.train.judging.settings import EnvironmentSettings, new_environment
from hipwright.train.log import Log, ProgressLog
from hipwright.train.recipe import Recipe, Stage
from hipwright.train.records import AnswerOutcome, ScoredOutcome, TrainingProblem
from hipwright.train.rewards import RewardFunction

WORK, DONE = "work.json", "result.json"
"""Files of a training's folder: the `StageWork` that processes read, and the figures of the finished stage."""

Say = Callable[[str], None]


class StageWork(msgspec.Struct, frozen=True, kw_only=True):
    """A stage to run.

    recipe: resolved; data, out: folders; model: another folder or name than the recipe's, such as SFT's result;
    trackers: as `Log`'s; dry: one update of a random model.
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
        """The training's folder."""
        return Path(self.out)


def run_stage(work: StageWork, say: Say) -> dict[str, Any]:
    """Runs the stage; returns its figures for --json. Raises BadInput and InfrastructureError as the trainers do."""
    begun = time.monotonic()
    if work.dry:
        work = dry_run_work(work)
    with warnings.catch_warnings():
        # peft and TRL call transformers by names that it is about to drop
        warnings.filterwarnings("ignore", ".*will be removed in v6.*", FutureWarning)
        done = _sft(work, say) if work.stage == "sft" else _rl(work, say)
    return {"stage": work.stage, **done, "seconds": round(time.monotonic() - begun, 1)}


def dry_run_work(work: StageWork) -> StageWork:
    """The stage reduced to one small update; settings that select code paths are kept."""
    recipe = work.recipe
    replace = msgspec.structs.replace
    fast = {"save_every": 1, "log_every": 1}
    small = replace(
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
    return replace(work, recipe=small, trackers=())


# ---------------------------------------------------------------- stages


def _sft(work: StageWork, say: Say) -> dict[str, Any]:
    recipe, folder = work.recipe, work.folder
    doing("reading the data set")
    rows = data.imitation_rows(Path(work.data), rows=recipe.data.rows or None, held_rows=recipe.data.held_rows or None)
    if work.dry:
        rows = _shortest_rows(rows)
    held = ", ".join(f"{len(some)} {name}" for name, some in rows.held.items())
    say(f"{len(rows.train)} rows to learn from; held out: {held or 'none'}; {len(rows.bad)} unreadable lines")
    model, tokenizer = _load_model(work, [one["content"] for row in rows.train for one in row.prompt + row.completion])
    fingerprint = sft.run_fingerprint(rows, recipe.sft)
    point = hf.resume_point(folder, fingerprint, allow_device_change=work.allow_device_change)
    with ExitStack() as stack:
        log = _open_log(stack, work, point, say)
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


def _rl(work: StageWork, say: Say) -> dict[str, Any]:
    recipe = work.recipe
    doing("reading the problems")
    splits = data.problems(Path(work.data), limit=recipe.data.problems or None)
    problems = splits[data.TRAIN]
    say(f"{len(problems)} problems to answer; held out: {sum(map(len, splits.values())) - len(problems)}")
    model, tokenizer = _load_model(work, [data.system_prompt(), *(problem.source for problem in problems)])
    with ExitStack() as stack:
        opened = stack.enter_context(_new_environment(work))
        if work.dry:
            opened.reward = DryRunReward(opened.reward)
        say(f"judging on {opened.judge.device or 'the processor'}, clock: {opened.judge.clock or 'none'}")
        train = _rl_loop if recipe.launch.rl == "here" else _rl_trl
        return {"problems": len(problems), **train(work, stack, model, tokenizer, problems, opened, say)}


def _rl_trl(
    work: StageWork,
    stack: ExitStack,
    model: Any,
    tokenizer: Any,
    problems: list[TrainingProblem],
    environment: Any,
    say: Say,
) -> dict[str, Any]:
    """GRPO by TRL, in this process or in each of accelerate's."""
    fingerprint = grpo.run_fingerprint(problems, work.recipe.grpo)
    point = hf.resume_point(work.folder, fingerprint, allow_device_change=work.allow_device_change)
    done = grpo.train_grpo(
        model,
        tokenizer,
        problems,
        environment,
        work.recipe.grpo,
        work.folder,
        _open_log(stack, work, point, say),
        resume=work.resume,
        allow_device_change=work.allow_device_change,
    )
    return {"model": str(done.folder), "steps": done.steps, "reward": done.reward}


def _rl_loop(
    work: StageWork,
    stack: ExitStack,
    model: Any,
    tokenizer: Any,
    problems: list[TrainingProblem],
    environment: Any,
    say: Say,
) -> dict[str, Any]:
    """Reinforcement learning by train/rl, on one GPU."""
    from hipwright.train.forms import ChatForm
    from hipwright.train.rl import checkpoint
    from hipwright.train.rl.loop import train_rl

    policy = _new_policy(work, model, tokenizer)
    step = checkpoint.latest_step(work.folder)
    if step is not None and not work.resume:
        hf.raise_folder_in_use(work.folder)
    log = ProgressLog(
        stack.enter_context(Log(work.folder, work.trackers, resume_step=-1 if step is None else step)), say
    )
    done = train_rl(
        policy,
        problems,
        environment,
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


def _new_policy(work: StageWork, model: Any, tokenizer: Any) -> Any:
    """The policy of train/rl; vLLM samples where the recipe asks for it, or leaves it open and vLLM can run."""
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


def _load_model(work: StageWork, texts: list[str]) -> tuple[Any, Any]:
    """(the model, its tokenizer); in a dry run a random model, with a tokenizer trained on the texts."""
    doing("loading the model")
    chosen = work.recipe.model
    if work.dry:
        from hipwright.train.tiny import tiny_model

        return tiny_model(chosen.architecture, texts)
    return hf.load_model(work.model or chosen.name, dtype=chosen.dtype, attention=chosen.attention)


def _new_environment(work: StageWork) -> Environment:
    recipe = work.recipe
    return new_environment(EnvironmentSettings(reward=recipe.reward, judge=recipe.judge, unsafe=work.unsafe))


def _shortest_rows(rows: data.ImitationRows) -> data.ImitationRows:
    """The two shortest training rows and the shortest of each held-out split, on which a step takes seconds."""

    def length(row: data.ImitationRow) -> int:
        return sum(len(one["content"]) for one in row.prompt + row.completion)

    counts = {name: 2 if name == data.TRAIN else 1 for name in rows.splits}
    return data.ImitationRows(
        {name: sorted(some, key=length)[: counts[name]] for name, some in rows.splits.items()}, rows.bad
    )


def _open_log(stack: ExitStack, work: StageWork, point: Path | None, say: Say) -> ProgressLog | None:
    """The log, in the main process; None in the others."""
    if os.environ.get("RANK", "0") != "0":
        return None
    return ProgressLog(stack.enter_context(Log(work.folder, work.trackers, resume_step=hf.step_of(point))), say)


def _open_sampler(stack: ExitStack, work: StageWork, tokenizer: Any, log: ProgressLog | None) -> Any:
    """The callback that samples held-out problems during SFT; None where the recipe's sample_every is 0."""
    every = work.recipe.sft.sample_every
    if not every:
        return None
    from hipwright.train.held_out_samples import HeldOutSampler

    opened = stack.enter_context(_new_environment(work)) if log is not None else None
    splits = data.problems(Path(work.data), limit=work.recipe.data.problems or None)
    held = [one for name, known in splits.items() if name != data.TRAIN for one in known]
    return HeldOutSampler(held or splits[data.TRAIN], opened, tokenizer, log, every=every)


class DryRunReward:
    """A dry run's reward, which differs between answers: a group of equal rewards would cause no update."""

    def __init__(self, plain: RewardFunction) -> None:
        self._plain = plain
        self.name = plain.name

    def __call__(self, outcomes: Sequence[AnswerOutcome]) -> list[ScoredOutcome]:
        """The plain rewards, plus 0.1 for each earlier answer of the group."""
        return [
            one if one.reward is None else msgspec.structs.replace(one, reward=one.reward + place / 10)
            for place, one in enumerate(self._plain(outcomes))
        ]


def main() -> int:
    """The main function of accelerate's processes: `python -m hipwright.train.work FOLDER/work.json`."""
    work = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=StageWork)
    first = os.environ.get("RANK", "0") == "0"

    def say(text: str) -> None:
        if first:
            print(text, file=sys.stderr, flush=True)

    try:
        done = run_stage(work, say)
    except HipwrightError as error:
        hint = f"\nhint: {error.hint}" if error.hint else ""
        print(f"error: {error.message}{hint}", file=sys.stderr, flush=True)
        return error.exit_code
    if first:
        (work.folder / DONE).write_bytes(msgspec.json.encode(done))
    return 0


if __name__ == "__main__":
    sys.exit(main())
