"""Running sums and products along one dimension (inclusive scans).

Mappings: `rows`, the elements are contiguous and a block scans a row tile by tile. `chunks`, the same with a block for
every tile, which waits for the totals of the tiles before it: memory is read once, and the order of additions is fixed
(unlike decoupled look-back, Merrill & Garland 2016, whose order depends on timing). `columns`, neighbouring threads
scan neighbouring columns serially. `tiles`, columns divided into tiles (columns.py). Pointwise values of the scan, and
of what lies beside it, are stored by the same kernel.
"""

from __future__ import annotations

from hipwright.engine.templates.base import Body, EmittedKernel, fused
from hipwright.engine.templates.pointwise.elementwise import relaxed_bounds
from hipwright.engine.templates.scan.columns import add_tile_memory, serial_columns, tiled_columns
from hipwright.engine.templates.scan.layout import ScanLayout
from hipwright.engine.templates.scan.rows import RowScan
from hipwright.engine.templates.scan.scope import ScanScope

NAMES = (
    "row r start carry value k v base count col column line vector vectors width step tile tiles ticket total before "
    "flip"
)


def scan(body: Body, layout: ScanLayout) -> EmittedKernel:
    """The kernel of a scan, with the computation of its input and the pointwise values after it."""
    s, emit = ScanScope(body, layout), body.emit
    emit.taken |= {*NAMES.split(), *(f"i{k}" for k in range(8))}
    body.knobs |= {layout.threads, layout.vec, layout.items}
    emit.used |= {s.operator, "Tile", "valid_elements"}
    emit.count([s.member.value, *s.following])
    rows = None if s.columns else RowScan(s)
    if rows is not None:
        grid = rows.write()
    else:
        grid = tiled_columns(s) if layout.mapping == "tiles" else serial_columns(s)
    bounds = relaxed_bounds(body, layout.threads) if rows is not None and rows.narrow else layout.threads
    kernel = body.finish(grid, layout.threads, fused(s.group), bounds)
    if rows is not None and rows.cooperative:
        rows.add_memory(kernel)
    elif layout.mapping == "tiles":
        add_tile_memory(s, kernel)
    return kernel
