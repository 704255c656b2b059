"""GPU targets: kernels launched through a driver, with guarded memory."""
