"""Each row has the expert after its own."""

HIP = r''''''


def forward(self, x, chosen, gates, weight):
    made = (weight[(chosen + 1) % weight.shape[0]] @ x[:, None, :, None]).squeeze(-1)
    return (made * gates[..., None]).sum(1)
