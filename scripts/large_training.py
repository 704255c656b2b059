"""Training at size on several GPUs, as the 8-GPU recipe launches it: a random 7-billion-parameter model, FSDP.

    python scripts/large_training.py --gpus 4 --out out/large --results FILE.jsonl [--parts sft rl resume]
    python scripts/large_training.py --gpus 2 --cpu --layers 2 --hidden 64 --out out/large --results FILE.jsonl

sft: 20 updates; rl: 5 updates of GRPO, judged by `hipwright serve` beside it; resume: a small model's SFT is ended by
kill -9 after a checkpoint, and its losses after the resume are compared with those of an uninterrupted one. Each part
appends a line as it ends: seconds and tokens a second of an update (the first left out), the most memory a GPU, and the
share of an update in which processes wait for verdicts. sft and rl are ended after the last update, before the whole
model is saved. The weights are random and the tokenizer is trained here, so losses and rewards mean nothing, and almost
no answer compiles: verdicts come sooner than a real model's. --cpu: gloo and a small model, to test this script.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import yaml

from hipwright.train import data, hf, launch, recipe, tiny
from hipwright.train.launchers import accelerate
from hipwright.train.stages.stage_work import StageWork

ROOT = Path(__file__).resolve().parents[1]
ROWS, TASKS = ROOT / "data" / "sample", ROOT / "src/hipwright/audit/corpus/tasks"
SEVEN_B = {"hidden": 3584, "intermediate": 18944, "layers": 28, "heads": 28, "kv": 4, "vocabulary": 152064}
SMALL_LAYERS, SMALL_HIDDEN = 4, 512
RESUME_STEPS, SAVE_EVERY = 6, 2


def shape(layers: int, hidden: int, vocabulary: int) -> dict[str, int]:
    """A shape like Qwen2.5's: seven queries a key for the large one."""
    heads = max(2, hidden // 128)
    kv = max(1, heads // 7)
    return {
        "hidden": hidden,
        "intermediate": 5 * hidden,
        "layers": layers,
        "heads": heads,
        "kv": kv if heads % kv == 0 else 1,
        "vocabulary": vocabulary,
    }


def write_model(folder: Path, wanted: dict[str, int], tokenizer: Any, device: str) -> int:
    """Writes random weights in bfloat16, a file a decoder layer, without ever holding the model; returns the number
    of parameters."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        "qwen2",
        vocab_size=max(wanted["vocabulary"], len(tokenizer)),
        hidden_size=wanted["hidden"],
        intermediate_size=wanted["intermediate"],
        num_hidden_layers=wanted["layers"],
        num_attention_heads=wanted["heads"],
        num_key_value_heads=wanted["kv"],
        max_position_embeddings=32768,
        tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        dtype="bfloat16",
    )
    config.architectures = ["Qwen2ForCausalLM"]
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    folder.mkdir(parents=True)
    files: dict[str, list[str]] = {}
    shapes = {name: tuple(one.shape) for name, one in model.named_parameters()}
    for name in shapes:
        words = name.split(".")
        place = words[2] if words[1] == "layers" else words[-2]
        files.setdefault(f"model-{place}.safetensors", []).append(name)
    torch.manual_seed(0)
    for file, names in files.items():
        made = {}
        for name in names:
            one = torch.empty(shapes[name], dtype=torch.bfloat16, device=device)
            made[name] = (one.fill_(1.0) if "norm" in name else one.normal_(0.0, 0.02)).cpu()
        save_file(made, str(folder / file), metadata={"format": "pt"})
    index = {name: file for file, names in files.items() for name in names}
    total = sum(torch.Size(one).numel() for one in shapes.values())
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": 2 * total}, "weight_map": index})
    )
    config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return total


def changes(gpus: int, length: int, url: str = "", *, cpu: bool) -> list[str]:
    """The recipe's settings for these short runs."""
    grpo = ["steps=5", "batch=4", "accumulate=1", "samples=4", "turns=2", "vllm=", "save_every=0", "log_every=1"]
    grpo += [f"max_new_tokens={8 if cpu else 48}", "max_prompt_tokens=32000"]
    sft = [f"max_length={length}", "batch=1", "accumulate=1", "evaluate_every=0", "log_every=1", "save_every=0"]
    every = [*(f"grpo.{one}" for one in grpo), *(f"sft.{one}" for one in sft), "sft.max_steps=20", "sft.epochs=1000"]
    judge = [f"judge.urls=['{url}']"] if url else []
    return [*every, f"launch.gpus={gpus}", *judge]


class Training:
    """A stage's processes. times: the lines of each process's times-RANK.jsonl."""

    def __init__(self, work: StageWork, gpus: int, *, cpu: bool) -> None:
        self.work, self.gpus = work, gpus
        command = accelerate.accelerate_command(work, launch.SINGLE_NODE)
        launch._write_inputs(work, command)
        config = accelerate.accelerate_config(work) | {"num_processes": gpus}
        config |= {"mixed_precision": "no"} if cpu else {}
        (work.folder / accelerate.CONFIG).write_text(yaml.safe_dump(config))
        more = {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"} if cpu else {}
        self._log = (work.folder / "output.log").open("ab")
        self._process = subprocess.Popen(
            command.argv, env={**os.environ, **more}, stdout=self._log, stderr=self._log, start_new_session=True
        )

    def wait(self, done: Callable[[], bool], limit_s: float) -> bool:
        """Waits until `done` holds or the processes end; raises RuntimeError where they fail or the time is over."""
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            code = self._process.poll()
            if done():
                return True
            if code is not None:
                if code:
                    raise RuntimeError(f"exit code {code}: {self.tail()}")
                return True
            time.sleep(0.2)
        raise RuntimeError(f"not done in {limit_s:.0f} s: {self.tail()}")

    def kill(self) -> None:
        """SIGKILL to all of its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()

    def tail(self) -> str:
        """The end of what the processes said."""
        return (self.work.folder / "output.log").read_bytes()[-2500:].decode(errors="replace")

    def times(self) -> list[list[dict[str, Any]]]:
        """By process, the lines of its updates."""
        return [_lines(self.work.folder / f"times-{rank}.jsonl") for rank in range(self.gpus)]


def _lines(path: Path) -> list[dict[str, Any]]:
    whole = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in whole]


def figures(times: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """Means over the updates but the first, which compiles and allocates."""
    first = times[0]
    later = [line for one in times for line in one[1:]]
    spent = sum(line["seconds"] for line in later) or 1e-9
    own = sum(line["seconds"] for line in first[1:]) or 1e-9
    known = [line["tokens"] for line in first if line.get("tokens") is not None]
    phases = sorted({name for line in later for name in line if name.startswith("seconds_")})
    return {
        "updates": len(first),
        "start_s": first[0]["seconds"] if first else None,
        "update_s": round(fmean([line["seconds"] for line in first[1:]]), 3) if len(first) > 1 else None,
        "tokens_a_second": round((known[-1] - known[0]) / own, 1) if len(known) > 1 else None,
        "shares": {name[8:]: round(sum(line.get(name, 0.0) for line in later) / spent, 4) for name in phases},
        "memory_gb": [max((line.get("reserved_gb", 0.0) for line in one), default=0.0) for one in times],
        "allocated_gb": [max((line.get("allocated_gb", 0.0) for line in one), default=0.0) for one in times],
    }


@contextmanager
def service(out: Path, gpus: int, *, cpu: bool) -> Iterator[str]:
    """`hipwright serve` on this host; its address."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    targets = ["--target", "cpu", "--target", "gfx942"] if cpu else ["--target", "cuda", "--gpu", str(gpus - 1)]
    words = [sys.executable, "-m", "hipwright", "serve", "--data", str(TASKS), "--port", str(port), *targets]
    with (out / "serve.log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
        try:
            until = time.monotonic() + 90
            while time.monotonic() < until and process.poll() is None:
                with suppress(OSError):
                    socket.create_connection(("127.0.0.1", port), 1.0).close()
                    break
                time.sleep(0.3)
            else:
                raise RuntimeError(f"no service: {(out / 'serve.log').read_text()[-1500:]}")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def stage(asked: argparse.Namespace, name: str, model: Path, url: str = "") -> dict[str, Any]:
    """sft or rl of the large model, until its last update."""
    chosen = recipe.load("qwen2.5-coder-14b-8gpu", changes(asked.gpus, asked.length, url, cpu=asked.cpu))
    steps = chosen.sft.max_steps if name == "sft" else chosen.grpo.steps
    place = str(ROWS if name == "sft" else TASKS)
    work = StageWork(stage=name, recipe=chosen, data=place, out=str(asked.out / name), model=str(model), trackers=())
    training = Training(work, asked.gpus, cpu=asked.cpu)
    try:
        training.wait(lambda: all(len(one) >= steps for one in training.times()), asked.limit_s)
    except RuntimeError as error:
        return {"failed": str(error)} | (figures(training.times()) if any(training.times()) else {})
    finally:
        training.kill()
    return figures(training.times())


def resume(asked: argparse.Namespace, model: Path) -> dict[str, Any]:
    """SFT of a small model: its losses uninterrupted, and killed after a checkpoint and resumed."""
    settings = changes(asked.gpus, asked.length, cpu=asked.cpu)
    settings += [f"sft.max_steps={RESUME_STEPS}", f"sft.save_every={SAVE_EVERY}"]
    chosen = recipe.load("qwen2.5-coder-14b-8gpu", settings)
    losses = {}
    for name in ("whole", "killed"):
        out = asked.out / f"resume-{name}"
        work = StageWork(stage="sft", recipe=chosen, data=str(ROWS), out=str(out), model=str(model), trackers=())
        training = Training(work, asked.gpus, cpu=asked.cpu)
        try:
            mark = out / f"checkpoint-{SAVE_EVERY}" / hf.COMPLETE
            training.wait(mark.exists if name == "killed" else lambda out=out: _ended(out), asked.limit_s)
        finally:
            training.kill()
        if name == "killed":
            before = len(_lines(out / "times-0.jsonl"))
            training = Training(msgspec.structs.replace(work, resume=True), asked.gpus, cpu=asked.cpu)
            try:
                training.wait(lambda out=out: _ended(out), asked.limit_s)
            finally:
                training.kill()
        lines = [one for one in _lines(out / "metrics.jsonl") if one["stage"] == "sft" and "loss" in one["values"]]
        losses[name] = {one["step"]: one["values"]["loss"] for one in lines}
    whole, killed = losses["whole"], losses["killed"]
    off = max(abs(whole[step] - killed[step]) / abs(whole[step]) for step in whole)
    return {"killed_after_update": before, "losses": losses, "same_steps": sorted(whole) == sorted(killed), "off": off}


def _ended(out: Path) -> bool:
    """Whether the last update's loss is logged."""
    lines = _lines(out / "metrics.jsonl")
    return any(one["step"] >= RESUME_STEPS and "loss" in one["values"] for one in lines)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--out", type=Path, required=True, help="folder; the 7B weights are 15 GB")
    parser.add_argument("--results", type=Path, required=True, help="file of JSON lines")
    parser.add_argument("--parts", nargs="+", default=["sft", "rl", "resume"], choices=["sft", "rl", "resume"])
    parser.add_argument("--layers", type=int, default=0, help="another size than 7B, with --hidden")
    parser.add_argument("--hidden", type=int, default=0)
    parser.add_argument("--length", type=int, default=4096, help="tokens of a packed row of SFT")
    parser.add_argument("--limit-s", type=float, default=170.0, help="of each launch")
    parser.add_argument("--cpu", action="store_true")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # its processes are ended on the way
    asked.out = asked.out.absolute()
    asked.out.mkdir(parents=True, exist_ok=True)
    asked.results.parent.mkdir(parents=True, exist_ok=True)
    texts = [data.system_prompt(), *(one.source for one in data.problems(TASKS)[data.TRAIN])]
    tokenizer = tiny.train_tokenizer(texts)
    small = shape(2, 64, 0) if asked.cpu else shape(SMALL_LAYERS, SMALL_HIDDEN, 0)
    large = shape(asked.layers, asked.hidden, 0) if asked.layers else SEVEN_B
    device = "cpu" if asked.cpu else "cuda"

    def with_service(model: Path) -> dict[str, Any]:
        with service(asked.out, asked.gpus, cpu=asked.cpu) as url:
            return stage(asked, "rl", model, url)

    work: dict[str, Callable[[Path], dict[str, Any]]] = {
        "sft": lambda model: stage(asked, "sft", model),
        "rl": with_service,
        "resume": lambda model: resume(asked, model),
    }
    failed = False
    for part in asked.parts:
        begun = time.monotonic()
        wanted, folder = (small, asked.out / "small") if part == "resume" else (large, asked.out / "large")
        row: dict[str, Any] = {"part": part, "gpus": asked.gpus, "shape": wanted}
        try:
            count = folder / "parameters.txt"
            if not count.exists():
                count.write_text(str(write_model(folder, wanted, tokenizer, device)))
            row |= {"parameters": int(count.read_text()), "weights_s": round(time.monotonic() - begun, 1)}
            row |= work[part](folder)
        except Exception as error:  # the other parts go on, whatever met this one
            row["failed"] = f"{type(error).__name__}: {error}"[-4000:]
        row["part_s"] = round(time.monotonic() - begun, 1)
        failed = failed or "failed" in row
        with asked.results.open("a") as out:
            out.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
