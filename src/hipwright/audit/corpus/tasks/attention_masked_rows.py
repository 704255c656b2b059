"""Attention with grouped heads and a mask that leaves two rows without a key."""

import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
def get_inputs():
    m = torch.rand(2, 1, 20, 30) > 0.4
    m[0, 0, 3] = False
    m[1, 0, 7] = False
    return [torch.randn(2, 8, 20, 32), torch.randn(2, 2, 30, 32), torch.randn(2, 2, 30, 32), m]


def get_init_inputs():
    return []
