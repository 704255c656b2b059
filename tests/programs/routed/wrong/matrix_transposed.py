"""Each matrix is read along the other side."""

HIP = r''''''


def forward(self, x, chosen, gates, weight):
    made = (weight.transpose(1, 2)[chosen] @ x[:, None, :, None]).squeeze(-1)
    return (made * gates[..., None]).sum(1)
