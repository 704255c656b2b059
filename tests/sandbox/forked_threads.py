"""A process that forks as a zygote does, with threads that use torch at once in each fork; prints what torch said."""

import os
import sys
import threading

import torch

from hipwright.sandbox import child

FORKS, THREADS = 12, 8


def forked(numbers: torch.Tensor) -> int:
    """The exit code of a fork: how many of its threads torch refused."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    child._renew_thread_pool()
    start, said = threading.Barrier(THREADS), []

    def double() -> None:
        start.wait()
        try:
            (numbers * 2).sum()
        except RuntimeError as error:
            said.append(str(error))

    each = [threading.Thread(target=double) for _ in range(THREADS)]
    for one in each:
        one.start()
    for one in each:
        one.join()
    if said:
        sys.stderr.write(said[0] + "\n")
    os._exit(len(said))


torch.set_num_threads(1)
sys.exit(sum(forked(torch.ones(1 << 16)) for _ in range(FORKS)))
