"""Every expert's product, of which the chosen are picked."""

HIP = r''''''


def forward(self, x, chosen, gates, weight):
    made = torch.einsum('enk,tk->ten', weight, x).gather(1, chosen[..., None].expand(-1, -1, weight.shape[1]))
    return (made * gates[..., None]).sum(1)
