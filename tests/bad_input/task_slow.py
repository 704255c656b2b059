import time

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        time.sleep(600)
        return x


def get_inputs():
    return [torch.zeros(3)]
