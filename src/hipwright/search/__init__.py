"""The search: one loop, interchangeable policies, operators on choices (docs/search.md)."""

from hipwright.search.api import SearchResult, new_run, resume, run
from hipwright.search.interfaces import (
    EvaluatorLike,
    NoProposal,
    Proposal,
    ProposalRequest,
    ProposalSource,
    SearchPolicy,
)
from hipwright.search.operators import OPERATORS
from hipwright.search.policies import POLICIES, policy
from hipwright.search.source import EngineSource
from hipwright.search.view import SearchView, Trial

__all__ = [
    "OPERATORS",
    "POLICIES",
    "EngineSource",
    "EvaluatorLike",
    "NoProposal",
    "Proposal",
    "ProposalRequest",
    "ProposalSource",
    "SearchPolicy",
    "SearchResult",
    "SearchView",
    "Trial",
    "new_run",
    "policy",
    "resume",
    "run",
]
