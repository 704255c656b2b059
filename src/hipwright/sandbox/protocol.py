"""The messages between a parent and a session.

A call is one socket message, b"call" with two memfds: the request, a bundle, and an empty one for the reply. The child
answers b"done" when it has filled the second. The parent seals that memfd before it looks at it (a peer that shrinks a
mapped file kills the reader) and validates all of it: whatever is malformed becomes a WorkerError.

A JSON call has no tensors and takes one message each way: b"quick" and the call, b"quick" and the answer. An answer
that does not fit, or an error, is announced by b"large"; the parent then sends a memfd for it, filled as above.
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
JSON, LARGE = b"quick", b"large"
MESSAGE_BYTES = 16 << 10
TEXT_LIMIT = 20_000  # characters kept of each message of a failing child
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


def memory_file(name: str, size: int = 0) -> int:
    """A memfd, of a fixed size where one is given."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    if size:
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    return fd


def request(method: str, header: dict[str, Any], bundle: Tree) -> int:
    """A memfd that holds one call of a service's method."""
    fd = memory_file("request")
    try:
        write_bundle(fd, {"method": method, "header": header, "bundle": bundle})
    except BaseException:
        os.close(fd)
        raise
    return fd


def json_call(method: str, header: dict[str, Any]) -> bytes:
    """The message of a JSON call. ValueError where the header is too long for one."""
    message = JSON + json.dumps([method, header]).encode()
    if len(message) > MESSAGE_BYTES:
        raise ValueError(f"{len(message)} bytes are too many for a JSON call")
    return message


def read_json_answer(message: bytes) -> dict[str, Any]:
    """The header of the answer to a JSON call. WorkerError where it is malformed."""
    try:
        header = json.loads(message.removeprefix(JSON))
        if not isinstance(header, dict):
            raise ValueError("the reply's header is not a dict")
    except (ValueError, RecursionError) as error:
        raise WorkerError(f"malformed reply from a worker: {type(error).__name__}: {str(error)[:200]}") from None
    return header


def read_reply(fd: int, limit: int) -> tuple[dict[str, Any], Tree]:
    """The child's answer, copied into private memory; `limit` bounds its bytes, stored and logical.

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
    """An exception as a tree. A HipwrightError carries all its classes' names: the reader may not know the last."""
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
    """A value in JSON types, anything else by its repr."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)


def _failure(told: dict[str, Any]) -> HipwrightError:
    if "classes" not in told:
        return RemoteFailure(*(str(told[key])[:TEXT_LIMIT] for key in ("type", "message", "traceback")))
    cls = next((cls for name in told["classes"] if (cls := _error_class(str(name)))), WorkerError)
    # without cls.__init__, which would put a ProgramError's line in front of the message once more
    error: HipwrightError = cls.__new__(cls)
    evidence = told["evidence"] if isinstance(told["evidence"], dict) else {}
    if str(told["classes"][0]) != cls.__name__:
        evidence = {**evidence, "type": str(told["classes"][0])[:200]}
    HipwrightError.__init__(
        error, str(told["message"])[:TEXT_LIMIT], hint=str(told["hint"])[:TEXT_LIMIT], evidence=evidence
    )
    if told["status"] in get_args(Status):
        error.status = told["status"]
    if told["stage"] in get_args(Stage):
        error.stage = told["stage"]
    if isinstance(error, errors.ProgramError):
        line = evidence.get("line", 0)
        error.line = line if isinstance(line, int) else 0
    return error


def _error_class(name: str) -> type[HipwrightError] | None:
    cls = getattr(errors, name, None)
    return cls if isinstance(cls, type) and issubclass(cls, HipwrightError) else None
