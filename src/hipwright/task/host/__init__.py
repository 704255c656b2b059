"""The task host: runs a task file on the CPU, in a sandbox. Imports torch."""
