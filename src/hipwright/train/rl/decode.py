"""Sampling from a transformers causal model with static shapes, with a CUDA graph for each shape (docs/rl.md).

Every tensor of a decode step keeps its address: keys and values of a fixed length, the index of the next column, and
the attention mask. One step is captured as a CUDA graph and replayed for each token. The graph reads the weights in
place, so updates in place need no new capture.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

END_CHECK_TOKENS = 32
"""Tokens between two checks whether every row has ended; a check synchronises with the device."""
WARMUP_STEPS = 2
"""Steps before a capture, in which libraries choose and load their kernels."""
PAD_MULTIPLE = 64
"""Prompts and the cache are padded to a multiple of this, so that batches share shapes."""


class _StaticCache:
    """Keys and values of a fixed length, with the interface of transformers' caches.

    While `filling`, each prompt's keys and values are stored `repeat` times, for its samples, and the prompt alone is
    returned for attention; afterwards each token's are stored at column `at`.
    """

    def __init__(self, rows: int, length: int, device: str) -> None:
        import torch

        self.rows, self.length = rows, length
        self.kept: dict[int, tuple[Tensor, Tensor]] = {}
        self.at = torch.zeros(1, dtype=torch.long, device=device)
        self.filling, self.repeat = True, 1

    def update(self, key: Tensor, value: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Stores key and value, rows x heads x tokens x size each; returns those to attend to.

        The cache has the values' dtype, since autocast leaves keys in float32.
        """
        key = key.to(value.dtype)
        if layer not in self.kept:
            shape = (self.rows, key.shape[1], self.length)
            self.kept[layer] = (key.new_zeros(*shape, key.shape[3]), value.new_zeros(*shape, value.shape[3]))
        keys, values = self.kept[layer]
        if self.filling:
            keys[:, :, : key.shape[2]] = key.repeat_interleave(self.repeat, 0)
            values[:, :, : value.shape[2]] = value.repeat_interleave(self.repeat, 0)
            return key, value
        keys.index_copy_(2, self.at, key)
        values.index_copy_(2, self.at, value)
        return keys, values

    def get_seq_length(self, *_: Any) -> int:
        """0; masks and positions are passed to the model, so the length is not used."""
        return 0


