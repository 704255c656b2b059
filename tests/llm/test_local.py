"""`--llm local:PATH`: checkpoints behave as providers, are read from files alone, and stop when abandoned."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

from hipwright.errors import BadInput, ProviderError
from hipwright.llm.answers.read import read_answer
from hipwright.llm.call_log import MemoryCallLog
from hipwright.llm.checkpoint import SamplingSettings, load
from hipwright.llm.client import Client
from hipwright.llm.compact import expand
from hipwright.llm.cost.budget import Budget, SpendingLimits
from hipwright.llm.cost.prices import Prices
from hipwright.llm.models import check_model, open_model
from hipwright.llm.records import Message, Request
from hipwright.toolchain.device_headers import inlined
from tests import warm
from tests.llm.checkpoints import EXAMPLE, PROGRAM, by_heart, random_chat

CHEAP = ("--target", "cpu", "--target", "gfx942", "--llm-share", "1")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_chat(tmp_path_factory.mktemp("chat"))


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return by_heart(tmp_path_factory.mktemp("learnt"))


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(MemoryCallLog(), Budget(SpendingLimits()), outage_seconds=1.0) as opened:
        yield opened


def asking(folder: Path, text: str = "hello", **fields: Any) -> Request:
    messages = (Message(role="system", text="be brief"), Message(role="user", text=text))
    return Request(role="translator", model=f"local:{folder}", messages=messages, **{"max_tokens": 24, **fields})


def about(task: Path) -> str:
    """A prompt of the translator, with another program after the reference."""
    return f"## The reference\n```python\n{task.read_text()}```\n## A page\n```python\nclass Model: ...\n```\nWrite it."


def test_an_answer_counts_its_tokens_and_costs_nothing(chat: Path, client: Client) -> None:
    answer = client.ask(asking(chat))
    checkpoint = load(chat)
    asked = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
    assert answer.usage.input_tokens == len(checkpoint.encode(asked))
    assert answer.usage.output_tokens == 24 and answer.finish == "length" and answer.attempts == 1
    assert answer.cost_usd == 0 and answer.priced and answer.model == str(chat)
    assert Prices().tariff(f"local:{chat}").source == "local"


def test_several_at_once_differ_and_the_checkpoint_is_loaded_once(chat: Path, client: Client) -> None:
    answers = client.ask_all([asking(chat, number=n, temperature=1.0) for n in range(4)])
    assert len({answer.text for answer in answers}) == 4  # type: ignore[union-attr]
    assert load(chat) is load(chat / ".." / chat.name)


def test_a_logged_answer_is_not_asked_for_again(chat: Path) -> None:
    log = MemoryCallLog()
    with Client(log, Budget(SpendingLimits())) as first, Client(log, Budget(SpendingLimits())) as second:
        assert first.ask(asking(chat)) == second.ask(asking(chat))


def test_sampling_is_reproducible_and_obeys_its_limits(chat: Path) -> None:
    checkpoint, never = load(chat), threading.Event()
    prompt = checkpoint.encode([{"role": "user", "content": "x"}])

    def drawn(seed: int, sampling: SamplingSettings) -> list[int]:
        return checkpoint.generate(prompt, most=16, sampling=sampling, seed=seed, stop=never)[0]

    hot = SamplingSettings(temperature=2.0)
    assert drawn(1, hot) == drawn(1, hot) != drawn(2, hot)
    likeliest = drawn(1, SamplingSettings(temperature=0.0))
    assert (
        drawn(3, SamplingSettings(temperature=2.0, top_k=1))
        == likeliest
        == drawn(4, SamplingSettings(temperature=2.0, top_p=1e-6))
    )


def test_cached_steps_draw_what_whole_passes_would(chat: Path) -> None:
    import torch

    checkpoint = load(chat)
    prompt = checkpoint.encode([{"role": "user", "content": "the same"}])
    tokens, _ = checkpoint.generate(
        prompt, most=12, sampling=SamplingSettings(temperature=0.0), seed=0, stop=threading.Event()
    )
    model: Any = checkpoint._model
    for place, token in enumerate(tokens):
        logits = model(input_ids=torch.tensor([[*prompt, *tokens[:place]]])).logits[0, -1]
        assert int(logits.argmax()) == token


def test_a_prompt_beyond_the_context_says_so(chat: Path, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load(chat), "context", 64)
    with pytest.raises(ProviderError, match="takes 64") as caught:
        client.ask(asking(chat, "word " * 200))
    assert not caught.value.retryable and "larger context" in caught.value.hint
    assert client.ask(asking(chat, max_tokens=500)).usage.output_tokens <= 64  # the context ends an answer


def test_a_client_that_closes_stops_the_drawing(chat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = load(chat)
    drawn: list[int] = []
    whole = checkpoint.generate

    def slow(prompt: Any, **options: Any) -> Any:
        options["most"] = 1
        while not options["stop"].is_set():
            drawn.append(1)
            time.sleep(0.02)
            whole(prompt, **options)
        drawn.append(-1)
        return [], False

    monkeypatch.setattr(checkpoint, "generate", slow)
    client = Client(MemoryCallLog(), Budget(SpendingLimits()))
    failed: list[Exception] = []

    def ask() -> None:
        try:
            client.ask(asking(chat))
        except ProviderError as error:
            failed.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    while len(drawn) < 3:
        time.sleep(0.01)
    client.close()
    thread.join(60)
    deadline = time.monotonic() + 60
    while drawn[-1] != -1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not thread.is_alive() and failed and drawn[-1] == -1


def test_a_slow_answer_gives_signs_of_life(chat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hipwright.llm.local.KEEP_ALIVE_SECONDS", 0.05)
    checkpoint, whole = load(chat), load(chat).generate

    def slow(*args: Any, **options: Any) -> Any:
        time.sleep(1.5)
        return whole(*args, **options)

    monkeypatch.setattr(checkpoint, "generate", slow)
    with Client(MemoryCallLog(), Budget(SpendingLimits()), idle_seconds=0.1, first_seconds=0.5) as client:
        assert client.ask(asking(chat)).attempts == 1


# ---------------------------------------------------------------- compact checkpoints


@pytest.mark.slow
def test_a_compact_checkpoint_gives_one_fenced_program(learnt: Path, client: Client) -> None:
    answer = client.ask(asking(learnt, about(EXAMPLE), max_tokens=600))
    assert answer.finish == "stop"
    read = read_answer(answer.text, answer.finish)
    assert hasattr(read, "program"), read
    assert read.program.text.strip() == expand(PROGRAM).strip() and "erff" in inlined(read.program.text)
    repair = (
        *asking(learnt, about(EXAMPLE)).messages,
        Message(role="assistant", text="?"),
        Message(role="user", text="Line 3 is wrong: `x`."),
    )
    again = client.ask(
        asking(learnt, number=2, max_tokens=600).__class__(
            role="translator", number=2, model=f"local:{learnt}", messages=repair, max_tokens=600
        )
    )
    assert again.text == answer.text, "a repair prompt has no reference of its own"


@pytest.mark.slow
def test_a_compact_checkpoint_says_what_it_cannot_do(learnt: Path, client: Client) -> None:
    judged = client.ask(asking(learnt, "Which bottleneck is it?"))
    assert "only writes programs" in judged.text and judged.finish == "stop"
    long = EXAMPLE.read_text().replace("F.gelu(x + self.bias)", " + ".join(f"F.gelu(x * {n})" for n in range(300)))
    answer = client.ask(asking(learnt, f"```python\n{long}\n```"))
    assert "too long" in answer.text and answer.usage.input_tokens > 1024


def optimize(home: Path, *args: object) -> subprocess.CompletedProcess[str]:
    env = {"HIPWRIGHT_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    return warm.hipwright(home.parent, "optimize", EXAMPLE, *args, "--json", env=env)


@pytest.mark.slow
def test_a_run_with_garbage_ends_with_the_engines_program_and_replays(tmp_path: Path) -> None:
    home, chat = tmp_path / "home", random_chat(tmp_path / "chat", brief=True)
    limits = ("--budget", 4, "--without", "retrieval", "--max-tokens", 45_000)
    done = optimize(home, "--llm", f"local:{chat}", *CHEAP, *limits)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["status"] == "pass" and result["models"]["calls"] >= 1 and result["models"]["usd"] == 0
    chat.rename(tmp_path / "moved")  # a replay opens no model
    again = optimize(home, "--replay", "latest")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["models"]["calls"] == result["models"]["calls"]


@pytest.mark.slow
def test_a_run_with_a_learnt_program_verifies_it(learnt: Path, tmp_path: Path) -> None:
    from hipwright.archive import Archive, read_log

    home = tmp_path / "home"
    done = optimize(home, "--llm", f"local:{learnt}", *CHEAP, "--budget", 2)
    assert done.returncode == 0, done.stderr
    with Archive(home, create=False) as archive:
        run = archive.run("latest")
        log = read_log(archive.events(run.id))
        texts = {n: archive.program(p.program).text for n, p in log.proposed.items() if p.program}
    written = [n for n, text in texts.items() if text.strip() == expand(PROGRAM).strip()]
    assert written and log.evaluated[written[0]].evaluation.status == "pass"


# ---------------------------------------------------------------- folders that are none


def test_what_is_no_checkpoint_is_bad_input(tmp_path: Path, chat: Path) -> None:
    for spec in (f"local:{tmp_path}", f"local:{tmp_path / 'missing'}", f"local:{EXAMPLE}"):
        for use in (check_model, open_model):
            with pytest.raises(BadInput, match="no checkpoint") as caught:
                use(spec)
            assert "save_pretrained" in caught.value.hint


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("pickle", "safetensors"),
        ("torn", "no checkpoint"),
        ("code", "no checkpoint"),
        ("form", "no form"),
        ("template", "chat template"),
    ],
)
def test_a_folder_that_is_not_sound_says_why(tmp_path: Path, change: str, says: str) -> None:
    folder = random_chat(tmp_path / "made")
    weights, config = folder / "model.safetensors", folder / "config.json"
    if change == "pickle":
        weights.rename(folder / "pytorch_model.bin")
    elif change == "torn":
        weights.write_bytes(weights.read_bytes()[:1000])
    elif change == "code":  # a class of its own, which would be run from the folder
        (folder / "own.py").write_text("raise SystemExit('ran')\n")
        entry = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}
        config.write_text(json.dumps({"model_type": "own", "auto_map": entry}))
    elif change == "form":
        (folder / "hipwright.json").write_text('{"form": "braille"}')
    else:
        for name in ("tokenizer_config.json", "chat_template.jinja"):
            path = folder / name
            if path.exists():
                found = json.loads(path.read_text()) if path.suffix == ".json" else {}
                found.pop("chat_template", None)
                path.write_text(json.dumps(found)) if path.suffix == ".json" else path.unlink()
    with pytest.raises(BadInput, match=says):
        open_model(f"local:{folder}")


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # peft asks transformers by it
def test_an_adapter_is_added_to_its_base(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base, folder = random_chat(tmp_path / "base"), tmp_path / "adapter"
    whole = AutoModelForCausalLM.from_pretrained(str(base))
    whole = get_peft_model(whole, LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
    whole.save_pretrained(str(folder))
    AutoTokenizer.from_pretrained(str(base)).save_pretrained(str(folder))
    prompt = load(folder).encode([{"role": "user", "content": "x"}])

    def likeliest(place: Path) -> list[int]:
        return load(place).generate(prompt, most=12, sampling=SamplingSettings(temperature=0.0), seed=0, stop=never)[0]

    never = threading.Event()
    import torch

    expected = whole.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=12)[0, len(prompt) :].tolist()
    assert likeliest(folder) == expected[: len(likeliest(folder))] != likeliest(base)[: len(expected)]
    moved = tmp_path / "alone"
    folder.rename(moved)
    base.rename(tmp_path / "gone")
    with pytest.raises(BadInput, match="base"):
        open_model(f"local:{moved}")


def test_missing_packages_name_the_extra(chat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *more: None if name == "transformers" else found(name, *more)
    )
    with pytest.raises(BadInput, match="transformers") as caught:
        check_model(f"local:{chat}")
    assert caught.value.hint == "pip install 'hipwright[train]'"


def test_the_command_line_refuses_a_folder_before_any_work(tmp_path: Path) -> None:
    done = optimize(tmp_path / "h", "--llm", f"local:{tmp_path}")
    assert done.returncode == 2 and "no checkpoint" in done.stderr and "Traceback" not in done.stderr
