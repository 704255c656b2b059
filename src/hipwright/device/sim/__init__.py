"""The simulated targets: AMD machine code executed in this process, with guarded memory."""
