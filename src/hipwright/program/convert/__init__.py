"""Conversion of ModelNew files into programs. Torch-free; nothing of the file is executed."""
