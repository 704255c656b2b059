"""The parts of a FlashInfer-Bench data set: workloads with their axes, stored tensors, the texts of the modules."""
