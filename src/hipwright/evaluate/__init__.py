"""One Evaluation of one program: parse, lint, build, verify, estimate."""

from hipwright.evaluate.pipeline import Evaluator

__all__ = ["Evaluator"]
