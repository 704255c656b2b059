"""Mamba-2 2.7B state space layer in chunks of 256 (the dual form), 1 x 2048 tokens: 80 heads of 64, state 128."""

import torch

BATCH, TOKENS, HEADS, HEAD, STATE, CHUNK = 1, 2048, 80, 64, 128, 256


class Model(torch.nn.Module):
    def forward(self, x, decay, write, read):
        batch, steps, heads, width = x.shape
        chunks = steps // CHUNK
        x = x.view(batch, chunks, CHUNK, heads, width)
        write, read = (one.view(batch, chunks, CHUNK, -1) for one in (write, read))
        sums = decay.view(batch, chunks, CHUNK, heads).permute(0, 3, 1, 2).cumsum(dim=-1)
        gaps = sums[..., :, None] - sums[..., None, :]
        causal = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=x.device).tril()
        inside = torch.exp(gaps.masked_fill(~causal, float("-inf")))
        scores = torch.einsum("bcln,bcsn->bcls", read, write)
        near = torch.einsum("bhcls,bcls,bcshp->bclhp", inside, scores, x)
        rest = torch.exp(sums[..., -1:] - sums)
        states = torch.einsum("bcln,bhcl,bclhp->bchpn", write, rest, x)
        total = torch.nn.functional.pad(sums[..., -1], (1, 0)).cumsum(dim=-1)
        between = total[..., :-1, None] - total[..., None, 1:]
        earlier = torch.ones(chunks, chunks, dtype=torch.bool, device=x.device).tril(-1)
        between = torch.exp(between.masked_fill(~earlier, float("-inf")))
        entering = torch.einsum("bhzc,bchpn->bzhpn", between, states)
        far = torch.einsum("bcln,bchpn,bhcl->bclhp", read, entering, torch.exp(sums))
        return (near + far).reshape(batch, steps, heads, width)


def get_inputs():
    return [
        torch.randn(BATCH, TOKENS, HEADS, HEAD),
        -torch.rand(BATCH, TOKENS, HEADS) * 0.1,
        torch.randn(BATCH, TOKENS, STATE) * 0.1,
        torch.randn(BATCH, TOKENS, STATE) * 0.1,
    ]
