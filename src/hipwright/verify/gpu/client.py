"""A GPU's candidate worker as callers use it: loads programs for running and timing. Does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hipwright.errors import DeviceError, WorkerError
from hipwright.records import Build, Program
from hipwright.targets import TARGETS
from hipwright.tensors import HostTensor, Tree
from hipwright.verify.candidate import POISON_A
from hipwright.verify.gpu.connection import Mode, WorkerConnection, as_candidate_error
from hipwright.verify.gpu.loaded import LoadedProgram
from hipwright.verify.reply import whole_numbers


class CandidateWorker(WorkerConnection):
    """The candidate worker of one GPU, which serves one program after another.

    Safe to use from several threads, one call at a time.
    """

    def load(
        self,
        program: Program,
        build: Build | None,
        table: Tree,
        mode: Mode = "run",
        poison: int = POISON_A,
        load_options: Mapping[str, Any] | None = None,
    ) -> LoadedProgram:
        """Loads a program. build: its code object (None for the modes and candidate forms that need none). more:
        further arguments of program.modelnew.run.load (extensions, seed).

        Raises CandidateError for what the program does wrong, infrastructure errors for the rest. A dead process is
        replaced once.
        """
        with self._lock:
            own = self.fresh if self.fresh is not None else TARGETS.is_host(self.driver) or program.form == "modelnew"
            if own and self._program != program.key:
                self.close()
            self._program = program.key
            for attempt in (True, False):
                try:
                    self._alive()
                    with as_candidate_error():
                        number = self._load(program, build, table, mode, poison, load_options or {})
                    break
                except (WorkerError, DeviceError):
                    self.recycle()
                    if not attempt:
                        raise
            assert self._session is not None
            return LoadedProgram(self, self._session, number, program, mode)

    def _load(
        self,
        program: Program,
        build: Build | None,
        table: Tree,
        mode: Mode,
        poison: int,
        load_options: Mapping[str, Any],
    ) -> int:
        # kept, so that an id belongs to one table
        held, key = self._tables.setdefault(id(table), (table, str(next(self._ids))))
        code, so = None, ""
        if build is not None and mode == "run" and program.form == "program":
            if TARGETS.is_host(self.driver):
                so = str(self.cache.path(build.blob))
            else:
                code = HostTensor.of(np.frombuffer(self.cache.get(build.blob), np.uint8))
        header = {
            **load_options,
            "lane": program.form,
            "text": program.text,
            "knobs": program.knobs,
            "mode": mode,
            "state": key,
            "so": so,
            "poison": poison,
            "device": self.device,
        }
        for _ in range(2):
            bundle = {"code": code, "table": None if key in self._sent else held}
            self._sent.add(key)
            reply, _tree = self.call("load", header, bundle, limit_s=self.limit_for(program))
            if not reply.get("stale"):
                return whole_numbers(reply, "program")[0]
            self._sent.discard(key)  # the worker dropped it, or a candidate wrote to it
        raise WorkerError("the candidate worker does not keep a state table")
