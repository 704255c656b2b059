"""The simulated targets measured: faults planted in machine code, and results and times beside the cpu target's."""
