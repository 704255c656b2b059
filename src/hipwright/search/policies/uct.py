"""UCT (Kocsis and Szepesvari 2006) over the tree of programs, with progressive widening (Coulom 2007).

A node is a verified program, its children were made from it; the root stands for random programs. A walk starts at the
root. A node varied fewer than WIDEN * sqrt(visits) times is varied again; else the walk descends to the child with the
largest

    mean + C * sqrt(ln(parent's visits) / visits)        over the rewards of the child's whole subtree

The reward, in [0, 1], is the best time so far over the program's time, 0 for failures and duplicates. Walks of one
round count as visits without a reward (virtual loss), so that they spread.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from hipwright.records import Decision, Evaluation, Expansion
from hipwright.search.policies.common import (
    beats_best,
    breed,
    by_program,
    comparison,
    expansion,
    opening,
    parent_of,
    ranked,
    rejected,
    time_of,
)
from hipwright.search.view import SearchView, Trial

C = 0.3
WIDEN = 1.5


@dataclass
class TreeNode:
    """One program of the tree. tries: how often it was varied; total: the sum of the rewards in its subtree."""

    trial: Trial | None = None
    parent: TreeNode | None = None
    children: list[TreeNode] = field(default_factory=list)
    tries: int = 0
    visits: int = 0
    total: float = 0.0

    def visit(self, reward: float) -> None:
        """Adds a visit with its reward to this node and all its ancestors."""
        self.visits += 1
        self.total += reward
        if self.parent is not None:
            self.parent.visit(reward)


class Uct:
    """Run setting "uct_c": the weight of exploration (0.3)."""

    def select(self, view: SearchView, k: int, rng: random.Random) -> list[Expansion]:
        """One walk per expansion; the root yields a random program, any other node a variation of its program."""
        root, weight = grow(view), float(view.settings.get("uct_c", C))
        return [
            opening(view, number) or _walk(view, number, root, weight, rng)
            for number in range(view.next_number, view.next_number + k)
        ]

    def accept(self, view: SearchView, trial: Trial, evaluation: Evaluation) -> Decision:
        """Every verified program joins the tree."""
        if not evaluation.passed:
            return rejected(trial, evaluation)
        best = beats_best(view, evaluation)
        above = parent_of(trial, by_program(view))
        place = f"joins the tree below #{above.number}" if above else "joins the tree at its root"
        reason = comparison(view, evaluation, view.best, "the best")
        return Decision(
            number=trial.number, program=evaluation.program, kept=True, best=best, reason=f"{place}: {reason}"
        )


def grow(view: SearchView) -> TreeNode:
    """Builds the tree from all decided trials and returns its root."""
    root, known = TreeNode(), by_program(view)
    nodes: dict[str, TreeNode] = {}
    fastest = min((time_of(trial) for trial in view.verified), default=math.inf)
    for trial in view.trials:
        above = parent_of(trial, known)
        parent = nodes.get(above.proposed.program, root) if above else root
        parent.tries += 1
        node = parent
        if trial.passed:
            node = TreeNode(trial, parent)
            parent.children.append(node)
            nodes[trial.proposed.program] = node
        time = time_of(trial)
        node.visit(fastest / time if 0 < time < math.inf else 0.0)
    return root


def descend(root: TreeNode, weight: float) -> TreeNode:
    """The node where a walk from the root ends, which counts one more try and a visit without a reward."""
    node = root
    while node.children and node.tries >= WIDEN * math.sqrt(node.visits):
        above = math.log(node.visits)
        node = max(node.children, key=lambda n: n.total / n.visits + weight * math.sqrt(above / n.visits))
    node.tries += 1
    node.visit(0.0)
    return node


def _walk(view: SearchView, number: int, root: TreeNode, weight: float, rng: random.Random) -> Expansion:
    node = descend(root, weight)
    if node.trial is None:
        return expansion(view, number, "random")
    return breed(view, number, node.trial, ranked(view.verified)[:4], rng)
