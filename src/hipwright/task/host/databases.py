"""Imports torch's test databases, for zygotes whose tasks are made of them: 2.7 s of a processor once, not each time.

The databases forbid to set torch.backends' flags outside of a `with`, which task hosts do; it is allowed again here.
"""

import torch
import torch.testing._internal.common_methods_invocations
import torch.testing._internal.common_modules

torch.backends.disable_global_flags.__globals__["__allow_nonbracketed_mutation_flag"] = True
assert not torch.backends.flags_frozen()
