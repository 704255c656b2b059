"""Generalised intersection over union of boxes (Rezatofighi et al. 2019): a hull that equals the union."""

import torch


class Model(torch.nn.Module):
    def forward(self, a, b):
        xa1, ya1, xa2, ya2 = a.unbind(-1)
        xb1, yb1, xb2, yb2 = b.unbind(-1)
        iw = (torch.minimum(xa2, xb2) - torch.maximum(xa1, xb1)).clamp(min=0)
        ih = (torch.minimum(ya2, yb2) - torch.maximum(ya1, yb1)).clamp(min=0)
        inter = iw * ih
        union = (xa2 - xa1) * (ya2 - ya1) + (xb2 - xb1) * (yb2 - yb1) - inter
        hull = (torch.maximum(xa2, xb2) - torch.minimum(xa1, xb1)) * (torch.maximum(ya2, yb2) - torch.minimum(ya1, yb1))
        return 1 - inter / (union + 1e-7) + (hull - union) / (hull + 1e-7)


def get_inputs():
    return [torch.rand(64, 4).cumsum(-1), torch.rand(64, 4).cumsum(-1)]
