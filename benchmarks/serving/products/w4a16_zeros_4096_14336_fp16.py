"""Weights of 4096 x 14336 numbers of 4 bits with a scale and a packed zero for each 128; 32 rows, then a bias."""

import torch
from torch import nn

N, K, GROUP = 4096, 14336, 128


def unpack(words):
    shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=words.device)
    return ((words[:, :, None] >> shifts) & 15).view(words.shape[0], -1)


class Model(nn.Module):
    def forward(self, x, words, zeros, scales, bias):
        numbers = unpack(words).view(words.shape[0], -1, GROUP)
        weight = (numbers - unpack(zeros)[:, :, None]).to(x.dtype) * scales[:, :, None]
        return nn.functional.linear(x, weight.view(words.shape[0], -1), bias)


def make(rows):
    return [
        torch.randn(rows, K).half(),
        torch.randint(-(2**31), 2**31 - 1, (N, K // 8), dtype=torch.int32),
        torch.randint(-(2**31), 2**31 - 1, (N, K // GROUP // 8), dtype=torch.int32),
        (torch.rand(N, K // GROUP) * 0.02).half(),
        torch.randn(N).half(),
    ]


def get_inputs():
    return make(32)


def get_input_groups():
    return [make(4), make(128)]
