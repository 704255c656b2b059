"""A gated layer of 8 of 64 experts of 2048 x 512 for each of 32 tokens, the experts' weights picked by token."""

import torch
from torch import nn

EXPERTS, TOP, WIDTH, HIDDEN = 64, 8, 2048, 512
DTYPE = torch.bfloat16


class Model(nn.Module):
    def forward(self, x, chosen, gates, up, down):
        hidden = (up[chosen] @ x[:, None, :, None]).squeeze(-1)
        gate, value = hidden.chunk(2, dim=-1)
        made = (down[chosen] @ (nn.functional.silu(gate) * value)[..., None]).squeeze(-1)
        return (made * gates[..., None]).sum(dim=1)


def make(tokens):
    chosen = torch.rand(tokens, EXPERTS).topk(TOP).indices
    return [
        torch.randn(tokens, WIDTH, dtype=DTYPE),
        chosen,
        torch.rand(tokens, TOP).softmax(-1).to(DTYPE),
        torch.randn(EXPERTS, 2 * HIDDEN, WIDTH, dtype=DTYPE) * 0.02,
        torch.randn(EXPERTS, WIDTH, HIDDEN, dtype=DTYPE) * 0.02,
    ]


def get_inputs():
    return make(32)


def get_input_groups():
    return [make(4), make(8)]
