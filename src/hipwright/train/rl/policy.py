"""Policies, which sample answers and compute their likelihood. HFPolicy runs any transformers causal model.

decode.py samples with static shapes in place of transformers' `generate`, and `likelihood` runs packed rows. Both call
the backbone and the output head separately, so that logits exist for completion tokens only. Models that change their
logits after the head (Gemma 2's soft cap) or have other layers than full attention are refused.
"""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from hipwright.errors import BadInput
from hipwright.llm.checkpoint import cache_argument
from hipwright.targets import TORCH_GPU
from hipwright.train.rl.decode import PAD_MULTIPLE, Decoder, cache_length
from hipwright.train.rl.packing import Pair, batches, pack, rows

if TYPE_CHECKING:
    from torch import Tensor

MAX_PACKED = 1024
"""Sequences that are packed at once, since the cost of packing is quadratic."""
MAX_ROWS = 512
"""Sequences that are sampled at once."""
ROW_TOKENS = 1024
"""Tokens of a packed row: longer rows have less padding, and more masked attention."""
MAX_DECODERS = 4
"""Decoders that are kept, each with its keys, values and graph."""
MAX_CACHE_BYTES = 16 << 30
"""Of the keys and values of all decoders that are kept; fewer answers than MAX_ROWS are sampled at once where theirs
exceed it."""


@dataclass(frozen=True)
class SampledAnswer:
    """One answer. tokens: with the end token where it `ended`; logprobs: of each token at sampling."""

    tokens: list[int]
    logprobs: list[float]
    ended: bool


@dataclass(frozen=True)
class Likelihood:
    """Log-probabilities of completion tokens, concatenated in `order` of the sequences.

    counts: tokens of each sequence. entropy: nats, without gradient; empty where it was not requested.
    """

    order: list[int]
    counts: tuple[int, ...]
    logprobs: Tensor
    entropy: Tensor


class PolicyModel(Protocol):
    """The methods of a model that the loops use."""

    device: str
    """ "cpu" or "cuda"."""

    def generate(
        self, prompts: Sequence[Sequence[int]], *, samples: int, max_new_tokens: int, temperature: float, seed: int
    ) -> list[list[SampledAnswer]]:
        """`samples` answers to each prompt. Equal weights, arguments and seed give equal answers on one device."""
        ...

    def likelihood(
        self,
        pairs: Sequence[Pair],
        *,
        temperature: float = 1.0,
        micro_tokens: int,
        row_tokens: int = 0,
        entropy: bool = False,
    ) -> Iterator[Likelihood]:
        """log p(completion token | preceding tokens), with gradients where enabled, a micro-batch at a time.

        micro_tokens: tokens of one pass; row_tokens: the most of a packed row, 0 for `ROW_TOKENS` or the longest
        sequence's; entropy: compute it too.
        """
        ...

    def logprobs(
        self, pairs: Sequence[Pair], *, temperature: float = 1.0, micro_tokens: int = 32768
    ) -> list[list[float]]:
        """The log-probability of each completion token of each sequence, without gradients."""
        ...

    def trainable_parameters(self) -> list[Any]:
        """The parameters that the optimizer updates."""
        ...

    def state(self) -> dict[str, Any]:
        """Copies of the trainable weights by name, for a checkpoint."""
        ...

    def load(self, state: dict[str, Any]) -> None:
        """Restores `state()`, in place."""
        ...

    def save(self, folder: Path) -> None:
        """Writes the weights in transformers' form (an adapter in peft's)."""
        ...


