"""The processes that run a task's own code on a device, as the parent uses them."""
