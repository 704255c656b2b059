"""Results stay in the order of the experts."""

HIP = r''''''


def forward(self, x, chosen, gates, weight):
    made = (weight[chosen] @ x[:, None, :, None]).squeeze(-1)
    return (made * gates[..., None]).sum(1)[chosen[:, 0].argsort()]