class HFPolicy:
    """A transformers causal model, with all weights trained or with a LoRA adapter of peft.

    model: of transformers or peft. end: token ids that end an answer; pad: any id, since padding is masked. device:
    "cpu", "cuda"; None: CUDA where it is available. On CUDA matrix products run in bfloat16 (autocast) over weights in
    their own type: float32 where all are trained, any for the frozen ones below an adapter. On the CPU all is computed
    in the weights' type. graphs: capture the decode step (CUDA only). Dropout is off in training too, so that sampling
    and scoring run the same network.
    """

    def __init__(
        self, model: Any, *, end: Sequence[int], pad: int = 0, device: str | None = None, graphs: bool = True
    ) -> None:
        import torch

        self.device = device or (TORCH_GPU if torch.cuda.is_available() else "cpu")
        self.model = model.to(self.device).eval()
        self.graphs = graphs and self.device.startswith(TORCH_GPU)
        self._network = model.get_base_model() if hasattr(model, "peft_config") else model
        _check(self._network.config)
        self._network.set_attn_implementation("sdpa")  # the others do not read boolean masks of four dimensions
        self._backbone = getattr(self._network, self._network.base_model_prefix)
        self._cache = cache_argument(self._backbone)
        self._head = self._network.get_output_embeddings()
        self._end, self._pad = tuple(end), pad
        self._decoders: OrderedDict[tuple[int, int, int], Decoder] = OrderedDict()

    @classmethod
    def open(
        cls, path: str | Path, *, end: Sequence[int] = (), device: str | None = None, lora_rank: int = 0
    ) -> HFPolicy:
        """The policy of a model folder or name. end: empty for the generation config's; lora_rank: 0 trains all."""
        import torch
        from transformers import AutoModelForCausalLM

        dtype = torch.bfloat16 if lora_rank and device != "cpu" and torch.cuda.is_available() else torch.float32
        try:
            model = AutoModelForCausalLM.from_pretrained(str(path), dtype=dtype, attn_implementation="sdpa")
        except (OSError, ValueError) as error:
            raise BadInput(
                f"cannot load a model from {path}: {error}", hint="give a transformers model folder"
            ) from None
        given = model.generation_config.eos_token_id if not end else list(end)
        if given is None:
            raise BadInput(f"{path} names no end token", hint="give `end`")
        return cls(
            with_lora(model, lora_rank) if lora_rank else model,
            end=[given] if isinstance(given, int) else given,
            pad=model.config.pad_token_id or 0,
            device=device,
        )

    # ---------------------------------------------------------------- sampling

    def generate(
        self, prompts: Sequence[Sequence[int]], *, samples: int, max_new_tokens: int, temperature: float, seed: int
    ) -> list[list[SampledAnswer]]:
        """See PolicyModel. At most MAX_ROWS answers are sampled at once, fewer where their keys and values exceed
        MAX_CACHE_BYTES; temperature 0 takes the likeliest token."""
        import torch

        if any(not prompt for prompt in prompts):
            raise BadInput("an empty prompt", hint="a prompt needs at least a token")
        generator = torch.Generator(self.device).manual_seed(seed)
        width = max(map(len, prompts), default=0)
        many = max(min(MAX_ROWS, MAX_CACHE_BYTES // self._cache_bytes(1, width, max_new_tokens)) // samples, 1)
        found: list[list[SampledAnswer]] = []
        with torch.no_grad():
            for start in range(0, len(prompts), many):
                some = prompts[start : start + many]
                decoder = self._decoder(len(some) * samples, max(map(len, some)), max_new_tokens)
                decoder(some, samples, temperature, generator)
                flat = self._samples(decoder)
                found += [flat[i : i + samples] for i in range(0, len(flat), samples)]
        return found

    def _decoder(self, count: int, longest: int, new: int) -> Decoder:
        key = (count, -(-longest // PAD_MULTIPLE) * PAD_MULTIPLE, new)
        if key not in self._decoders:
            left = MAX_CACHE_BYTES - self._cache_bytes(*key)
            while self._decoders and (
                len(self._decoders) >= MAX_DECODERS or sum(self._cache_bytes(*one) for one in self._decoders) > left
            ):
                self._decoders.popitem(last=False)[1].close()
            self._decoders[key] = Decoder(self, *key, end=self._end, pad=self._pad)
        self._decoders.move_to_end(key)
        return self._decoders[key]

    def _cache_bytes(self, rows: int, width: int, new: int) -> int:
        """Bytes of the keys and values of a decoder."""
        config = self._network.config.get_text_config()
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        item = 2 if self.device.startswith(TORCH_GPU) else next(self._network.parameters()).element_size()
        return 2 * int(config.num_hidden_layers * heads * size) * item * rows * cache_length(width, new)

    def _samples(self, decoder: Decoder) -> list[SampledAnswer]:
        ends, found = set(self._end), []
        for tokens, logprobs in zip(decoder.tokens.tolist(), decoder.logprobs.tolist(), strict=True):
            last = next((place for place, token in enumerate(tokens) if token in ends), None)
            count = len(tokens) if last is None else last + 1
            found.append(SampledAnswer(tokens[:count], logprobs[:count], last is not None))
        return found

    def last_logits(self, tokens: Tensor, mask: Tensor, positions: Tensor, cache: Any) -> Tensor:
        """The logits after the last token of each row, float32. mask: boolean, rows x 1 x tokens x keys."""
        with self._precision(cached=False):
            states = self._backbone(
                input_ids=tokens, attention_mask=mask, position_ids=positions, use_cache=True, **{self._cache: cache}
            ).last_hidden_state
        return self._logits(states[:, -1])

    # ---------------------------------------------------------------- likelihood

    def likelihood(
        self,
        pairs: Sequence[Pair],
        *,
        temperature: float = 1.0,
        micro_tokens: int,
        row_tokens: int = 0,
        entropy: bool = False,
    ) -> Iterator[Likelihood]:
        """See PolicyModel."""
        sizes = [len(prompt) + len(completion) for prompt, completion in pairs]
        for layout in batches(rows(sizes, row_tokens or max([ROW_TOKENS, *sizes])), sizes, micro_tokens):
            packed, order = pack(pairs, layout, self.device)
            with self._precision():
                states = self._backbone(
                    input_ids=packed.tokens,
                    attention_mask=packed.mask(),
                    position_ids=packed.positions,
                    use_cache=False,
                ).last_hidden_state
            table = (self._logits(states.flatten(0, 1)[packed.states]) / temperature).log_softmax(-1)
            fixed = table.detach()
            spread = -(fixed.exp() * fixed).sum(-1) if entropy else fixed.new_zeros(0)
            chosen = table.gather(1, packed.targets[:, None])[:, 0]
            yield Likelihood(order, packed.counts, chosen, spread)

    def logprobs(
        self, pairs: Sequence[Pair], *, temperature: float = 1.0, micro_tokens: int = 32768
    ) -> list[list[float]]:
        """The log-probability of each completion token of each sequence, without gradients."""
        import torch

        found: dict[int, list[float]] = {}
        with torch.no_grad():
            for start in range(0, len(pairs), MAX_PACKED):
                some = pairs[start : start + MAX_PACKED]
                for part in self.likelihood(some, temperature=temperature, micro_tokens=micro_tokens):
                    for index, values in zip(part.order, part.logprobs.cpu().split(list(part.counts)), strict=True):
                        found[start + index] = values.tolist()
        return [found[index] for index in range(len(pairs))]

    # ---------------------------------------------------------------- memory

    def release(self) -> None:
        """Frees the decoders, and what torch keeps of the device for other allocations of this process."""
        import torch

        for decoder in self._decoders.values():
            decoder.close()
        self._decoders.clear()
        if torch.cuda.is_initialized():
            gc.collect()
            torch.cuda.empty_cache()

    # ---------------------------------------------------------------- weights

    def trainable_parameters(self) -> list[Any]:
        """All weights, or the adapter's."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def state(self) -> dict[str, Any]:
        """The trainable weights by name, on the CPU."""
        named = self.model.named_parameters()
        return {name: one.detach().to("cpu", copy=True) for name, one in named if one.requires_grad}

    def load(self, state: dict[str, Any]) -> None:
        """Copies weights in place, so that captured graphs stay valid. Raises BadInput for other names or shapes."""
        own = {name: one.data for name, one in self.model.named_parameters() if one.requires_grad}
        wrong = [name for name in own.keys() | state.keys() if name not in own or name not in state]
        wrong += [name for name in own.keys() & state.keys() if own[name].shape != state[name].shape]
        if wrong:
            raise BadInput(f"the weights are another model's: {', '.join(sorted(wrong)[:3])}")
        for name, value in state.items():
            own[name].copy_(value)

    def save(self, folder: Path) -> None:
        """Writes the model, or its adapter, in transformers' form."""
        self.model.save_pretrained(str(folder))

    def _logits(self, states: Tensor) -> Tensor:
        """The logits in float32, from a product in the head's own type: bfloat16 has a spacing of 0.06 at 10, by which
        sampling and scoring would differ."""
        logits: Tensor = self._head(states.to(self._head.weight.dtype)).float()
        return logits

    def _precision(self, cached: bool = True) -> AbstractContextManager[Any]:
        """Autocast to bfloat16 on CUDA. cached: keep cast weights during the block, not allowed in captured graphs."""
        import torch

        on = self.device.startswith(TORCH_GPU)
        kind = TORCH_GPU if on else "cpu"
        products: AbstractContextManager[Any] = torch.autocast(kind, torch.bfloat16, enabled=on, cache_enabled=cached)
        return products


def _check(config: Any) -> None:
    """Raises BadInput for architectures that decode.py and packing.py do not support."""
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    if getattr(config, "final_logit_softcapping", None) or kinds:
        what = f"layers of kind {', '.join(sorted(kinds))}" if kinds else "a soft cap on their logits"
        raise BadInput(f"models with {what} are not supported", hint="train it with TRL, or take another model")


def with_lora(model: Any, rank: int) -> Any:
    """The model with a LoRA adapter on every linear layer but the head (alpha twice the rank), all else frozen."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")
    return get_peft_model(model, config)
