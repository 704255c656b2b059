"""Where tasks come from: a PyTorch file in the KernelBench form, loaded and run in the task host (docs/tasks.md)."""

from hipwright.task.handle import Outline, TaskHandle, open_source, open_task

__all__ = ["Outline", "TaskHandle", "open_source", "open_task"]
