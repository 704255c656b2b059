"""The policies by name. A new one is one file here and one line in POLICIES."""

from __future__ import annotations

from hipwright.errors import BadInput
from hipwright.search.interfaces import Policy
from hipwright.search.policies.best_of_n import BestOfN
from hipwright.search.policies.islands import Islands

POLICIES: dict[str, type[Policy]] = {
    "best_of_n": BestOfN,
    "islands": Islands,
}


def policy(name: str) -> Policy:
    """The policy called `name`. BadInput for one that does not exist."""
    if name not in POLICIES:
        raise BadInput(f"unknown policy {name!r}", hint=f"policies: {', '.join(POLICIES)}")
    return POLICIES[name]()
