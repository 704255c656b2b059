"""The adapters, with a fake judge; TRL's also in TRL's trainer."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from hipwright.errors import BadInput
from hipwright.train import grpo, tiny
from hipwright.train.adapters import openenv, trl, verl
from hipwright.train.environment import Environment
from hipwright.train.judging import settings
from hipwright.train.log import Log
from hipwright.train.records import TrainingProblem
from hipwright.train.rewards import reward
from hipwright.train.scaled.settings import GrpoSettings
from tests.train import fakes

# peft and TRL call transformers by names that it is about to drop
pytestmark = pytest.mark.filterwarnings("ignore:.*will be removed in v6.*:FutureWarning")

ROW_SUM = TrainingProblem(name="row_sum", source=fakes.SOURCE)
OTHER = TrainingProblem(name="other", source=fakes.SOURCE + "\n# another\n")

# ---------------------------------------------------------------- TRL


def test_trl_rewards_are_by_group_and_none_is_unscorable() -> None:
    rewarded = trl.TrlReward(fakes.environment(), [ROW_SUM, OTHER])
    words = ["fast", "wrong", "broken", "fast", "fast", "no program"]
    texts = [fakes.answer(word) for word in words[:-1]] + ["I cannot."]
    asked = [ROW_SUM, OTHER, ROW_SUM, OTHER, ROW_SUM, OTHER]
    found = rewarded(["a", "b", "a", "b", "a", "b"], texts, problem=[one.key for one in asked])
    assert found[2] is None
    assert found[1] == found[5] == 0.0
    one, half = found[0], found[3]
    assert one == found[4] and one is not None and one > 0.5, "all scorable answers of the first group are right"
    assert half is not None and half < one, "a third of the second group is right: the gate on speed is shut"
    alone = fakes.environment().score_group(OTHER, [texts[1], texts[3], texts[5]])
    assert [scored.reward for scored in alone] == [found[1], found[3], found[5]]


def test_trl_takes_conversations_and_exported_columns() -> None:
    rewarded = trl.TrlReward(fakes.environment("milestones"))
    said = [[{"role": "assistant", "content": fakes.answer(word)}] for word in ("fast", "slow", "wrong")]
    asked = [[{"role": "user", "content": "write"}]] * 3
    found = rewarded(asked, said, ground_truth=[fakes.SOURCE] * 3, task_name=["row_sum"] * 3)
    assert found == [3.0, 2.0, 1.0]
    with pytest.raises(BadInput, match="neither a column"):
        rewarded(asked, said)
    with pytest.raises(BadInput, match="not given: nobody"):
        rewarded(asked, said, problem=["nobody"] * 3)


class ScriptedEnvironment(Environment):
    """An environment with given answers, since a random model writes none that parse."""

    def __init__(self, words: list[str]) -> None:
        super().__init__(fakes.WordVerdictJudge(), reward("milestones"))
        self.words = words
        self.given: list[str] = []

    def submit(self, problem: TrainingProblem, completion: str, history: Any = ()) -> Any:
        word = self.words[len(self.given) % len(self.words)]
        self.given.append(word)
        return super().submit(problem, fakes.answer(word), history)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "baseline", "advantages"),
    [
        (["fast", "wrong", "broken", "slow"], 2.0, [1.5, -1.5, 0.0, 0.0]),
        (["broken", "broken", "broken", "broken"], math.nan, [0.0, 0.0, 0.0, 0.0]),
    ],
    ids=["one unscorable", "all unscorable"],
)
def test_a_grpo_step_of_trl_leaves_the_unscorable_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], baseline: float, advantages: list[float]
) -> None:
    """GRPOTrainer with a two-layer model: its advantages, and whether the weights changed."""
    import torch
    from trl import GRPOTrainer

    seen: list[Any] = []
    plain = GRPOTrainer._compute_loss

    def noted(self: Any, model: Any, made: Any) -> Any:
        seen.append(sorted(made["advantages"][:, 0].tolist()))
        return plain(self, model, made)

    monkeypatch.setattr(GRPOTrainer, "_compute_loss", noted)
    model, tokenizer = tiny.tiny_model("qwen2", [fakes.SOURCE])
    before = {name: one.detach().clone() for name, one in model.named_parameters()}
    settings = GrpoSettings(
        steps=1,
        batch=4,
        accumulate=1,
        samples=4,
        max_new_tokens=6,
        learning_rate=1e-2,
        warmup=0.0,
        save_every=1,
        checkpoint_activations=False,
    )
    environment = ScriptedEnvironment(words)
    with Log(tmp_path, ()) as log:
        done = grpo.train_grpo(model, tokenizer, [ROW_SUM], environment, settings, tmp_path, log)
    assert environment.given == words
    assert done.steps == 1 and (done.folder / "model.safetensors").is_file()
    assert seen == [pytest.approx(sorted(advantages), abs=1e-6)], (
        "reward less the mean of the other scorable ones, 0 for the unscorable"
    )
    moved = any(not torch.equal(before[name], one) for name, one in model.named_parameters())
    assert moved == any(advantages)
    values = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0])["values"]
    assert values["infrastructure"] == words.count("broken") / 4
    if not math.isnan(baseline):
        assert done.reward == pytest.approx(baseline)
        assert values["compiled"] == 1.0 and values["correct"] == pytest.approx(2 / 3)
    samples = [json.loads(line)["record"] for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    assert [one["problem"] for one in samples] == ["row_sum"] * trl.LOGGED_ANSWERS


def test_too_few_problems_for_one_update_are_refused(tmp_path: Path) -> None:
    model, tokenizer = tiny.tiny_model("qwen2", [fakes.SOURCE])
    settings = GrpoSettings(batch=4, accumulate=2, samples=4)
    with pytest.raises(BadInput, match="an update takes 2 problems, and there are 1"):
        grpo.train_grpo(model, tokenizer, [ROW_SUM], fakes.environment(), settings, tmp_path, None)


# ---------------------------------------------------------------- verl


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Environment]]:
    """The environments that `shared_environment` opens, with the fake judge."""
    made: list[Environment] = []

    def environment(asked: settings.EnvironmentSettings, gpus: Any = ()) -> Environment:
        made.append(Environment(fakes.WordVerdictJudge(faults=4), reward(asked.reward.name, **asked.reward.options)))
        return made[-1]

    monkeypatch.setattr(settings, "new_environment", environment)
    monkeypatch.setattr(settings, "_environments", {})
    yield made


def test_verl_scores_and_raises_for_the_unscorable(opened: list[Environment]) -> None:
    def score(word: str, **more: Any) -> dict[str, float]:
        extra = {"task_name": "row_sum", "index": 3, "split": "train"}
        return verl.compute_score("hipwright", fakes.answer(word), fakes.SOURCE, extra, **more)

    assert score("wrong") == {"score": 0.0, "compiled": 1.0, "correct": 0.0, "fast_1": 0.0, "hack": 0.0}
    fast = score("fast")
    assert fast["score"] > 0.5 and fast["fast_1"] == 1.0
    with pytest.raises(verl.VerlUnscorable, match="row_sum: device: the GPU fell off the bus"):
        score("broken")
    assert score("broken")["correct"] == 1.0, "the fourth fault was the last: the second try is scored"
    milestones = {"reward": {"name": "milestones"}}
    assert score("fast", environment=milestones)["score"] == 3.0
    assert len(opened) == 2, "one a configuration"
    with pytest.raises(ValueError, match="gsm8k"):
        verl.compute_score("gsm8k", "", "", {})


def test_settings_come_from_the_variable_or_a_mapping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(settings.SETTINGS_VARIABLE, '{"reward": {"name": "source"}, "judge": {"targets": ["cuda"]}}')
    assert settings.read_settings().judge.targets == ("cuda",)
    assert settings.read_settings({"reward": {"name": "milestones"}}).reward.name == "milestones"
    for text in ("{", '{"rewards": {}}', '{"judge": {"workers": "many"}}'):
        monkeypatch.setenv(settings.SETTINGS_VARIABLE, text)
        with pytest.raises(BadInput, match=settings.SETTINGS_VARIABLE):
            settings.read_settings()


# ---------------------------------------------------------------- OpenEnv, and judging over HTTP


@pytest.fixture
def client() -> Iterator[TestClient]:
    arena = openenv.EpisodeStore(fakes.environment("milestones", faults=1), [ROW_SUM, OTHER], turns=2)
    with TestClient(openenv.app(arena)) as made:
        yield made


def test_openenv_episodes_over_http(client: TestClient) -> None:
    assert client.get("/health").json() == {"status": "healthy"}
    assert set(client.get("/schema").json()) == {"action", "observation", "state"}
    assert "2 problems" in client.get("/metadata").json()["description"]
    first = client.post("/reset", json={"problem": "row_sum", "episode_id": "e1"}).json()
    assert (first["reward"], first["done"]) == (None, False)
    assert [one["role"] for one in first["observation"]["messages"]] == ["system", "user"]
    asked = {"action": {"completion": fakes.answer("broken")}, "episode_id": "e1"}
    broken = client.post("/step", json=asked).json()
    assert (broken["reward"], broken["done"], broken["metadata"]["scorable"]) == (None, False, False)
    wrong = client.post("/step", json={**asked, "action": {"completion": fakes.answer("wrong")}}).json()
    assert (wrong["reward"], wrong["done"], wrong["observation"]["turn"]) == (1.0, False, 1)
    assert "off by one" in wrong["observation"]["messages"][-1]["content"], "the evidence is in the next prompt"
    fast = client.post("/step", json={**asked, "action": {"completion": fakes.answer("fast")}}).json()
    assert (fast["reward"], fast["done"]) == (3.0, True)
    assert client.get("/state", params={"episode_id": "e1"}).json()["step_count"] == 2
    again = client.post("/step", json=asked)
    assert again.status_code == 422 and "over" in again.json()["detail"]
    seeds = [client.post("/reset", json={"seed": 3}).json()["observation"]["problem"] for _ in range(2)]
    assert seeds[0] == seeds[1]


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/step", {"action": {"completion": "x"}, "episode_id": "nobody"}, "no such episode_id"),
        ("/step", {"action": {"text": "x"}}, "no such episode_id"),
        ("/reset", {"problem": "nothing"}, "no problem 'nothing'"),
        ("/reset", [1], "no JSON object"),
    ],
)
def test_openenv_refuses_bad_requests(client: TestClient, path: str, body: Any, says: str) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == 422 and says in answer.json()["detail"]
    assert client.post(path, content=b"{").status_code == 422


def test_openenv_over_a_websocket(client: TestClient) -> None:
    with client.websocket_connect("/ws") as socket:

        def ask(message: Any) -> dict[str, Any]:
            socket.send_text(message if isinstance(message, str) else json.dumps(message))
            return dict(socket.receive_json())

        assert ask("{")["data"]["code"] == "INVALID_JSON"
        assert ask({"type": "dance"})["data"]["code"] == "UNKNOWN_TYPE"
        assert ask({"type": "step", "data": {"completion": "x"}})["data"]["message"] == "reset first"
        assert ask({"type": "state"})["data"] == {"episode_id": None, "step_count": 0}
        assert ask({"type": "reset", "data": {"problem": "row_sum"}})["type"] == "observation"
        assert ask({"type": "step", "data": {"text": "x"}})["data"]["code"] == "VALIDATION_ERROR"
        slow = ask({"type": "step", "data": {"completion": fakes.answer("slow")}})
        assert (slow["type"], slow["data"]["reward"], slow["data"]["done"]) == ("observation", 2.0, True)
        assert ask({"type": "state"})["data"]["step_count"] == 1


@contextmanager
def served(environment: Environment) -> Iterator[str]:
    """The application on a port of the loopback."""
    import uvicorn

    arena = openenv.EpisodeStore(environment, [ROW_SUM])
    server = uvicorn.Server(uvicorn.Config(openenv.app(arena), port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        threading.Event().wait(0.02)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)


def test_a_judge_on_another_machine() -> None:
    """The same environment over HTTP: equal rewards, and faults of the server's machine are unscorable."""
    words = ["fast", "wrong", "slow", "fast"]
    texts = [fakes.answer(word) for word in words]
    here = fakes.environment().score_group(ROW_SUM, texts)
    judge = fakes.WordVerdictJudge(faults=1)
    with served(Environment(judge, reward("hipwright"))) as url:
        told = {"judge": {"urls": [url]}}
        with settings.new_environment(settings.read_settings(told)) as remote:
            assert (remote.judge.device, remote.judge.clock) == ("none", "device")
            assert [one.reward for one in remote.score_group(ROW_SUM, texts)] == [one.reward for one in here]
            assert sorted(judge.asked) == sorted(words[:3]), "equal programs are asked for once"
            assert remote.score(ROW_SUM, fakes.answer("broken")).reward is None
            assert remote.score(ROW_SUM, fakes.answer("broken")).reward is not None, "a fault is not remembered"
    with pytest.raises(BadInput, match="no judge answers"):
        settings.new_environment(settings.read_settings(told)).__enter__()
