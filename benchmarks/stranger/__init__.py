"""The path of somebody who has never seen hipwright, from an empty environment to a kernel in use."""
