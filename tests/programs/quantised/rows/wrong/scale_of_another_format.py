"""The step of e4m3fnuz, whose largest number is 240."""

HIP = r""""""


def forward(self, x):
    x = x.float()
    step = x.abs().amax(dim=-1, keepdim=True).clamp(min=1e-10) / 240.0
    return (x / step).clamp(-448, 448).to(torch.float8_e4m3fn), step
