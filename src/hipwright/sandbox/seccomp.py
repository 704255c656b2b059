"""seccomp filters: the system calls that a process keeps once it runs untrusted code.

Four profiles. "candidate" is an allow-list: compute, memory, read-only opens and the open session socket; no new
threads or processes, no writable opens, no sockets, no signals to others. "task" is a deny-list for the host that runs
the task's Python: threads and files in the private /tmp stay possible. "gpu" is "task" for a process that drives a GPU:
libraries may also probe memory nodes and performance counters, and are refused instead of killed. "tools" is "gpu" plus
child processes and signals among them, for torch.compile, Triton and their compilers. All kill the process on calls
that only an attack makes (ptrace, other processes' memory, mounts, bpf, keys), and none opens a socket, but for local
ones under "gpu" and "tools".
Numbers: the kernel's x86-64 table and asm-generic/unistd.h.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterable
from typing import Literal

from hipwright.errors import SandboxMissing

Profile = Literal["candidate", "task", "gpu", "tools"]

# name:x86-64:aarch64, -1 where the machine has no such call
_TABLE = """
    read:0:63 write:1:64 open:2:-1 close:3:57 stat:4:-1 fstat:5:80 lstat:6:-1 poll:7:-1 lseek:8:62 mmap:9:222
    mprotect:10:226 munmap:11:215 brk:12:214 rt_sigaction:13:134 rt_sigprocmask:14:135 rt_sigreturn:15:139
    pread64:17:67 pwrite64:18:68 readv:19:65 writev:20:66 access:21:-1 select:23:-1 sched_yield:24:124
    mremap:25:216 msync:26:227 mincore:27:232 madvise:28:233 dup:32:23 nanosleep:35:101 getitimer:36:102
    alarm:37:-1 setitimer:38:103 getpid:39:172 socket:41:198 sendto:44:206 recvfrom:45:207 sendmsg:46:211
    recvmsg:47:212 clone:56:220 fork:57:-1 vfork:58:-1 execve:59:221 exit:60:93 kill:62:129 uname:63:160
    fcntl:72:25 ftruncate:77:46 getcwd:79:17 readlink:89:-1 gettimeofday:96:169 getrlimit:97:163
    getrusage:98:165 sysinfo:99:179 times:100:153 ptrace:101:117 getuid:102:174 syslog:103:116 getgid:104:176
    geteuid:107:175 getegid:108:177 getppid:110:173 rt_sigpending:127:136 rt_sigtimedwait:128:137
    rt_sigqueueinfo:129:138 sigaltstack:131:132 personality:135:92 setpriority:141:140 modify_ldt:154:-1
    pivot_root:155:41 prctl:157:167 arch_prctl:158:-1 chroot:161:51 acct:163:89 mount:165:40 umount2:166:39
    swapon:167:224 swapoff:168:225 reboot:169:142 iopl:172:-1 ioperm:173:-1 init_module:175:105
    delete_module:176:106 quotactl:179:60 gettid:186:178 tkill:200:130 time:201:-1 futex:202:98
    sched_setaffinity:203:122 sched_getaffinity:204:123 getdents64:217:61 set_tid_address:218:96
    restart_syscall:219:128 fadvise64:221:223 timer_create:222:107 timer_settime:223:110 timer_gettime:224:108
    timer_getoverrun:225:109 timer_delete:226:111 clock_gettime:228:113 clock_getres:229:114
    clock_nanosleep:230:115 exit_group:231:94 tgkill:234:131 kexec_load:246:104 add_key:248:217
    request_key:249:218 keyctl:250:219 migrate_pages:256:238 openat:257:56 newfstatat:262:79 readlinkat:267:78
    faccessat:269:48 pselect6:270:72 ppoll:271:73 unshare:272:97 set_robust_list:273:99 get_robust_list:274:100
    move_pages:279:239 rt_tgsigqueueinfo:297:240 perf_event_open:298:241 fanotify_init:300:262 prlimit64:302:261
    open_by_handle_at:304:265 setns:308:268 getcpu:309:168 process_vm_readv:310:270 process_vm_writev:311:271
    kcmp:312:272 finit_module:313:273 seccomp:317:277 getrandom:318:278 kexec_file_load:320:294 bpf:321:280
    execveat:322:281 userfaultfd:323:282 membarrier:324:283 statx:332:291 rseq:334:293 pidfd_send_signal:424:424
    io_uring_setup:425:425 open_tree:428:428 move_mount:429:429 fsopen:430:430 fsconfig:431:431 fsmount:432:432
    fspick:433:433 pidfd_open:434:434 clone3:435:435 close_range:436:436 openat2:437:437 pidfd_getfd:438:438
    faccessat2:439:439 process_madvise:440:440 mount_setattr:442:442
    preadv:295:69 preadv2:327:286
