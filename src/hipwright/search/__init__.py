"""What to try next: one loop, many small policies (docs/search.md)."""

from hipwright.search.api import SearchResult, new_run, resume, run
from hipwright.search.interfaces import Ask, Candidate, Declined, EvaluatorLike, Policy, ProposalSource
from hipwright.search.operators import OPERATORS
from hipwright.search.policies import POLICIES, policy
from hipwright.search.source import EngineSource
from hipwright.search.view import Trial, View

__all__ = [
    "OPERATORS",
    "POLICIES",
    "Ask",
    "Candidate",
    "Declined",
    "EngineSource",
    "EvaluatorLike",
    "Policy",
    "ProposalSource",
    "SearchResult",
    "Trial",
    "View",
    "new_run",
    "policy",
    "resume",
    "run",
]
