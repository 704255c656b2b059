#!POPCORN leaderboard shifted_sum
import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    x, shift = data
    return torch.add(x, shift).sum(dim=-1)
