"""The inverse of the step is returned."""

HIP = r""""""


def forward(self, x):
    x = x.float()
    step = x.abs().amax(dim=-1, keepdim=True).clamp(min=1e-10) / 448.0
    return (x / step).clamp(-448, 448).to(torch.float8_e4m3fn), 1.0 / step
