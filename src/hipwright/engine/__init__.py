"""The built-in mind: a module becomes a graph, the graph becomes a program of readable HIP (docs/engine.md).

`capture` runs in the task host and needs torch; everything else is torch-free and runs anywhere.
"""
