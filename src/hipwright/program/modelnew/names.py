"""Names in the static rules of ModelNew files: dotted path -> (rule, why). Data only.

A path includes everything below it: "torch.hub" covers torch.hub.load.
"""

from __future__ import annotations

from collections.abc import Iterable

_PROCESS = "no other processes or threads: work outside the call is not measured"
_STACK = "the interpreter's own state is not the candidate's"
_FILES = "a candidate sees its inputs and no files"
_NET = "there is no network"

MODULES: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        (
            "subprocess",
            "multiprocessing",
            "torch.multiprocessing",
            "threading",
            "_thread",
            "concurrent",
            "asyncio",
            "sched",
            "pty",
            "signal",
            "atexit",
        ),
        ("D2", _PROCESS),
    ),
    **dict.fromkeys(
        (
            "socket",
            "ssl",
            "urllib",
            "http",
            "requests",
            "ftplib",
            "smtplib",
            "aiohttp",
            "httpx",
            "torch.hub",
            "torch.distributed",
            "xmlrpc",
        ),
        ("E5", _NET),
    ),
    **dict.fromkeys(("ctypes", "cffi", "_ctypes", "mmap"), ("E2", "reaches memory that it was not given")),
    **dict.fromkeys(
        (
            "gc",
            "traceback",
            "tracemalloc",
            "dis",
            "code",
            "codeop",
            "pdb",
            "bdb",
            "builtins",
            "runpy",
            "pkgutil",
            "zipimport",
        ),
        ("E1", _STACK),
    ),
    **dict.fromkeys(("pickle", "marshal", "shelve", "sqlite3", "dbm", "fcntl", "resource"), ("E7", _FILES)),
    **dict.fromkeys(
        ("torch._dynamo", "torch._inductor", "torch_tensorrt", "tensorrt"), ("B5", "the compiler would do the work")
    ),
    **dict.fromkeys(
        ("torch.utils._python_dispatch", "torch.overrides", "torch._lazy", "torch_xla"),
        ("D3", "calls would be redirected or put off"),
    ),
    **dict.fromkeys(("hipwright", "kernelbench", "KernelBench"), ("E3", "the evaluator is no library of a candidate")),
}
"""Refused imports."""

WARNED_MODULES: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        (
            "cupy",
            "numba",
            "pycuda",
            "cuda",
            "tilelang",
            "cutlass",
            "flash_attn",
            "xformers",
            "apex",
            "transformer_engine",
            "fla",
            "aiter",
        ),
        ("B1", "a library that coverage cannot see into"),
    ),
    **dict.fromkeys(("importlib", "tempfile", "shutil", "glob", "weakref"), ("E6", "rarely needed by a kernel")),
    "time": ("D5", "a candidate has no need of a clock"),
}
"""Imports with a warning."""

