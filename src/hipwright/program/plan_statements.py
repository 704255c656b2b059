"""What becomes of a plan's statements when the plan is written as ordinary Python, whatever the form of export."""

from __future__ import annotations

import ast


class PlanStatements(ast.NodeTransformer):
    """Base of rewriters of a plan: assignments whose meaning in a plan is not Python's."""

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        """`x += y` becomes `x = x + y`: a new value in a plan, but an update in place for a Python tensor."""
        assert isinstance(node.target, ast.Name)
        left = ast.Name(node.target.id, ast.Load())
        return ast.Assign(targets=[node.target], value=ast.BinOp(left, node.op, self.visit(node.value)))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Drops annotations."""
        assert node.value is not None
        return ast.Assign(targets=[node.target], value=self.visit(node.value))
