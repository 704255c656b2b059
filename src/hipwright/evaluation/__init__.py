"""Evaluation of candidates: the stages from parsing to timing, and the schedules that run them (`stages`)."""

from hipwright.evaluation.pipeline import Evaluator

__all__ = ["Evaluator"]
