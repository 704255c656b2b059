"""Sampling from a transformers causal model with static shapes, one captured graph a shape on CUDA (docs/rl.md).

Every tensor of a step keeps its address: keys and values of a fixed length, the column that is written next, and the
mask of what may be seen. So one decode step can be captured as a CUDA graph once and replayed for each token; the
weights are read in place, and an optimizer that changes them in place needs no new capture.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

LOOK = 32
"""Tokens between two looks at whether every row has ended: a look waits for the device."""
WARM = 2
"""Steps before a capture: libraries choose and load their kernels in them."""
ROUND = 64
"""Prompts are padded to a multiple of this, and so is the cache, so that batches share shapes."""


class _Cache:
    """Keys and values as transformers' attention asks for them: update() stores, and returns what is attended to.

    While `filling`, each prompt's keys and values are stored `repeat` times, for its samples, and attention sees the
    prompt alone; then each token's are written at column `at`.
    """

    def __init__(self, rows: int, length: int, device: str) -> None:
        import torch

        self.rows, self.length = rows, length
        self.kept: dict[int, tuple[Tensor, Tensor]] = {}
        self.at = torch.zeros(1, dtype=torch.long, device=device)
        self.filling, self.repeat = True, 1

    def update(self, key: Tensor, value: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """rows x heads x tokens x size each. The cache has the values' dtype: autocast leaves keys in float32."""
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
        """Not asked for in earnest: masks and positions are given."""
        return 0


class Decoder:
    """The state of one shape: `rows` sequences of up to `width` prompt tokens and `new` sampled ones."""

    def __init__(self, network: Any, rows: int, width: int, new: int, *, end: Sequence[int], pad: int) -> None:
        import torch

        self.network, self.rows, self.width, self.new, self.pad = network, rows, width, new, pad
        self.device = network.device
        length = -(-(width + new) // ROUND) * ROUND  # a mask's row is read in whole vectors
        self.cache = _Cache(rows, length, self.device)
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
        """Fill `tokens` and `logprobs`, rows x new: `samples` rows for each prompt, one after the other."""
        self._prefill(prompts, samples, temperature)
        if self.graph is None and self.network.graphs and self.new > WARM:
            self._capture()
            self._prefill(prompts, samples, temperature)
        for number in range(self.new):
            if temperature > 0:
                self.noise.exponential_(generator=generator)
            if self.graph:
                self.graph.replay()
            else:
                self._step()
            if number % LOOK == LOOK - 1 and bool(self.done.all()):
                break

    def _prefill(self, prompts: Sequence[Sequence[int]], samples: int, temperature: float) -> None:
        """Run the prompts, padded on the left, and leave every sequence ready for its first token."""
        import torch

        tokens = torch.full((len(prompts), self.width), self.pad, dtype=torch.long)
        seen = torch.zeros(len(prompts), self.width, dtype=torch.bool)
        for row, prompt in enumerate(prompts):
            tokens[row, self.width - len(prompt) :] = torch.tensor(prompt)
            seen[row, self.width - len(prompt) :] = True
        tokens, seen = tokens.to(self.device), seen.to(self.device)
        positions = (seen.cumsum(1) - 1).clamp(min=0)
        causal = torch.ones(self.width, self.width, dtype=torch.bool, device=self.device).tril()
        alone = torch.eye(self.width, dtype=torch.bool, device=self.device)  # padding sees itself: no empty softmax
        mask = (seen[:, None, :] & causal | alone)[:, None]
        self.cache.filling, self.cache.repeat = True, samples
        logits = self.network.last_logits(tokens, mask, positions, self.cache)
        self.cache.filling = False
        if self.logits.shape[1] != logits.shape[1]:
            self.logits = logits.new_zeros(self.rows, logits.shape[1])
            self.noise = self.logits.clone()
        self.noise.fill_(1.0)  # which at temperature 0 it stays: the likeliest token
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
        """One token of each row from the logits, and the logits after it. Only tensors that stay where they are."""
        self._pick()
        self.logits.copy_(
            self.network.last_logits(self.token[:, None], self.mask[:, None, None], self.position[:, None], self.cache)
        )

    def _pick(self) -> None:
        """Sample a token of each row: the argmax of p / Exp(1) has the distribution p (the Gumbel trick)."""
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
        """Capture `_step`. Warming up moves the state on: the prompts are run again after it."""
        import torch

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM):
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
