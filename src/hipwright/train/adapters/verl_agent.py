"""An agent loop of verl (0.9.1): repair turns, with the verifier's findings masked out of the loss.

    actor_rollout_ref.rollout.agent.agent_loop_config_path=FOLDER/agents.yaml
    actor_rollout_ref.rollout.agent.default_agent_loop=hipwright

A conversation is one trajectory with one reward, that of its last scorable answer: verl has one advantage for a
trajectory, so that turns have none of their own here. An unscorable first answer raises, and verl drops the trajectory.
Importing this module needs verl, whose pins require an environment of its own.
"""

# mypy: disable-error-code="misc"
# (its base class is unknown where verl is not installed)

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import monotonic
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput

from hipwright.train.adapters.verl import ATTEMPTS, VerlUnscorable
from hipwright.train.forms import repair_message
from hipwright.train.judging.settings import shared_environment
from hipwright.train.records import ScoredOutcome, TrainingProblem, Turn
from hipwright.train.scaled.rollout import findings_tokens

NAME = "hipwright"
"""The name of the agent loop in verl's registry."""


class RepairAgentLoop(AgentLoopBase):
    """Answers, and repairs an answer that the verifier refused.

    turns: the most answers; max_new_tokens: of one answer; environment: as judging.settings.EnvironmentSettings, None
    for the variable HIPWRIGHT_ENVIRONMENT.
    """

    def __init__(
        self,
        *arguments: Any,
        turns: int = 1,
        max_new_tokens: int = 4096,
        environment: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._turns, self._new_tokens = int(turns), int(max_new_tokens)
        self._opened = shared_environment(environment)
        self._most = int(self.rollout_config.response_length)

    async def run(self, sampling_params: dict[str, Any], **columns: Any) -> AgentLoopOutput:
        """One conversation. columns: of the row; `raw_prompt` holds its messages. Raises VerlUnscorable."""
        messages = [dict(one) for one in columns["raw_prompt"]]
        about = columns.get("extra_info") or {}
        source = str(columns["reward_model"]["ground_truth"])
        problem = TrainingProblem(name=str(about.get("task_name") or "task"), source=source)
        text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        prompt: list[int] = list(self.tokenizer.encode(text, add_special_tokens=False))
        tokens: list[int] = []
        mask: list[int] = []
        logprobs: list[float] = []
        history: list[Turn] = []
        last: ScoredOutcome | None = None
        judged = 0  # tokens up to the end of the last scorable answer
        seconds = {"generate_sequences": 0.0, "compute_score": 0.0}
        while len(history) < self._turns:
            begun = monotonic()
            said = await self.server_manager.generate(
                request_id=uuid4().hex,
                prompt_ids=prompt + tokens,
                sampling_params={**sampling_params, "max_tokens": self._new_tokens},
            )
            own = list(said.token_ids)
            tokens += own
            mask += [1] * len(own)
            logprobs += list(said.log_probs or [0.0] * len(own))
            answer = self.tokenizer.decode(own, skip_special_tokens=True)
            generated = monotonic()
            scored = await asyncio.to_thread(self._score, problem, answer, history)
            seconds["generate_sequences"] += generated - begun
            seconds["compute_score"] += monotonic() - generated
            if scored.reward is None and last is None:
                raise VerlUnscorable(f"{problem.name}: {scored.outcome.fault}: {scored.outcome.message}")
            if scored.reward is None:
                for kept in (tokens, mask, logprobs):
                    del kept[judged:]  # no gradient for an answer without a verdict
                break
            last, judged = scored, len(tokens)
            history.append(Turn(completion=answer, outcome=scored.outcome))
            if scored.outcome.correct or len(history) == self._turns:
                break
            request = repair_message(scored.outcome)
            ended = bool(own) and own[-1] == self.tokenizer.eos_token_id
            findings = findings_tokens(self.tokenizer, messages, answer, request, ended=ended)
            if len(tokens) + len(findings) + self._new_tokens > self._most:
                break
            messages += [{"role": "assistant", "content": answer}, request]
            tokens += findings
            mask += [0] * len(findings)
            logprobs += [0.0] * len(findings)
        return AgentLoopOutput(
            prompt_ids=prompt,
            response_ids=tokens[: self._most],
            response_mask=mask[: self._most],
            response_logprobs=logprobs[: self._most],
            reward_score=last.reward if last else None,
            num_turns=2 * len(history),
            metrics=seconds,
            extra_fields={},
        )

    def _score(self, problem: TrainingProblem, answer: str, history: list[Turn]) -> ScoredOutcome:
        """The scored outcome; a fault that is not the candidate's is asked for again."""
        for _ in range(ATTEMPTS):
            scored = self._opened.score(problem, answer, list(history))
            if scored.reward is not None:
                break
        return scored
