"""The registry of policies. A new policy is one file here and its line in POLICIES."""

from __future__ import annotations

from hipwright.errors import BadInput
from hipwright.search.interfaces import SearchPolicy
from hipwright.search.policies.beam import Beam
from hipwright.search.policies.best_of_n import BestOfN
from hipwright.search.policies.embedding_net import EmbeddingNet
from hipwright.search.policies.epsilon_heap import EpsilonHeap
from hipwright.search.policies.feature_search import FeatureSearch
from hipwright.search.policies.gradient_elites import GradientElites
from hipwright.search.policies.islands import Islands
from hipwright.search.policies.learned_planner import LearnedPlanner
from hipwright.search.policies.one_plus_one import OnePlusOne
from hipwright.search.policies.optimisers.optuna_samplers import OptunaNsga, OptunaTpe
from hipwright.search.policies.optimisers.pyribs_elites import PyribsElites
from hipwright.search.policies.pattern import PatternSearch
from hipwright.search.policies.schedule_evolution import ScheduleEvolution
from hipwright.search.policies.strategy_tree import StrategyTree
from hipwright.search.policies.ucb import Ucb
from hipwright.search.policies.uct import Uct
from hipwright.search.policies.universal import UniversalEvolution, UniversalGreedy, UniversalUct
from hipwright.search.policies.value_memory import ValueMemory
from hipwright.search.policies.world_model import WorldModelTree

POLICIES: dict[str, type[SearchPolicy]] = {
    "best_of_n": BestOfN,
    "islands": Islands,
    "one_plus_one": OnePlusOne,
    "pattern": PatternSearch,
    "beam": Beam,
    "uct": Uct,
    "ucb": Ucb,
    "strategy_tree": StrategyTree,
    "epsilon_heap": EpsilonHeap,
    "world_model": WorldModelTree,
    "value_memory": ValueMemory,
    "embedding_net": EmbeddingNet,
    "schedule_evolution": ScheduleEvolution,
    "gradient_elites": GradientElites,
    "universal_greedy": UniversalGreedy,
    "universal_uct": UniversalUct,
    "universal_evolution": UniversalEvolution,
    "learned_planner": LearnedPlanner,
    "feature_search": FeatureSearch,
    "optuna_tpe": OptunaTpe,
    "optuna_nsga2": OptunaNsga,
    "pyribs": PyribsElites,
}


def policy(name: str) -> SearchPolicy:
    """Returns a policy by name. BadInput for an unknown one."""
    if name not in POLICIES:
        raise BadInput(f"unknown policy {name!r}", hint=f"policies: {', '.join(POLICIES)}")
    return POLICIES[name]()
