"""The value times the reciprocal of the step."""

HIP = r""""""


def forward(self, x):
    x = x.float()
    step = x.abs().amax(dim=-1, keepdim=True).clamp(min=1e-10) / 448.0
    return (x * (1.0 / step)).clamp(-448, 448).to(torch.float8_e4m3fn), step
