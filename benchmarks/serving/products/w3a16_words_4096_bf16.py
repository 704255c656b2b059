"""Products with weights of 4096 x 4096 numbers of 3 bits that cross words of 32, with a scale for each 128 (W3A16)."""

import torch
from torch import nn

N, K, GROUP, BITS = 4096, 4096, 128, 3


def unpack(words, count):
    first = torch.arange(count, device=words.device) * BITS
    low = words[:, first // 32].long() & 0xFFFFFFFF
    high = words[:, (first + BITS - 1) // 32].long() & 0xFFFFFFFF
    return ((low | high << 32) >> (first % 32)) & (2**BITS - 1)


class Model(nn.Module):
    def forward(self, x, words, scales):
        numbers = (unpack(words, x.shape[1]) - 2 ** (BITS - 1)).to(x.dtype)
        weight = numbers.view(words.shape[0], -1, GROUP) * scales[:, :, None]
        return x @ weight.view(words.shape[0], -1).t()


def make(rows):
    return [
        torch.randn(rows, K).bfloat16(),
        torch.randint(-(2**31), 2**31 - 1, (N, K * BITS // 32), dtype=torch.int32),
        (torch.rand(N, K // GROUP) * 0.02).bfloat16(),
    ]


def get_inputs():
    return make(16)


def get_input_groups():
    return [make(1), make(64)]
