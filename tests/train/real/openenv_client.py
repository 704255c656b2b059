"""Run where OpenEnv 0.10 is installed: its client against the server at URL, and its models on the replies."""

from __future__ import annotations

import json
import sys
import urllib.request
from typing import Any

from openenv.core.env_server.types import HealthResponse, ResetResponse, SchemaResponse, State, StepResponse
from openenv.core.generic_client import GenericEnvClient

url, answers = sys.argv[1], json.loads(sys.argv[2])


def http(path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data=data, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as reply:
        return json.loads(reply.read())


HealthResponse.model_validate(http("/health"))
SchemaResponse.model_validate(http("/schema"))
ResetResponse.model_validate(http("/reset", {"episode_id": "e", "problem": "row_sum"}))
step = StepResponse.model_validate(http("/step", {"action": {"completion": answers[0]}, "episode_id": "e"}))
State.model_validate(http("/state"))

rewards, dones = [], []
with GenericEnvClient(base_url=url).sync() as client:
    first = client.reset(problem="row_sum")
    for answer in answers:
        result = client.step({"completion": answer})
        rewards.append(result.reward)
        dones.append(result.done)
    state = client.state()
print(
    json.dumps(
        {
            "http": step.reward,
            "problem": first.observation["problem"],
            "rewards": rewards,
            "dones": dones,
            "state": state if isinstance(state, dict) else state.model_dump(),
        }
    )
)
