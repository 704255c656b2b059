"""Each group's sum times its scale, in float32."""

HIP = r''''''


def forward(self, x, words, scales):
    shifts = torch.arange(0, 32, 4, dtype=torch.int32)
    numbers = ((words[:, :, None] >> shifts) & 15).reshape(words.shape[0], scales.shape[1], -1)
    weight = (numbers - 8).float()
    grouped = x.float().reshape(x.shape[0], scales.shape[1], -1)
    sums = torch.einsum("mgk,ngk->mng", grouped, weight)
    return (sums * scales.float()).sum(-1).to(torch.float16)
