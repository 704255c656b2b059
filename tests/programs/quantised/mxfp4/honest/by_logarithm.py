"""The exponent by a logarithm, codes as floats."""

HIP = r""""""


def forward(self, x):
    x = x.float().view(x.shape[0], x.shape[1] // 32, 32)
    above = torch.floor(torch.log2(x.abs().amax(dim=-1, keepdim=True).clamp(min=2.0**-126)))
    shared = (above - 2.0).clamp(-127, 127)
    size = (x.abs() * torch.exp2(-shared)).clamp(max=6.0)
    binade = (size >= 2.0).float() + (size >= 4.0).float()
    codes = torch.round(size * torch.exp2(1.0 - binade)) + 2.0 * binade + (x < 0).float() * 8.0
    packed = (codes[:, :, ::2] + codes[:, :, 1::2] * 16.0).to(torch.uint8)
    return packed.reshape(x.shape[0], x.shape[1] * 16), (shared.squeeze(-1) + 127.0).to(torch.uint8)
