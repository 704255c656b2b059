"""Neighbouring groups are interleaved: a scale belongs to every n-th number."""

HIP = r''''''


def forward(self, x, words, scales):
    shifts = torch.arange(0, 32, 4, dtype=torch.int32)
    numbers = ((words[:, :, None] >> shifts) & 15).reshape(words.shape[0], scales.shape[1], -1)
    weight = ((numbers - 8).reshape(words.shape[0], -1, scales.shape[1]).to(torch.float16) * scales[:, None, :]).reshape(words.shape[0], -1)
    return x @ weight.t()
