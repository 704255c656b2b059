"""Reinforcement learning and rejection fine-tuning of a recipe: by train/rl on one GPU, or by TRL on several."""

from __future__ import annotations

from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hipwright.events import doing
from hipwright.train import data, grpo, hf
from hipwright.train.log import Log, ProgressLog
from hipwright.train.records import TrainingProblem
from hipwright.train.stages.dry import DryRunReward
from hipwright.train.stages.parts import load_model, open_log, stage_environment
from hipwright.train.stages.stage_work import Say, StageWork


def run_rl(work: StageWork, say: Say) -> dict[str, Any]:
    """Runs the stage "rl" or "rft"; returns its figures."""
    recipe = work.recipe
    doing("reading the problems")
    splits = data.problems(Path(work.data), limit=recipe.data.problems or None)
    problems = splits[data.TRAIN]
    say(f"{len(problems)} problems to answer; held out: {sum(map(len, splits.values())) - len(problems)}")
    model, tokenizer = load_model(work, [data.system_prompt(), *(problem.source for problem in problems)])
    with ExitStack() as stack:
        opened = stack.enter_context(stage_environment(work))
        if work.dry:
            opened.reward = DryRunReward(opened.reward)
        say(f"judging on {opened.judge.device or 'the processor'}, clock: {opened.judge.clock or 'none'}")
        train = _by_loop if recipe.launch.rl == "here" else _by_trl
        return {"problems": len(problems), **train(work, stack, model, tokenizer, problems, opened, say)}


def _by_trl(
    work: StageWork,
    stack: ExitStack,
    model: Any,
    tokenizer: Any,
    problems: list[TrainingProblem],
    environment: Any,
    say: Say,
) -> dict[str, Any]:
    """GRPO by TRL, in this process or in each of accelerate's."""
    settings = grpo.for_stage(work.recipe.grpo, work.stage)
    fingerprint = grpo.run_fingerprint(problems, settings)
    point = hf.resume_point(work.folder, fingerprint, allow_device_change=work.allow_device_change)
    done = grpo.train_grpo(
        model,
        tokenizer,
        problems,
        environment,
        settings,
        work.folder,
        open_log(stack, work, point, say),
        resume=work.resume,
        allow_device_change=work.allow_device_change,
    )
    return {"model": str(done.folder), "steps": done.steps, "reward": done.reward}


def _by_loop(
    work: StageWork,
    stack: ExitStack,
    model: Any,
    tokenizer: Any,
    problems: list[TrainingProblem],
    environment: Any,
    say: Say,
) -> dict[str, Any]:
    """Training by train/rl, on one GPU: the policy gradient, or imitation of each problem's best answer (rft)."""
    from hipwright.train.forms import ChatForm
    from hipwright.train.rl import arms, checkpoint, loop

    policy = _new_policy(work, model, tokenizer)
    step = checkpoint.latest_step(work.folder)
    if step is not None and not work.resume:
        hf.raise_folder_in_use(work.folder)
    log = ProgressLog(
        stack.enter_context(Log(work.folder, work.trackers, resume_step=-1 if step is None else step)), say
    )
    train = arms.train_rft if work.stage == "rft" else loop.train_rl
    done = train(
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
