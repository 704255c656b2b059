"""A process that has one release's hipRTC library loaded, under that release's own C library: standard library only.

Started as `LOADER --library-path ... python hiprtc_process.py LIBRARY`; one JSON object a line: {source, options,
headers} in, {result, log, bytes} out. The first line out is {version}.
"""

import ctypes
import json
import sys
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p


def strings(values):
    """A C array of strings."""
    return (c_char_p * max(len(values), 1))(*(value.encode() for value in values))


def compiled(library, job):
    """One compilation's answer."""
    program, size = c_void_p(), c_size_t()
    names, texts = strings(list(job["headers"])), strings(list(job["headers"].values()))
    source = job["source"].encode()
    library.hiprtcCreateProgram(byref(program), source, b"kernel.hip", len(job["headers"]), texts, names)
    try:
        result = library.hiprtcCompileProgram(program, len(job["options"]), strings(job["options"]))
        library.hiprtcGetProgramLogSize(program, byref(size))
        log = ctypes.create_string_buffer(size.value + 1)
        library.hiprtcGetProgramLog(program, log)
        if result == 0:
            library.hiprtcGetCodeSize(program, byref(size))
        return {"result": result, "log": log.value.decode(errors="replace"), "bytes": 0 if result else size.value}
    finally:
        library.hiprtcDestroyProgram(byref(program))


def main():
    """Answers until its input ends."""
    library = ctypes.CDLL(sys.argv[1])
    major, minor = c_int(), c_int()
    library.hiprtcVersion(byref(major), byref(minor))
    print(json.dumps({"version": f"{major.value}.{minor.value}"}), flush=True)
    for line in sys.stdin:
        print(json.dumps(compiled(library, json.loads(line))), flush=True)


main()
