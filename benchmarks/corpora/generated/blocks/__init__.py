"""Blocks of generated architectures: their text goes into the tasks that use them. No task imports these files."""
