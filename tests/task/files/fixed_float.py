import numpy as np
import torch
import torch.nn as nn


class Model(nn.Module):
    """Leaves torch: no float64 for it, and no run on shapes alone."""

    def forward(self, x):
        values = x.numpy()
        if values.dtype != np.float32:
            raise TypeError("float32 only")
        return torch.from_numpy(np.sort(values, axis=-1))


def get_inputs():
    return [torch.randn(6, 30)]
