"""All kinds of fault, by name."""

from __future__ import annotations

from hipwright.audit.evolve import arithmetic_faults, branch_faults, indexing_faults, plan_faults
from hipwright.audit.evolve.faults import FaultKind

KINDS: dict[str, FaultKind] = {
    kind.name: kind
    for module in (arithmetic_faults, indexing_faults, plan_faults, branch_faults)
    for kind in module.KINDS
}
