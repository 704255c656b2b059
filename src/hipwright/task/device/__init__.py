"""The device host: runs a task file on a GPU, and judges outputs there. Imports torch."""
