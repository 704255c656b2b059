raise RuntimeError("the task's own code fails")
