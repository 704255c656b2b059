"""A language model in a folder, loaded once per process: samples tokens for a prompt (docs/llm.md).

Only local files are read: nothing is downloaded, weights are safetensors, and no code of the folder runs. The sampling
loop is our own, so that an answer can be cancelled at every token and has its own random state.
"""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hipwright.errors import BadInput
from hipwright.targets import TORCH_GPU

META = "hipwright.json"
"""The file that `hipwright train` writes beside the weights: {"form": "chat" or "compact", "temperature": ...}."""
ADAPTER = "adapter_config.json"
"""The configuration of a LoRA adapter; its base model is in a folder or in transformers' cache."""
TEMPERATURE = 0.8
"""The default where neither request nor checkpoint has one; proposals for one task should differ."""

_loaded: dict[Path, Checkpoint] = {}
_loading = threading.Lock()


@dataclass(frozen=True)
class SamplingSettings:
    """How tokens are sampled. temperature 0: greedy. top_k 0 and top_p 1.0: no restriction."""

    temperature: float = TEMPERATURE
    top_k: int = 0
    top_p: float = 1.0


class Checkpoint:
    """A causal language model with its tokenizer, on a GPU if there is one. Not thread-safe.

    form: "chat" (the tokenizer's chat template) or "compact" (llm/compact). context: most tokens, input plus output.
    """

    def __init__(self, folder: Path, model: Any, tokenizer: Any, meta: Mapping[str, Any]) -> None:
        self.folder, self.form = folder, str(meta.get("form", "chat"))
        self.context = int(getattr(model.config, "max_position_embeddings", None) or 1 << 20)
        self._model, self._tokenizer = model, tokenizer
        config = model.generation_config
        drawn = bool(config.do_sample)
        self.sampling = SamplingSettings(
            temperature=float(meta.get("temperature") or (drawn and config.temperature) or TEMPERATURE),
            top_k=int((drawn and config.top_k) or 0),
            top_p=float((drawn and config.top_p) or 1.0),
        )
        self._ends = _ends(config, tokenizer)

    def encode(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Encodes a conversation of {"role", "content"} messages up to the start of the answer."""
        text = self._tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=False)
        tokens: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """Decodes tokens to text without special tokens."""
        text: str = self._tokenizer.decode(list(tokens), skip_special_tokens=True)
        return text

    def generate(
        self, prompt: Sequence[int], *, most: int, sampling: SamplingSettings, seed: int, stop: threading.Event
    ) -> tuple[list[int], bool]:
        """Returns (the answer's tokens without the end token, whether it ended by itself).

        most: token limit of the answer; the context may be shorter. stop: once set, generation ends.
        """
        import torch

        device = self._model.device
        draw = torch.Generator(device=device).manual_seed(seed)
        left = min(most, self.context - len(prompt))
        tokens: list[int] = []
        given, cache = torch.tensor([list(prompt)], device=device), None
        name = cache_argument(self._model)
        with torch.inference_mode():
            while len(tokens) < left and not stop.is_set():
                # logits of the last token only: those of a long prompt would fill the memory
                out = self._model(input_ids=given, **{name: cache}, use_cache=True, logits_to_keep=1)
                token = _draw(out.logits[0, -1], sampling, draw)
                if token in self._ends:
                    return tokens, True
                tokens.append(token)
                given, cache = torch.tensor([[token]], device=device), out[name]
        return tokens, False


def cache_argument(model: Any) -> str:
    """The argument name of a transformers model's key-value cache; 5.24 renamed it."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def check(folder: Path) -> None:
    """Raises BadInput if a folder holds no checkpoint or a package is missing. Quick: loads nothing."""
    from importlib.util import find_spec

    for package in ("torch", "transformers", *(["peft"] if (folder / ADAPTER).is_file() else [])):
        if find_spec(package) is None:
            raise BadInput(
                f"local needs a Python package that is not installed ({package})",
                hint="pip install 'hipwright[train]'",
            )
    if not any((folder / name).is_file() for name in ("config.json", ADAPTER)):
        raise _no_checkpoint(folder, "it has no config.json")
    if not any(folder.glob("*.safetensors")):
        raise _no_checkpoint(folder, "it has no weights in safetensors, the only form that is read")
    _meta(folder)


def load(folder: Path) -> Checkpoint:
    """Returns the checkpoint of a folder, loaded on first use. BadInput if it cannot be loaded."""
    folder = folder.expanduser().resolve()
    with _loading:
        if folder not in _loaded:
            check(folder)
            _loaded[folder] = _load(folder)
        return _loaded[folder]


def _load(folder: Path) -> Checkpoint:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast
    from transformers.utils import logging

    bars: Any = logging
    bars.disable_progress_bar()  # a run shows its own progress
    meta = _meta(folder)
    files: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    dtype = "float32" if meta.get("form") == "compact" else "auto"  # a small model is also evaluated in float32
    # AutoTokenizer would give a Qwen2 model Qwen2's pre-tokenizer, whatever its file says
    tokenizer_class: Any = PreTrainedTokenizerFast if meta.get("form") == "compact" else AutoTokenizer
    try:
        tokenizer = tokenizer_class.from_pretrained(str(folder), **files)
        base = _base(folder)
        model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=dtype, use_safetensors=True, **files)
        model = _adapted(model, folder) if base != str(folder) else model
    except ImportError:
        raise
    except Exception as error:  # transformers, tokenizers and safetensors each have errors of their own
        raise _no_checkpoint(folder, " ".join(str(error).split())[:300]) from error
    if not tokenizer.chat_template:
        raise _no_checkpoint(folder, "its tokenizer has no chat template")
    return Checkpoint(folder, model.to(TORCH_GPU if torch.cuda.is_available() else "cpu").eval(), tokenizer, meta)


def _base(folder: Path) -> str:
    """The location of the weights: the folder itself, or the base model of an adapter."""
    if not (folder / ADAPTER).is_file():
        return str(folder)
    return str(json.loads((folder / ADAPTER).read_text(encoding="utf-8"))["base_model_name_or_path"])


def _adapted(model: Any, folder: Path) -> Any:
    """Merges an adapter's weights into the model."""
    from peft import PeftModel

    return PeftModel.from_pretrained(model, str(folder), use_safetensors=True).merge_and_unload()


def _meta(folder: Path) -> dict[str, Any]:
    path = folder / META
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _no_checkpoint(folder, f"{META} is not JSON") from error
    if not isinstance(found, dict) or found.get("form", "chat") not in ("chat", "compact"):
        raise _no_checkpoint(folder, f"{META} names no form that this version knows")
    return found


def _no_checkpoint(folder: Path, why: str) -> BadInput:
    return BadInput(
        f"{folder} is no checkpoint: {why}",
        hint="name a folder as transformers' save_pretrained leaves it: config.json, model.safetensors, tokenizer.json",
    )


def _ends(config: Any, tokenizer: Any) -> frozenset[int]:
    """The tokens that end an answer."""
    named = config.eos_token_id if config.eos_token_id is not None else tokenizer.eos_token_id
    return frozenset(named if isinstance(named, (list, tuple)) else [] if named is None else [named])


def _draw(logits: Any, sampling: SamplingSettings, generator: Any) -> int:
    """Samples one token. Nucleus sampling (Holtzman et al. 2020): the likeliest tokens that together reach top_p."""
    import torch

    if sampling.temperature <= 0:
        return int(logits.argmax())
    ranked, tokens = torch.sort(logits.float() / sampling.temperature, descending=True)
    if sampling.top_k:
        ranked, tokens = ranked[: sampling.top_k], tokens[: sampling.top_k]
    shares = torch.softmax(ranked, 0)
    shares = torch.where(shares.cumsum(0) - shares < sampling.top_p, shares, 0.0)
    return int(tokens[torch.multinomial(shares, 1, generator=generator)])
