"""Several calls on one state: what each must give, and how buffers carry from one to the next."""
