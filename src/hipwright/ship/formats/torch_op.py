"""`torch-op`: an importable package with a torch operator (`hipwright.ship.torch_op`)."""

from __future__ import annotations

from hipwright.ship.subject import ShipFormat
from hipwright.ship.torch_op import package

FORMAT = ShipFormat("torch-op", "a package with a torch operator", package)
