"""The service of a compile session: NVRTC, loaded once. It reads hostile source and has no GPU and no network.

NVRTC's interface is a dozen C calls, so ctypes suffices and the package cuda.bindings is not needed.
Source: NVRTC User Guide, "Basic Usage" and "Precompiled Headers".
"""

from __future__ import annotations

import ctypes
import os
import re
import tempfile
import time
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hipwright.errors import ToolchainError
from hipwright.sandbox import lockdown
from hipwright.tensors import HostTensor, Tree
from hipwright.toolchain.nvidia import ptx

NAME = "kernel.hip"
_COMPILATION = 6  # nvrtcResult: the source is at fault
_BUILTINS = 7  # nvrtcResult: libnvrtc-builtins is missing or of another version
_NO_SPACE = re.compile(r"cannot open temporary file|No space left on device")  # reported as errors of the source
_STOP = "#pragma nv_hdrstop\n"


class NvrtcService:
    """Service of a compile session for one architecture.

    init: library, builtins (paths, "" where there is no second library), options, prefix (the text that a precompiled
    header is made of).
    """

    def __init__(self, init: dict[str, Any], _: Tree) -> None:
        self._options = [str(option) for option in init["options"]]
        self._prefix = str(init["prefix"]) + _STOP
        try:
            if init["builtins"]:
                ctypes.CDLL(init["builtins"], mode=ctypes.RTLD_GLOBAL)  # NVRTC opens it by its file name
            self._nvrtc = ctypes.CDLL(init["library"])
        except OSError as error:
            raise ToolchainError(f"NVRTC does not load: {error}", hint="pip install nvidia-cuda-nvrtc") from None
        for name, types in _ARGUMENTS.items():
            getattr(self._nvrtc, name).argtypes = types
        self._pch = self._precompile()
        lockdown("task")  # not "candidate": NVRTC keeps temporary files, in the private /tmp

    def compile(self, header: dict[str, Any], _: Tree) -> tuple[dict[str, Any], Tree]:
        """header: body (the source behind the prefix), prefix (whether the body may use the precompiled prefix).

        ({ok, log, mixes: `ptx.mixes`, seconds}, [the cubin as uint8]). Raises ToolchainError when NVRTC itself fails.
        """
        started = time.perf_counter()
        ok, log, code, text = self._compiled(header)
        mixes = msgspec.to_builtins(ptx.mixes(text.decode(errors="replace")))
        reply = {"ok": ok, "log": log, "mixes": mixes, "seconds": time.perf_counter() - started}
        return reply, [HostTensor.of(np.frombuffer(code, dtype=np.uint8))]

    def listing(self, header: dict[str, Any], _: Tree) -> tuple[dict[str, Any], Tree]:
        """As `compile`, but ({ok, log}, [the PTX as uint8])."""
        ok, log, _code, text = self._compiled(header)
        return {"ok": ok, "log": log}, [HostTensor.of(np.frombuffer(text, dtype=np.uint8))]

    def _compiled(self, header: dict[str, Any]) -> tuple[bool, str, bytes, bytes]:
        """(compiled?, log, cubin, PTX)."""
        if header["prefix"] and self._pch:
            result = self._run(self._prefix + header["body"], [*self._options, f"--use-pch={self._pch}"])
        else:
            result = self._run(header["body"], self._options)
        status, log, code, text = result
        if status not in (0, _COMPILATION) or _NO_SPACE.search(log):
            raise ToolchainError(f"NVRTC failed (result {status}): {log[-500:]}", hint=_hint(status))
        return status == 0, log, code, text

    def _precompile(self) -> str:
        """The path of this session's precompiled header; it holds addresses, so sessions cannot share one."""
        with tempfile.TemporaryDirectory(prefix="hipwright-pch-") as folder:
            file = Path(folder) / "hip.pch"
            status, log, *_ = self._run(self._prefix, [*self._options, f"--create-pch={file}"])
            if status:
                raise ToolchainError(f"our headers do not compile with this NVRTC: {log[-2000:]}", hint=_hint(status))
            if not file.is_file():
                return ""
            self._memory = os.memfd_create("hip.pch")  # ends with the process; a file would stay
            os.write(self._memory, file.read_bytes())
        return f"/proc/self/fd/{self._memory}"

    def _run(self, source: str, options: list[str]) -> tuple[int, str, bytes, bytes]:
        """(nvrtcResult, log, cubin, PTX)."""
        program = c_void_p()
        status = self._nvrtc.nvrtcCreateProgram(byref(program), source.encode(), NAME.encode(), 0, None, None)
        if status:
            return status, "the program cannot be created", b"", b""
        try:
            words = (c_char_p * len(options))(*(option.encode() for option in options))
            status = self._nvrtc.nvrtcCompileProgram(program, len(options), words)
            log = self._read(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            if status:
                return status, log, b"", b""
            return status, log, self._read(program, "CUBIN"), self._read(program, "PTX").rstrip(b"\0")
        finally:
            self._nvrtc.nvrtcDestroyProgram(byref(program))

    def _read(self, program: c_void_p, what: str) -> bytes:
        size = c_size_t()
        getattr(self._nvrtc, f"nvrtcGet{what}Size")(program, byref(size))
        data = ctypes.create_string_buffer(max(size.value, 1))
        getattr(self._nvrtc, f"nvrtcGet{what}")(program, data)
        return data.raw[: size.value]


def _hint(status: int) -> str:
    return "libnvrtc and libnvrtc-builtins must be of one version" if status == _BUILTINS else "reinstall NVRTC"


_HANDLE = POINTER(c_void_p)
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "nvrtcCreateProgram": (_HANDLE, c_char_p, c_char_p, c_int, c_void_p, c_void_p),
    "nvrtcCompileProgram": (c_void_p, c_int, POINTER(c_char_p)),
    "nvrtcDestroyProgram": (_HANDLE,),
    "nvrtcGetProgramLogSize": (c_void_p, POINTER(c_size_t)),
    "nvrtcGetProgramLog": (c_void_p, c_char_p),
    "nvrtcGetCUBINSize": (c_void_p, POINTER(c_size_t)),
    "nvrtcGetCUBIN": (c_void_p, c_char_p),
    "nvrtcGetPTXSize": (c_void_p, POINTER(c_size_t)),
    "nvrtcGetPTX": (c_void_p, c_char_p),
}
