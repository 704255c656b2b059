"""Tasks: PyTorch files in the KernelBench form, loaded and run in the task host (docs/tasks.md)."""

from hipwright.task.handle import Outline, TaskHandle, open_source, open_task

__all__ = ["Outline", "TaskHandle", "open_source", "open_task"]
