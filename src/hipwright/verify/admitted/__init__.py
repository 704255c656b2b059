"""What the guards of a program admit: its comparisons of sizes, and the shapes that take both sides of each."""
