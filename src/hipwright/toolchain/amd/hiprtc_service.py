"""The service of a hipRTC session: the library, loaded once in a contained process, called through ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from typing import Any

import numpy as np

from hipwright.errors import ToolchainError
from hipwright.tensors import HostTensor, Tree
from hipwright.toolchain.amd import rocm_paths

SOURCE = "kernel.hip"
_COMPILATION = 6  # hiprtcResult: the source is at fault; all other errors are the library's
_RESULTS = {
    1: "HIPRTC_ERROR_OUT_OF_MEMORY",
    2: "HIPRTC_ERROR_PROGRAM_CREATION_FAILURE",
    3: "HIPRTC_ERROR_INVALID_INPUT",
    4: "HIPRTC_ERROR_INVALID_PROGRAM",
    5: "HIPRTC_ERROR_INVALID_OPTION",
    6: "HIPRTC_ERROR_COMPILATION",
    7: "HIPRTC_ERROR_BUILTIN_OPERATION_FAILURE",
    11: "HIPRTC_ERROR_INTERNAL_ERROR",
    100: "HIPRTC_ERROR_LINKING",
}


class HiprtcService:
    """The service of a session: hipRTC, loaded once. init: library (path)."""

    def __init__(self, init: dict[str, Any], _: Tree) -> None:
        try:
            self._rtc = ctypes.CDLL(init["library"])
            for name, arguments in _ARGUMENTS.items():
                getattr(self._rtc, name).argtypes = arguments
        except (OSError, AttributeError) as error:
            raise ToolchainError(f"cannot use hipRTC: {error}", hint=rocm_paths.FIX) from None

    def compile(self, header: dict[str, Any], _: Tree) -> tuple[dict[str, Any], Tree]:
        """header: source, options, headers (text by name). ({ok, log}, the code object).

        ToolchainError where the source is not at fault.
        """
        program = c_void_p()
        self._check(self._create(program, header["source"], header["headers"]), "hiprtcCreateProgram")
        try:
            options = [option.encode() for option in header["options"]]
            result = self._rtc.hiprtcCompileProgram(program, len(options), (c_char_p * len(options))(*options))
            log = self._text(program, "hiprtcGetProgramLog").decode(errors="replace")
            if result == _COMPILATION:
                return {"ok": False, "log": log}, None
            self._check(result, f"hiprtcCompileProgram: {log[-300:].strip()}")
            code = np.frombuffer(self._text(program, "hiprtcGetCode"), np.uint8)
            return {"ok": True, "log": log}, HostTensor.of(code)
        finally:
            self._rtc.hiprtcDestroyProgram(byref(program))

    def version(self, _: dict[str, Any], __: Tree) -> tuple[dict[str, Any], Tree]:
        """{major, minor} of hipRTC."""
        major, minor = c_int(), c_int()
        self._check(self._rtc.hiprtcVersion(byref(major), byref(minor)), "hiprtcVersion")
        return {"major": major.value, "minor": minor.value}, None

    def _create(self, program: c_void_p, source: str, headers: Mapping[str, str]) -> int:
        names, texts = ([part.encode() for part in parts] for parts in (headers.keys(), headers.values()))
        arrays = [(c_char_p * max(len(part), 1))(*part) for part in (texts, names)]
        result = self._rtc.hiprtcCreateProgram(byref(program), source.encode(), SOURCE.encode(), len(names), *arrays)
        return int(result)

    def _text(self, program: c_void_p, what: str) -> bytes:
        """The bytes of the log or of the code."""
        size = c_size_t()
        self._check(getattr(self._rtc, f"{what}Size")(program, byref(size)), f"{what}Size")
        buffer = ctypes.create_string_buffer(max(size.value, 1))
        if size.value:
            self._check(getattr(self._rtc, what)(program, buffer), what)
        return buffer.raw[: size.value].rstrip(b"\0") if what.endswith("Log") else buffer.raw[: size.value]

    def _check(self, result: int, doing: str) -> None:
        if result:
            raise ToolchainError(f"hipRTC failed: {doing}: {_RESULTS.get(result, f'error {result}')}")


_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "hiprtcVersion": (POINTER(c_int), POINTER(c_int)),
    "hiprtcCreateProgram": (
        POINTER(c_void_p),
        c_char_p,
        c_char_p,
        c_int,
        POINTER(c_char_p),
        POINTER(c_char_p),
    ),
    "hiprtcCompileProgram": (c_void_p, c_int, POINTER(c_char_p)),
    "hiprtcGetProgramLogSize": (c_void_p, POINTER(c_size_t)),
    "hiprtcGetProgramLog": (c_void_p, c_char_p),
    "hiprtcGetCodeSize": (c_void_p, POINTER(c_size_t)),
    "hiprtcGetCode": (c_void_p, c_char_p),
    "hiprtcDestroyProgram": (POINTER(c_void_p),),
}