def cache_length(width: int, new: int) -> int:
    """Columns of the cache for prompts of `width` tokens: attention kernels read the mask in whole vectors."""
    return -(-(width + new) // PAD_MULTIPLE) * PAD_MULTIPLE


class Decoder:
    """Samples with one shape: `rows` sequences of up to `width` prompt tokens and `new` sampled tokens."""

    def __init__(self, network: Any, rows: int, width: int, new: int, *, end: Sequence[int], pad: int) -> None:
        import torch

        self.network, self.rows, self.width, self.new, self.pad = network, rows, width, new, pad
        self.device = network.device
        length = cache_length(width, new)
        self.cache = _StaticCache(rows, length, self.device)
        self.end = torch.tensor(sorted(end), device=self.device)

        def zeros(*shape: int, dtype: torch.dtype = torch.long) -> Tensor:
            return torch.zeros(*shape, dtype=dtype, device=self.device)

        self.mask = zeros(rows, length, dtype=torch.bool)
        self.token, self.position, self.column = zeros(rows), zeros(rows), zeros(1)
        self.done = zeros(rows, dtype=torch.bool)
        self.tokens, self.logprobs = zeros(rows, new), zeros(rows, new, dtype=torch.float32)
        self.temperature = zeros(1, dtype=torch.float32)
        self.logits: Tensor = zeros(rows, 1)
        self.noise: Tensor = zeros(rows, 1)
        self.graph: Any = None

    def __call__(self, prompts: Sequence[Sequence[int]], samples: int, temperature: float, generator: Any) -> None:
        """Fills `tokens` and `logprobs`, rows x new: `samples` consecutive rows for each prompt."""
        self._prefill(prompts, samples, temperature)
        if self.graph is None and self.network.graphs and self.new > WARMUP_STEPS:
            self._capture()
            self._prefill(prompts, samples, temperature)
        for number in range(self.new):
            if temperature > 0:
                self.noise.exponential_(generator=generator)
            if self.graph:
                self.graph.replay()
            else:
                self._step()
            if number % END_CHECK_TOKENS == END_CHECK_TOKENS - 1 and bool(self.done.all()):
                break

    def close(self) -> None:
        """Frees keys, values and graph. The decoder and its policy refer to each other, so that they would remain until
        the next garbage collection."""
        self.cache.kept.clear()
        self.graph = None

    def _prefill(self, prompts: Sequence[Sequence[int]], samples: int, temperature: float) -> None:
        """Runs the prompts, padded on the left, and sets the state before the first sampled token."""
        import torch

        tokens = torch.full((len(prompts), self.width), self.pad, dtype=torch.long)
        seen = torch.zeros(len(prompts), self.width, dtype=torch.bool)
        for row, prompt in enumerate(prompts):
            tokens[row, self.width - len(prompt) :] = torch.tensor(prompt)
            seen[row, self.width - len(prompt) :] = True
        tokens, seen = tokens.to(self.device), seen.to(self.device)
        positions = (seen.cumsum(1) - 1).clamp(min=0)
        causal = torch.ones(self.width, self.width, dtype=torch.bool, device=self.device).tril()
        alone = torch.eye(
            self.width, dtype=torch.bool, device=self.device
        )  # padding attends to itself, so that no softmax is empty
        mask = (seen[:, None, :] & causal | alone)[:, None]
        self.cache.filling, self.cache.repeat = True, samples
        logits = self.network.last_logits(tokens, mask, positions, self.cache)
        self.cache.filling = False
        if self.logits.shape[1] != logits.shape[1]:
            self.logits = logits.new_zeros(self.rows, logits.shape[1])
            self.noise = self.logits.clone()
        self.noise.fill_(1.0)  # it stays 1 at temperature 0, which gives the likeliest token
        self.temperature.fill_(temperature or 1.0)
        self.logits.copy_(logits.repeat_interleave(samples, 0))
        self.mask.zero_()
        self.mask[:, : self.width] = seen.repeat_interleave(samples, 0)
        self.position.copy_((seen.sum(1) - 1).repeat_interleave(samples))
        self.cache.at.fill_(self.width - 1)
        for state in (self.column, self.done, self.tokens, self.logprobs):
            state.zero_()
        self.tokens.fill_(self.pad)

    def _step(self) -> None:
        """Samples a token of each row from the logits and computes the next logits, in place."""
        self._pick()
        self.logits.copy_(
            self.network.last_logits(self.token[:, None], self.mask[:, None, None], self.position[:, None], self.cache)
        )

    def _pick(self) -> None:
        """Samples a token of each row: the argmax of p / Exp(1) has the distribution p (the Gumbel trick)."""
        logprobs = (self.logits / self.temperature).log_softmax(-1)
        token = (logprobs - self.noise.log()).argmax(-1)
        chosen = logprobs.gather(1, token[:, None])
        token = token.masked_fill(self.done, self.pad)
        self.tokens.index_copy_(1, self.column, token[:, None])
        self.logprobs.index_copy_(1, self.column, chosen)
        self.done |= (token[:, None] == self.end).any(-1)
        self.token.copy_(token)
        self.column += 1
        self.position += 1
        self.cache.at += 1
        self.mask.index_fill_(1, self.cache.at, True)

    def _capture(self) -> None:
        """Captures `_step` as a CUDA graph. It changes the state, so the prompts are run again afterwards."""
        import torch

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARMUP_STEPS):
                self._step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self._step()
        except RuntimeError as error:
            warnings.warn(f"the decode step could not be captured, sampling will be slower: {error}", stacklevel=2)
            self.graph = False
        else:
            self.graph = graph
