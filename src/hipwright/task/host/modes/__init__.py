"""What watches or changes the operators of a run of the reference. Runs in the task host."""
