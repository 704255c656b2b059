"""Kernels with the captured sizes as constants, beside those that count in run-time sizes.

The compiler then drops tails and bounds that the sizes never meet and divides by multiplication. `forward` launches the
static-shape variant where the sizes are the captured ones, and the general kernel elsewhere: shape specialisation with
a fallback, as torch.compile's static shapes, in one program.
"""

from __future__ import annotations

ENOUGH_ELEMENTS = 1 << 16
"""Elements of all the values of a graph from which on a second build pays; smaller work is a launch and no more."""
