"""The step leaves out the first element of a row of several."""

HIP = r""""""


def forward(self, x):
    x = x.float()
    step = x[:, min(1, x.shape[1] - 1) :].abs().amax(dim=-1, keepdim=True).clamp(min=1e-10) / 448.0
    return (x / step).clamp(-448, 448).to(torch.float8_e4m3fn), step
