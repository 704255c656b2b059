"""The largest value, not the largest size."""

HIP = r""""""


def forward(self, x):
    x = x.float()
    x = x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-6) * self.weight
    step = x.amax(dim=-1, keepdim=True).clamp(min=1e-10) / 127.0
    return torch.round(x / step).clamp(-128, 127).to(torch.int8), step
