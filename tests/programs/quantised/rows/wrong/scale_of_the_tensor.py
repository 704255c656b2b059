"""One step for all rows."""

HIP = r""""""


def forward(self, x):
    x = x.float()
    step = x.abs().amax().expand(x.shape[0], 1).contiguous().clamp(min=1e-10) / 448.0
    return (x / step).clamp(-448, 448).to(torch.float8_e4m3fn), step
