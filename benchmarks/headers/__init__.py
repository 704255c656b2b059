"""Programs against AMD's own HIP headers and hipRTC libraries, which need no GPU (docs/toolchain.md)."""
