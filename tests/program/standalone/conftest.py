"""The verifier's fixtures."""

from tests.verify.conftest import cache, candidates, task_zygote, tasks

__all__ = ["cache", "candidates", "task_zygote", "tasks"]
