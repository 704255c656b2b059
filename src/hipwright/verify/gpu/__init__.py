"""The verdict on a GPU."""
