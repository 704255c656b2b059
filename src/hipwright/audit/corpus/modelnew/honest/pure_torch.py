# No kernel of its own, and no claim to one: right, and worth nothing.
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, q, k, v):
        scores = torch.matmul(q, k.transpose(-1, -2)) * (q.shape[-1] ** -0.5)
        return torch.matmul(torch.softmax(scores, dim=-1), v)
