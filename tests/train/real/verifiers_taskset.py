"""Run where verifiers 0.4 is installed: load the taskset from FOLDER, score real traces; JSON on stdout."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.types import AssistantMessage, UserMessage

from hipwright.train.adapters import verifiers as adapter
from hipwright.train.judging import settings
from tests.train import fakes

judge = fakes.WordVerdictJudge()
settings.new_environment = lambda asked, gpus=(): fakes.environment(asked.reward.name)


def trace(task: Any, word: str) -> Any:
    nodes = [
        vf.MessageNode(message=UserMessage(content=task.data.prompt)),
        vf.MessageNode(message=AssistantMessage(content=fakes.answer(word)), parent=0, sampled=True),
    ]
    told = vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
    return vf.Trace(task=told, agent=vf.AgentInfo(config=vf.AgentConfig()), nodes=nodes)


def scored(task: Any, word: str) -> dict[str, Any]:
    made = trace(task, word)
    try:
        asyncio.run(task.score(made))
        error = ""
    except vf.TaskError as found:
        error = str(found)
    rewards = {name: None if one is None else one.value for name, one in made.rewards.items()}
    return {"rewards": rewards, "metrics": made.metrics, "error": error}


task_config = adapter.ProgramTaskConfig(environment={"reward": {"name": "milestones"}})
taskset = adapter.ProgramTaskset(adapter.ProgramTasksetConfig(data=sys.argv[1], task=task_config))
tasks = list(taskset.take(3))
print(
    json.dumps(
        {
            "count": len(list(taskset)),
            "type": adapter.ProgramTaskset.task_type().__name__,
            "names": [task.data.name for task in tasks],
            "keys": len({task.key for task in tasks}),
            "roundtrip": vf.WireTaskData.model_validate_json(tasks[0].data.model_dump_json()).source
            == tasks[0].data.source,
            "scores": {word: scored(tasks[0], word) for word in ("fast", "wrong", "broken")},
        }
    )
)
