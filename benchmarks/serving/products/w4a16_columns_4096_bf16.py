"""Weights of 4 bits packed along the rows of a 4096 x 4096 matrix, with scales and zeros by 128 rows; a residual."""

import torch
from torch import nn

K, N, GROUP = 4096, 4096, 128


class Model(nn.Module):
    def forward(self, x, words, zeros, scales, residual):
        shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=words.device)
        numbers = ((words[:, None, :] >> shifts[None, :, None]) & 15).reshape(-1, words.shape[1])
        weight = numbers.to(x.dtype) - zeros.repeat_interleave(GROUP, dim=0)
        return residual + x @ (weight * scales.repeat_interleave(GROUP, dim=0))


def make(rows):
    return [
        torch.randn(rows, K).bfloat16(),
        torch.randint(-(2**31), 2**31 - 1, (K // 8, N), dtype=torch.int32),
        torch.randint(0, 16, (K // GROUP, N)).bfloat16(),
        (torch.rand(K // GROUP, N) * 0.02).bfloat16(),
        torch.randn(rows, N).bfloat16(),
    ]


def get_inputs():
    return make(16)


def get_input_groups():
    return [make(1), make(48)]
