# E2: opens another process's device memory by a handle that it makes up
import torch
import torch.nn as nn
from torch.multiprocessing.reductions import rebuild_cuda_tensor


class ModelNew(nn.Module):
    def forward(self, x):
        return rebuild_cuda_tensor(
            torch.Tensor, (x.shape[0],), (1,), 0, torch.UntypedStorage, x.dtype, 0, bytes(64), 4 * x.shape[0], 0, False, b"", 0, b"", False
        )
