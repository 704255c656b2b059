"""A GPU's candidate worker as callers use it: loads programs for running and timing. Does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hipwright.errors import DeviceError, WorkerError
from hipwright.held import HeldTensor, held
from hipwright.records import Build, Program
from hipwright.targets import TARGETS
from hipwright.tensors import HostTensor, Tree
from hipwright.verify.candidate import POISON_A
from hipwright.verify.gpu.bridge.parent import pieces
from hipwright.verify.gpu.chunk_source import span_bytes
from hipwright.verify.gpu.connection import BULK_LIMIT_S, Mode, WorkerConnection, as_candidate_error
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
        with self._turn:
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
        key = self._key_of(table)
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
            there = key in self._sent or self._state_by_bridge(key, table)
            bundle = {"code": code, "table": None if there else table}
            self._sent.add(key)
            reply, _tree = self.call("load", header, bundle, limit_s=self.limit_for(program))
            if not reply.get("stale"):
                return whole_numbers(reply, "program")[0]
            self._sent.discard(key)  # the worker dropped it, or a candidate wrote to it
        raise WorkerError("the candidate worker does not keep a state table")

    def memory(self) -> dict[str, int]:
        """Bytes of device memory: "own" of the present candidate at the most, "reserved" by its process, "others"."""
        reply, _ = self.call("memory", {}, json_only=True)
        return {name: whole_numbers(reply, name)[0] for name in ("own", "reserved", "others")}

    def sent_state(self, table: Tree) -> Tree:
        """What stands for a state table in a request: {"held": its key} where its parameters came by a bridge."""
        if held(table) is None:
            return table
        key = self._key_of(table)
        if key not in self._sent and not self._state_by_bridge(key, table):
            return table
        self._sent.add(key)
        return {"held": key}

    def forget_states(self) -> None:
        """Sends every state table again, as the worker has dropped some."""
        with self._lock:
            self._sent.clear()

    def _key_of(self, table: Tree) -> str:
        """The worker's name of a table, which is kept, so that an id belongs to one."""
        return self._tables.setdefault(id(table), (table, str(next(self._ids))))[1]

    def _state_by_bridge(self, key: str, table: Tree) -> bool:
        """Whether a table whose parameters are held was sent, from their host to the worker."""
        params = held(table)
        if params is None:
            return False
        placed = {tensor.place: tensor.spec for tensor in params.values() if isinstance(tensor, HeldTensor)}
        sizes = [span_bytes(spec) for spec in placed.values()]
        bridge = self.bridge(params.holder.host(), sum(sizes))
        if bridge is None:
            return False
        places = {path: tensor.place for path, tensor in params.items() if isinstance(tensor, HeldTensor)}
        specs = {path: tensor.spec for path, tensor in params.items()}
        where, names = {"state": key}, list(placed)
        self.call("state_open", {**where, "places": places}, {**table, "params": specs}, limit_s=BULK_LIMIT_S)
        for leaf, offset, count in pieces(sizes, bridge.bytes):
            params.holder.bridged(params.recipe, names[leaf], bridge.number, offset, count)
            header = {**where, "path": names[leaf], "offset": offset, "bytes": count}
            self.call("state_fill", header, limit_s=BULK_LIMIT_S, json_only=True)
        self.call("state_done", where, limit_s=BULK_LIMIT_S, json_only=True)
        return True
