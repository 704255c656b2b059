"""Static rules on C++, CUDA and HIP text inside a ModelNew file. Torch-free."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hipwright.program.blanking import blank
from hipwright.program.modelnew.native_source import own_text
from hipwright.toolchain import device_headers

_LOOKS_NATIVE = re.compile(r"#\s*include|__global__|\btorch::|\bat::Tensor|\bextern\s+\"C\"|PYBIND11_MODULE")

# (rule, pattern on text without comments and literals, what it is, refused)
_RULES: tuple[tuple[str, str, str, bool], ...] = (
    ("D2", r"\b(?:system|popen|fork|vfork|execl[pe]?|execvp?e?|posix_spawnp?)\s*\(", "starts a process", True),
    ("D2", r"\bstd::(?:thread|jthread|async)\b|\bpthread_create\b|\bclone3?\s*\(", "starts a thread", True),
    ("D4", r"\b(?:dlopen|dlsym|dlmopen|mprotect|mmap|ptrace|process_vm_\w+)\s*\(", "reaches into the process", True),
    ("E2", r"/proc/|\benviron\b", "looks at the process's surroundings", True),
    ("E4", r"\b(?:std::)?(?:secure_)?getenv\s*\(", "reads the environment", True),
    (
        "E7",
        r"\b(?:fopen|freopen|openat|creat)\s*\(|\bstd::(?:ifstream|ofstream|fstream|filesystem)\b",
        "uses files",
        True,
    ),
    ("E7", r"#\s*embed\b|\.incbin|__has_embed", "reads a file while compiling", True),
    ("E5", r"\b(?:socket|connect|getaddrinfo|gethostbyname)\s*\(", "uses the network", True),
    ("D4", r"__attribute__\s*\(\(\s*(?:constructor|destructor)|\bsyscall\s*\(", "runs outside its calls", True),
    (
        "E1",
        r"\bPyRun_\w+|\bPyEval_\w+|\bPyImport_\w+|\bpy(?:bind11)?::(?:exec|eval|eval_file)\b"
        r"|\bmodule_?::import\b",
        "calls back into Python",
        True,
    ),
    (
        "B7",
        r"\bsetAllowTF32\w*|\bsetFloat32MatmulPrecision\b|\bsetBenchmark\w*|\bsetDeterministic\w*",
        "changes a global flag of the library",
        True,
    ),
    ("B5", r"\btorch::jit::|\bnvrtc\w+\s*\(|\bhiprtc\w+\s*\(", "compiles at run time", False),
    ("D1", r"\b(?:cuda|hip)StreamCreate\w*|\bgetStreamFromPool\b", "works on a stream of its own", False),
    (
        "B1",
        r"\bcublas\w*\s*\(|\bcudnn\w+\s*\(|\b(?:hip|roc)blas\w*\s*\(|\bcufft\w+\s*\(",
        "calls a library besides torch",
        False,
    ),
    ("D5", r"\b(?:cuda|hip)EventRecord\b|\bclock_gettime\b|\bstd::chrono\b", "uses a clock", False),
    ("C6", r"\b(?:cuda|hip)Malloc(?:Managed|Host|Async)?\s*\(", "allocates by itself: no red zones there", False),
)
# names by which a source asks what it is compiled for; what hosts log by (__FILE__, __LINE__) is not among them
_TARGET = re.compile(
    r"\b(?:__AMDGCN\w*|__AMDGPU__|__HIP_PLATFORM\w*|__HIP_DEVICE_COMPILE__|__HIP_ARCH\w*|__CUDA_ARCH\w*|__CUDACC\w*|"
    r"__HIPCC\w*|__NVCC\w*|__HIP__|__CUDA__|__clang\w*|__GNUC\w*|__x86_64\w*|__aarch64\w*|__gfx\w+|__GFX\w+|__has_\w+|"
    r"__VERSION__|__DATE__|__TIME__|__TIMESTAMP__|__OPTIMIZE\w*|__builtin_constant_p|USE_ROCM|TORCH_HIP_VERSION|"
    r"HIP_VERSION\w*|CUDA_VERSION|CUDART_VERSION)\b"
)
_PATTERNS = [(rule, re.compile(pattern), why, refused) for rule, pattern, why, refused in _RULES]
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include(?:_next)?[ \t]*(?P<file>[<\"][^>\"\n]*[>\"]|\w+)", re.MULTILINE)
_ASM_FILE = re.compile(r"\.incbin|/proc/|/dev/|/etc/")


def native_findings(text: str) -> Iterator[tuple[str, int, str, bool]]:
    """(rule, line offset from 0, message, refused) of each finding in a string that looks like native source."""
    if not _LOOKS_NATIVE.search(text):
        return
    code = blank(text)
    yield from _target_findings(text)
    for rule, pattern, why, refused in _PATTERNS:
        for match in pattern.finditer(code):
            yield rule, code.count("\n", 0, match.start()), f"native code {why}: {match.group().strip()}", refused
    for match in _INCLUDE.finditer(_uncommented(text)):
        name = match["file"].strip('<>"')
        if name.startswith(("/", "..")) or "/../" in name or match["file"][0] not in '<"':
            yield "E7", text.count("\n", 0, match.start()), f"includes a file by its path: {match['file']}", True
    for match in _ASM_FILE.finditer(_uncommented(text)):
        yield "E7", text.count("\n", 0, match.start()), f"native code names a system file: {match.group()}", True


def _target_findings(text: str) -> Iterator[tuple[str, int, str, bool]]:
    """Questions for the target, the compiler or the build in what is not the text of an export."""
    if not _TARGET.search(text):
        return
    own = blank(re.sub(r"\\[ \t]*\n", "", own_text(text)))
    if match := _TARGET.search(own):
        old = device_headers.foreign_id(text)
        why = f"; it holds device headers of another version ({old}): export it again" if old else ""
        message = f"native code asks for {match.group()}, which tells the target or the compiler{why}"
        yield "E4", own.count("\n", 0, match.start()), message, True


def _uncommented(text: str) -> str:
    """Replaces comments by spaces; literals stay."""

    def spaces(match: re.Match[str]) -> str:
        found = match.group()
        return re.sub(r"[^\n]", " ", found) if found.startswith("/") else found

    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', spaces, text, flags=re.DOTALL)
