"""What parent and session say to each other.

A call is one socket message, b"call" with two memfds: the request, a bundle, and an empty one for the reply. The child
answers b"done" when it has filled the second. The parent seals that memfd before it looks at it (a peer that shrinks a
mapped file kills the reader) and believes nothing in it: whatever is malformed becomes a WorkerError.

A quick call is one message each way, plain JSON without tensors: b"quick" and the call, b"quick" and the answer. What
does not fit, errors too, is announced by b"large"; the parent then sends a memfd for it, which is answered as above.
"""

from __future__ import annotations

import fcntl
import json
import os
import traceback
from typing import Any, get_args

from hipwright import errors
from hipwright.errors import HipwrightError, WorkerError
from hipwright.records import Stage, Status
from hipwright.sandbox.failures import RemoteFailure
from hipwright.tensors import BITS, Tree, read_bundle, tensor_leaves, write_bundle

CALL, DONE, READY = b"call", b"done", b"ready"
QUICK, LARGE = b"quick", b"large"
QUICK_BYTES = 16 << 10
TEXT_LIMIT = 20_000  # characters kept of each message of a failing child
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


def memory_file(name: str, size: int = 0) -> int:
    """A memfd; with a size, fixed to it."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    if size:
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    return fd


def request(method: str, header: dict[str, Any], bundle: Tree) -> int:
    """A memfd that holds one call."""
    fd = memory_file("request")
    try:
        write_bundle(fd, {"method": method, "header": header, "bundle": bundle})
    except BaseException:
        os.close(fd)
        raise
    return fd


def quick(method: str, header: dict[str, Any]) -> bytes:
    """A quick call's message. ValueError where the header is too long for one."""
    message = QUICK + json.dumps([method, header]).encode()
    if len(message) > QUICK_BYTES:
        raise ValueError(f"{len(message)} bytes are too many for a quick call")
    return message


def read_quick(message: bytes) -> dict[str, Any]:
    """The answer to a quick call. WorkerError for what no service answers."""
    try:
        header = json.loads(message.removeprefix(QUICK))
        if not isinstance(header, dict):
            raise ValueError("the reply's header is not a dict")
    except (ValueError, RecursionError) as error:
        raise WorkerError(f"malformed reply from a worker: {type(error).__name__}: {str(error)[:200]}") from None
    return header


def read_reply(fd: int, limit: int) -> tuple[dict[str, Any], Tree]:
    """The child's answer, in memory of our own; `limit` bounds its bytes, stored and logical.

    Raises the child's HipwrightError, RemoteFailure for its other exceptions, and WorkerError for anything malformed.
    """
    try:
        tree = _read_untrusted(fd, limit)
        failure = _failure(tree["error"]) if "error" in tree else None
        header: dict[str, Any] = {} if failure else tree["header"]
        bundle = None if failure else tree["bundle"]
        if not isinstance(header, dict):
            raise ValueError("the reply's header is not a dict")
    except Exception as error:
        raise WorkerError(f"malformed reply from a worker: {type(error).__name__}: {str(error)[:200]}") from None
    if failure is not None:
        raise failure
    return header, bundle


def _read_untrusted(fd: int, limit: int) -> Tree:
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)  # fails while the child still maps it writable
    if os.fstat(fd).st_size > limit:
        raise ValueError("larger than the memory limit")
    tree = read_bundle(fd, own=True)
    if not isinstance(tree, dict):
        raise ValueError("not a reply")
    if sum(leaf.numel * BITS[leaf.dtype].itemsize for leaf in tensor_leaves(tree.get("bundle"))) > limit:
        raise ValueError("its tensors are larger than the memory limit")
    return tree


# ---------------------------------------------------------------- failures


def describe(error: BaseException) -> Tree:
    """An exception as a tree. Exceptions of modules above this one carry the names of their bases too."""
    tail = "".join(traceback.format_exception(error))[-TEXT_LIMIT:]
    if not isinstance(error, HipwrightError):
        return {"error": {"type": type(error).__qualname__, "message": str(error)[:TEXT_LIMIT], "traceback": tail}}
    return {
        "error": {
            "classes": [cls.__name__ for cls in type(error).__mro__],
            "message": error.message[:TEXT_LIMIT],
            "hint": error.hint,
            "status": error.status,
            "stage": error.stage,
            "evidence": plain(error.evidence),
        }
    }


def plain(value: Any) -> Any:
    """JSON types only; anything else by its repr."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)


def _failure(said: dict[str, Any]) -> HipwrightError:
    if "classes" not in said:
        return RemoteFailure(*(str(said[key])[:TEXT_LIMIT] for key in ("type", "message", "traceback")))
    cls = next((cls for name in said["classes"] if (cls := _error_class(str(name)))), WorkerError)
    # not through cls.__init__: a ProgramError's message already names its line
    error: HipwrightError = cls.__new__(cls)
    evidence = said["evidence"] if isinstance(said["evidence"], dict) else {}
    if str(said["classes"][0]) != cls.__name__:
        evidence = {**evidence, "type": str(said["classes"][0])[:200]}
    HipwrightError.__init__(
        error, str(said["message"])[:TEXT_LIMIT], hint=str(said["hint"])[:TEXT_LIMIT], evidence=evidence
    )
    if said["status"] in get_args(Status):
        error.status = said["status"]
    if said["stage"] in get_args(Stage):
        error.stage = said["stage"]
    if isinstance(error, errors.ProgramError):
        line = evidence.get("line", 0)
        error.line = line if isinstance(line, int) else 0
    return error


def _error_class(name: str) -> type[HipwrightError] | None:
    cls = getattr(errors, name, None)
    return cls if isinstance(cls, type) and issubclass(cls, HipwrightError) else None
