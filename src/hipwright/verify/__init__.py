"""Decides whether a candidate computes what its task's reference computes (docs/verification.md).

Oracle         the cases of a task: inputs, state and expectations, made once
verify_cpu     the verdict on one built program on the `cpu` target
verify_gpu     the verdict on a GPU, in a warm worker (hipwright.verify.gpu.verifier)
hip_lint.lint  warnings about HIP source, never a verdict
"""

from hipwright.verify.candidate import WORKER
from hipwright.verify.case_draws import VerificationCase
from hipwright.verify.cpu.verifier import verify_cpu
from hipwright.verify.oracle import Oracle
from hipwright.verify.reply import checked_trace

__all__ = ["WORKER", "Oracle", "VerificationCase", "checked_trace", "verify_cpu"]
