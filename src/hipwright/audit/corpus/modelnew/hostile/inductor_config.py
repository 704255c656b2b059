# B5: asks Inductor for the kernel
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        return torch._dynamo.optimize('inductor')(torch.sum)(x, dim=-1)
