"""The verdict on the cpu target."""