CALLS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        (
            "eval",
            "exec",
            "compile",
            "__import__",
            "importlib.import_module",
            "importlib.reload",
            "importlib.util",
            "importlib.machinery",
        ),
        ("E3", "code must stand in the file"),
    ),
    **dict.fromkeys(("breakpoint", "input"), ("E1", _STACK)),
    **dict.fromkeys(
        (
            "sys._getframe",
            "sys.settrace",
            "sys.setprofile",
            "sys.exc_info",
            "sys._current_frames",
            "inspect.stack",
            "inspect.currentframe",
            "inspect.getouterframes",
            "inspect.getinnerframes",
            "inspect.trace",
            "inspect.getsource",
            "inspect.getsourcefile",
            "inspect.getmodule",
            "inspect.getmembers",
            "inspect.getclosurevars",
        ),
        ("E1", _STACK),
    ),
    **dict.fromkeys(
        (
            "os.system",
            "os.popen",
            "os.fork",
            "os.forkpty",
            "os.posix_spawn",
            "os.kill",
            "os.killpg",
            "os._exit",
            "os.abort",
            "sys.exit",
            "exit",
            "quit",
            "os.setpriority",
            "os.nice",
            "os.sched_setaffinity",
            *(f"os.exec{s}" for s in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")),
            *(f"os.spawn{s}" for s in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")),
        ),
        ("D2", _PROCESS),
    ),
    **dict.fromkeys(
        (
            "os.listdir",
            "os.walk",
            "os.scandir",
            "os.read",
            "os.pread",
            "os.remove",
            "os.unlink",
            "os.rename",
            "os.link",
            "os.symlink",
            "os.readlink",
            "glob.glob",
            "glob.iglob",
            "torch.load",
            "torch.save",
            "torch.from_file",
            "torch.jit.load",
            "numpy.load",
            "numpy.fromfile",
            "numpy.memmap",
            "numpy.save",
            "shutil.copy",
            "shutil.copyfile",
            "shutil.rmtree",
            "shutil.move",
        ),
        ("E7", _FILES),
    ),
    **dict.fromkeys(("os.getppid", "os.uname", "platform.node"), ("E4", "the machine is not the candidate's business")),
    **dict.fromkeys(
        (
            "torch.set_float32_matmul_precision",
            "torch.use_deterministic_algorithms",
            "torch.set_default_dtype",
            "torch.set_default_device",
            "torch.set_default_tensor_type",
            "torch.set_flush_denormal",
            "torch.backends.cuda",
            "torch.backends.cudnn.set_flags",
        ),
        ("B7", "a global flag of the library"),
    ),
    **dict.fromkeys(("torch.compile", "torch._dynamo", "torch._inductor"), ("B5", "the compiler would do the work")),
    **dict.fromkeys(("torch.hub",), ("E5", _NET)),
}
"""Refused calls."""

WARNED_CALLS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        ("torch.cuda.Stream", "torch.cuda.stream", "torch.cuda.ExternalStream", "torch.cuda.set_stream"),
        ("D1", "work on another stream; device and host clocks must agree"),
    ),
    **dict.fromkeys(
        ("torch.cuda.CUDAGraph", "torch.cuda.graph", "torch.cuda.make_graphed_callables"),
        ("C2", "a graph of its own; fresh inputs show whether it is stale"),
    ),
    **dict.fromkeys(
        ("torch.cuda.Event", "time.time", "time.perf_counter", "time.sleep", "time.monotonic"),
        ("D5", "a candidate has no need of a clock"),
    ),
    **dict.fromkeys(("torch.jit.script", "torch.jit.trace"), ("B5", "TorchScript may fuse operators")),
    **dict.fromkeys(
        (
            "torch.manual_seed",
            "torch.cuda.manual_seed",
            "torch.cuda.manual_seed_all",
            "torch.seed",
            "numpy.random.seed",
            "random.seed",
        ),
        ("A5", "sets the random state; values are given afterwards"),
    ),
    **dict.fromkeys(("globals", "locals", "vars"), ("E1", "looks at its own names")),
    **dict.fromkeys(("torch.set_num_threads", "torch.set_grad_enabled"), ("B7", "a global setting")),
}
"""Calls with a warning."""

FRAME_ATTRIBUTES = frozenset(
    (
        "f_back",
        "f_locals",
        "f_globals",
        "f_code",
        "tb_frame",
        "tb_next",
        "__globals__",
        "__closure__",
        "__code__",
        "__subclasses__",
        "__builtins__",
        "__traceback__",
        "gi_frame",
        "cr_frame",
        "__mro__",
        "__bases__",
    )
)

ASSIGNABLE = ("os.environ",)
"""Attributes of modules whose assignment another rule checks."""

BUILD_VARIABLES = frozenset(
    (
        "TORCH_CUDA_ARCH_LIST",
        "CXX",
        "CC",
        "CUDA_HOME",
        "CUDA_PATH",
        "ROCM_HOME",
        "ROCM_PATH",
        "HIP_PATH",
        "MAX_JOBS",
        "PYTORCH_ROCM_ARCH",
        "TORCH_EXTENSIONS_DIR",
        "NVCC_APPEND_FLAGS",
        "CUDAHOSTCXX",
        "CFLAGS",
        "CXXFLAGS",
        "TRITON_CACHE_DIR",
        "TORCH_USE_CUDA_DSA",
        "HIPCC_COMPILE_FLAGS_APPEND",
    )
)
"""Environment variables of the build, which may be read and set."""


def longest(path: str, table: Iterable[str]) -> str:
    """The longest entry of `table` that is `path` or a dotted prefix of it; "" if none."""
    known = set(table)
    parts = path.split(".")
    return next((head for n in range(len(parts), 0, -1) if (head := ".".join(parts[:n])) in known), "")
