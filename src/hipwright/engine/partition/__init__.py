"""What becomes HIP and what stays a library call."""
