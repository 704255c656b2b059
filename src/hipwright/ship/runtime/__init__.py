"""Files that are copied into every shipped package as they are; they import torch and nothing of hipwright."""
