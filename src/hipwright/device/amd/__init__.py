"""AMD GPUs: the driver through the HIP runtime, and the kernel's list of devices."""
