"""Is it right? (docs/verification.md)

Oracle      what is right: cases of a task, made once
verify_cpu  the verdict on one built program on the `cpu` target
verify_gpu  the same on a GPU, in a warm worker (hipwright.verify.gpu.verifier)
static.lint warnings about HIP source, never a verdict
"""

from hipwright.verify.candidate import WORKER
from hipwright.verify.cpu.verifier import verify_cpu
from hipwright.verify.oracle import Oracle, VerificationCase
from hipwright.verify.reply import checked_trace

__all__ = ["WORKER", "Oracle", "VerificationCase", "checked_trace", "verify_cpu"]
