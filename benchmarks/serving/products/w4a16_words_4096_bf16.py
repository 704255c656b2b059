"""Products with weights of 4096 x 4096 numbers of 4 bits, eight a word, with a scale for each 128 (W4A16)."""

import torch
from torch import nn

N, K, GROUP, SHIFTS = 4096, 4096, 128, tuple(range(0, 32, 4))


class Model(nn.Module):
    def forward(self, x, words, scales):
        shifts = torch.tensor(SHIFTS, dtype=torch.int32, device=words.device)
        numbers = (words[:, :, None] >> shifts) & 15
        weight = (numbers - 8).to(x.dtype).view(words.shape[0], -1, GROUP) * scales[:, :, None]
        return x @ weight.view(words.shape[0], -1).t()


def make(rows):
    return [
        torch.randn(rows, K).bfloat16(),
        torch.randint(-(2**31), 2**31 - 1, (N, K // 8), dtype=torch.int32),
        (torch.rand(N, K // GROUP) * 0.02).bfloat16(),
    ]


def get_inputs():
    return make(16)


def get_input_groups():
    return [make(1), make(64)]
