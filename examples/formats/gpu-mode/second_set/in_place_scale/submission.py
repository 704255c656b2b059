#!POPCORN leaderboard in_place_scale
import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    x, out = data
    return torch.mul(x, 3, out=out)
