"""Commands of the launchers accelerate and verl."""
