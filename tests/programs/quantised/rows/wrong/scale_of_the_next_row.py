"""Each row is divided by the step of its neighbour."""

HIP = r""""""


def forward(self, x):
    x = x.float()
    step = x.abs().amax(dim=-1, keepdim=True).clamp(min=1e-10) / 448.0
    return (x / step.roll(1, 0)).clamp(-448, 448).to(torch.float8_e4m3fn), step
