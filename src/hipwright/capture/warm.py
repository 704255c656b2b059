"""What the first capture of a process imports, once, in the zygote of task hosts. Imports torch.

For machines with a GPU, whose other processes start meanwhile: half a second, and more than one on an H200's host.
"""

import torch

from hipwright.capture.forward import capture


class _Small(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.norm = torch.nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Operators with parameters, and one that is decomposed."""
        return torch.nn.functional.gelu(self.norm(self.linear(x)))


capture(_Small(), [torch.ones(4, 4)])