"""
_NUMBERS = {name: (int(x86), int(arm)) for name, x86, arm in (entry.split(":") for entry in _TABLE.split())}
_ARCH = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column, AUDIT_ARCH_*

_COMPUTE = """
read write readv writev pread64 pwrite64 close close_range lseek fstat stat lstat newfstatat statx access faccessat
faccessat2 readlink readlinkat getdents64 getcwd dup ftruncate fadvise64 poll ppoll select pselect6 recvmsg recvfrom
sendmsg sendto mprotect munmap mremap madvise brk mincore msync rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending
rt_sigtimedwait sigaltstack setitimer getitimer alarm timer_create timer_settime timer_gettime timer_delete
timer_getoverrun restart_syscall futex sched_yield sched_getaffinity set_robust_list get_robust_list rseq membarrier
getcpu set_tid_address clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time times getrusage
getrandom getpid getppid gettid getuid geteuid getgid getegid uname sysinfo arch_prctl getrlimit exit exit_group
preadv preadv2
"""
_ATTACK = """
ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd kcmp bpf userfaultfd kexec_load kexec_file_load
init_module finit_module delete_module mount umount2 pivot_root chroot setns unshare perf_event_open add_key
request_key keyctl open_by_handle_at fanotify_init quotactl reboot swapon swapoff acct syslog move_mount open_tree
fsopen fsconfig fsmount fspick mount_setattr iopl ioperm modify_ldt migrate_pages move_pages
"""
_TASK_DENIED = """
socket fork vfork execve execveat tkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal pidfd_open personality
setpriority seccomp
"""

# calls that a GPU runtime, its profiler or a NUMA library may try, and does without
_PROBED = "userfaultfd perf_event_open migrate_pages move_pages kcmp process_madvise syslog"
# calls that a compiler driver and Python's subprocess need beyond that
_TOOLS_ALLOWED = "fork vfork execve tkill setpriority pidfd_open kill tgkill"

_EPERM, _ENOSYS = 1, 38
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_DENY = _ERRNO | _EPERM
_LD, _AND, _JEQ, _JGE, _JSET, _RET = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06  # BPF opcodes, operand K
_ARG = [16 + 8 * i for i in range(6)]  # low halves of seccomp_data.args, little-endian

_OPEN_WRITES = (
    0o1 | 0o2 | 0o100 | 0o1000 | 0o2000 | 0o20000 | 0o20000000
)  # WRONLY RDWR CREAT TRUNC APPEND ASYNC TMPFILE
_SHARED_ANONYMOUS = 0x01 | 0x20  # shared anonymous memory would escape RLIMIT_DATA
_AF_UNIX = 1
_CLONE_THREAD = 0x10000
_CLONE_NAMESPACES = 0x7E020000  # NEWNS NEWCGROUP NEWUTS NEWIPC NEWUSER NEWPID NEWNET
_FCNTL_SAFE = (0, 1, 2, 3, 1030, 1034)  # DUPFD GETFD SETFD GETFL DUPFD_CLOEXEC GET_SEALS; F_SETOWN would send signals
_FCNTL_SIGNALS = (8, 10, 15)  # SETOWN SETSIG SETOWN_EX
_PRCTL_DENIED = (1, 4, 22, 35, 0x59616D61)  # PDEATHSIG DUMPABLE SECCOMP MM PTRACER

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, K


def _ret(value: int) -> list[Instruction]:
    return [(_RET, 0, 0, value)]


def _if_bits(arg: int, mask: int, yes: int, no: int) -> list[Instruction]:
    """Returns `yes` where any bit of mask is set in the argument, else `no`."""
    return [(_LD, 0, 0, _ARG[arg]), (_JSET, 0, 1, mask), *_ret(yes), *_ret(no)]


def _if_one_of(arg: int, values: Iterable[int], yes: int, no: int) -> list[Instruction]:
    block: list[Instruction] = [(_LD, 0, 0, _ARG[arg])]
    for value in values:
        block += [(_JEQ, 0, 1, value), *_ret(yes)]
    return block + _ret(no)


def _mmap() -> list[Instruction]:
    flags: list[Instruction] = [(_LD, 0, 0, _ARG[3]), (_AND, 0, 0, _SHARED_ANONYMOUS)]
    return [*flags, (_JEQ, 0, 1, _SHARED_ANONYMOUS), *_ret(_DENY), *_ret(_ALLOW)]


def _read_only_prlimit() -> list[Instruction]:
    """Allows only prlimit64(0, what, NULL, old)."""
    checks: list[Instruction] = []
    for offset in (_ARG[0], _ARG[2], _ARG[2] + 4):
        checks += [(_LD, 0, 0, offset), (_JEQ, 1, 0, 0), *_ret(_DENY)]
    return checks + _ret(_ALLOW)


def _rules(profile: Profile, pid: int) -> tuple[dict[str, list[Instruction]], int]:
    """({call: its instructions}, the verdict on calls that are not named)."""
    own = _if_one_of(0, (pid,), _ALLOW, _DENY)
    rules = {name: _ret(_KILL) for name in _ATTACK.split()}
    # glibc falls back from clone3 to clone, whose flags a filter can read
    rules |= {name: _ret(_ERRNO | _ENOSYS) for name in ("clone3", "io_uring_setup", "openat2")}
    rules |= {"tgkill": own, "kill": own}
    if profile != "candidate":
        return rules | _deny_list(profile, pid), _ALLOW
    rules |= {name: _ret(_ALLOW) for name in _COMPUTE.split()}
    rules |= {
        "open": _if_bits(1, _OPEN_WRITES, _DENY, _ALLOW),
        "openat": _if_bits(2, _OPEN_WRITES, _DENY, _ALLOW),
        "fcntl": _if_one_of(1, _FCNTL_SAFE, _ALLOW, _DENY),
        "prlimit64": _read_only_prlimit(),
        "mmap": _mmap(),
    }
    return rules, _DENY


def _deny_list(profile: Profile, pid: int) -> dict[str, list[Instruction]]:
    """The calls that "task", "gpu" and "tools" refuse beyond `_ATTACK`."""
    rules = {name: _ret(_DENY) for name in _TASK_DENIED.split()}
    rules |= {
        "clone": _if_bits(0, _CLONE_THREAD, _ALLOW, _DENY),
        "fcntl": _if_one_of(1, _FCNTL_SIGNALS, _DENY, _ALLOW),
        "prctl": _if_one_of(0, _PRCTL_DENIED, _DENY, _ALLOW),
        "prlimit64": _if_one_of(0, (0, pid), _ALLOW, _DENY),
    }
    if profile in ("gpu", "tools"):
        rules |= {name: _ret(_DENY) for name in _PROBED.split()}
        # CUDA binds a local socket when it starts (@cuda-uvmfd-..., in our own network namespace) and fails without
        rules["socket"] = _if_one_of(0, (_AF_UNIX,), _ALLOW, _DENY)
    if profile == "tools":
        rules |= {name: _ret(_ALLOW) for name in _TOOLS_ALLOWED.split()}
        rules |= {"clone": _if_bits(0, _CLONE_NAMESPACES, _DENY, _ALLOW), "prlimit64": _ret(_ALLOW)}
    return rules


def program(profile: Profile, machine: str, pid: int) -> list[Instruction]:
    """The BPF program of a profile for a machine ("x86_64" or "aarch64"). Raises KeyError for other machines."""
    column, arch = _ARCH[machine]
    code: list[Instruction] = [(_LD, 0, 0, 4), (_JEQ, 1, 0, arch), *_ret(_KILL), (_LD, 0, 0, 0)]
    if machine == "x86_64":
        code += [(_JGE, 0, 1, 0x40000000), *_ret(_KILL)]  # the x32 numbers
    rules, otherwise = _rules(profile, pid)
    for name, block in rules.items():
        if (number := _NUMBERS[name][column]) >= 0:
            code += [(_JEQ, 0, len(block), number), *block]
    return code + _ret(otherwise)


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


def install(profile: Profile) -> None:
    """Confine this process (all its threads) for good. Raises SandboxMissing where there is no seccomp."""
    machine = platform.machine()
    if machine not in _ARCH:
        raise SandboxMissing(f"no system call filter for {machine}", hint="run on x86-64 or aarch64 Linux")
    code = program(profile, machine, os.getpid())
    raw = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in code))
    spec = _Filter(len(code), ctypes.addressof(raw))
    libc = ctypes.CDLL(None, use_errno=True)
    number = {"x86_64": 317, "aarch64": 277}[machine]
    set_no_new_privs, set_mode_filter, all_threads = 38, 1, 1
    if libc.prctl(set_no_new_privs, 1, 0, 0, 0) or libc.syscall(
        ctypes.c_long(number), ctypes.c_ulong(set_mode_filter), ctypes.c_ulong(all_threads), ctypes.byref(spec)
    ):
        raise SandboxMissing(f"the kernel refuses a system call filter: {os.strerror(ctypes.get_errno())}")
