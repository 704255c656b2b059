"""A gated layer of 8 of 32 experts of 1024 x 256 for each of 16 tokens, the experts' weights picked by token."""

import torch
from torch import nn

TOP = 8
DTYPE = torch.bfloat16


class Model(nn.Module):
    def forward(self, x, chosen, gates, up, down):
        hidden = (up[chosen] @ x[:, None, :, None]).squeeze(-1)
        gate, value = hidden.chunk(2, dim=-1)
        made = (down[chosen] @ (nn.functional.silu(gate) * value)[..., None]).squeeze(-1)
        return (made * gates[..., None]).sum(dim=1)


def make(tokens, experts, width, hidden):
    chosen = torch.rand(tokens, experts).topk(TOP).indices
    return [
        torch.randn(tokens, width, dtype=DTYPE),
        chosen,
        torch.rand(tokens, TOP).softmax(-1).to(DTYPE),
        torch.randn(experts, 2 * hidden, width, dtype=DTYPE) * 0.02,
        torch.randn(experts, width, hidden, dtype=DTYPE) * 0.02,
    ]


def get_inputs():
    return make(16, 32, 1024, 256)


def get_input_groups():
    return [make(40, 9, 128, 64), make(3, 16, 64, 32)]
