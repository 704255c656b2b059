"""One Evaluation of one program: parse, lint, build, verify, estimate."""

from hipwright.evaluation.pipeline import Evaluator

__all__ = ["Evaluator"]
