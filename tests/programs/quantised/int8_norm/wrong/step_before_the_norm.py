"""The largest size of the row before its norm."""

HIP = r""""""


def forward(self, x):
    x = x.float()
    step = x.abs().amax(dim=-1, keepdim=True).clamp(min=1e-10) / 127.0
    x = x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-6) * self.weight
    return torch.round(x / step).clamp(-128, 127).to(torch.int8), step
