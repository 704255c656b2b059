import torch


class Model(torch.nn.Module):
    def forward(self, logits, mask):
        p = torch.sigmoid(logits)
        overlap = (p * mask).sum(dim=(1, 2))
        return 1.0 - (2.0 * overlap + 1.0) / (p.sum(dim=(1, 2)) + mask.sum(dim=(1, 2)) + 1.0)


def get_inputs():
    return [torch.randn(24, 2048, 2048), torch.rand(24, 2048, 2048)]
