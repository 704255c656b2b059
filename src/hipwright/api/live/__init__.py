"""Modules and functions in memory: as tasks, and with verified programs in place of their forward (docs/library.md).

A live module is traced by torch.export, its graph is written as a task file, and the program that is found is called
behind guards. All modules of this package but `answers` import torch.
"""
