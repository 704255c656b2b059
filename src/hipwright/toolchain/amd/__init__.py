"""AMD: HIP source to code objects, offline by clang or with ROCm, and what their assembly says."""
