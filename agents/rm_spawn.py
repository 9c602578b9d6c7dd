"""A task started without a copy of its supervisor's memory, where the processor and the kernel are known.

To fork a Python process, and to run Python in the child until it calls exec, is half of what a short task
costs. Here the child shares the supervisor's memory until exec, and runs nothing but a list of system calls
that the supervisor wrote down: no Python, no C library, no stack. The machine code that goes through the list
is below. A call that fails ends the child; the supervisor sees it in the list, and starts the task by fork,
whose child says in a sentence what is wrong.

Between setuid and exec the child is a process of the user's that shares root's memory. The kernel lets nobody
trace it or read its memory, since setuid makes memory undumpable; not so with fs.suid_dumpable = 1, where
tasks are always forked. Signals that the user sends meet the child alone: its handlers are cleared.
"""

import ctypes
import functools
import mmap
import os
import resource
import signal

from rm_become import umask_of

CLONE_VM, CLONE_INTO_CGROUP, CLONE_CLEAR_SIGHAND = 0x100, 0x200000000, 0x100000000  # Linux 5.7
STACK_BYTES = 16 << 10  # clone3 wants one; the code uses none
# long begin(struct clone_args *, size_t, long list[][6]), by the System V ABI of x86-64:
#      mov r8, rdx          number: mov eax, 39      # getpid, in decimal
#      mov eax, 435                 syscall
#      syscall              # clone3 mov rdi, [rbx+8]
#      test rax, rax                mov rsi, [rbx+16]
#      jz child                     mov ecx, 10
#      ret                  digit:  xor edx, edx
# child: mov rbx, r8                div rcx
# next:  mov rax, [rbx]             add dl, '0'
#      test rax, rax                dec rsi
#      js number                    mov [rsi], dl
#      mov rdi, [rbx+8]             test rax, rax
#      mov rsi, [rbx+16]            jnz digit
#      mov rdx, [rbx+24]            mov rcx, [rbx+16]
#      mov r10, [rbx+32]            sub rcx, rsi
#      syscall                      rep movsb
#      mov [rbx+40], rax            jmp step
#      test rax, rax        failed: mov edi, 1
#      js failed                    mov eax, 231     # exit_group
# step:  add rbx, 48                syscall
#      jmp next
CODE = bytes.fromhex(
    "4989d0b8b30100000f054885c07401c34c89c3488b034885c07821488b7b0848"
    "8b7310488b53184c8b53200f05488943284885c078374883c330ebd7b8270000"
    "000f05488b7b08488b7310b90a00000031d248f7f180c23048ffce88164885c0"
    "75ee488b4b104829f1f3a4ebc9bf01000000b8e70000000f05"
)
OPEN, CLOSE, WRITE, SIGACTION, DUP2, EXECVE, CHDIR, UMASK = 2, 3, 1, 13, 33, 59, 80, 95
SETUID, SETGID, SETSID, SETGROUPS, PRCTL, PRLIMIT, NUMBER = 105, 106, 112, 116, 157, 302, -1
WORDS = 6
BLANK = (0,) * WORDS
PR_SET_PDEATHSIG = 1
DEFAULTED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD, signal.SIGXFSZ)
SUID_DUMPABLE = "/proc/sys/fs/suid_dumpable"


def _may_share():
    """Is memory that a child of the user's shares closed to the user?"""
    try:
        fd = os.open(SUID_DUMPABLE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.read(fd, 16).strip() != b"1"
    finally:
        os.close(fd)


@functools.lru_cache(maxsize=1)
def code():
    """The code as a function; None where it cannot be used. The agent makes it for all its supervisors."""
    if os.uname().machine != "x86_64":
        return None
    flags, prot = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, flags, prot)
        page.write(CODE)
        at = ctypes.addressof(ctypes.c_char.from_buffer(page))
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(ctypes.c_void_p(at), mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC) != 0:
            return None
    except OSError:
        return None
    # PYFUNCTYPE keeps the interpreter's lock held
    function = ctypes.PYFUNCTYPE(ctypes.c_long, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)(at)
    function.page = page
    return function


class Calls:
    """System calls, as the words of a list that the code goes through, and what they point to."""

    def __init__(self):
        self.words, self.kept = [], []

    def add(self, number, *arguments):
        self.words += (number, *arguments, *BLANK[len(arguments) + 1 :])

    def at(self, data):
        self.kept.append(data)
        return ctypes.addressof(data)

    def text(self, text):
        return self.at(ctypes.create_string_buffer(os.fsencode(text)))


class Texts:
    """What one task after the other is started with: what stayed as it was is not written down again."""

    def __init__(self):
        self._known = {}  # the environment of the last one, as bytes
        self._settings, self._calls = None, None

    def of(self, environ):
        before, self._known = self._known, {}
        for pair in environ.items():
            text = before.get(pair)
            self._known[pair] = os.fsencode("%s=%s" % pair) if text is None else text
        return list(self._known.values())

    def calls(self, *settings):
        """Those between setsid and exec."""
        if self._settings != settings:
            self._settings, self._calls = settings, _calls(*settings)
        return self._calls


def _calls(uid, gid, groups, umask, files, chdir, printed):
    calls = Calls()
    if os.getuid() == 0:
        calls.add(SETGROUPS, len(groups), calls.at((ctypes.c_uint32 * len(groups))(*groups)))
        calls.add(SETGID, gid)
        calls.add(SETUID, uid)
    calls.add(PRCTL, PR_SET_PDEATHSIG, signal.SIGKILL)  # setuid clears it, so it comes after
    calls.add(UMASK, umask)
    calls.add(PRLIMIT, 0, resource.RLIMIT_NOFILE, calls.at((ctypes.c_uint64 * 2)(*map(_limit, files))))
    calls.add(CHDIR, calls.text(chdir))
    calls.add(CLOSE, 0)
    calls.add(OPEN, calls.text(os.devnull), os.O_RDONLY)  # as the lowest that is free
    calls.add(DUP2, printed, 1)
    calls.add(DUP2, printed, 2)
    default = calls.at((ctypes.c_uint64 * 4)())
    for number in DEFAULTED:
        calls.add(SIGACTION, number, default, 0, 8)
    return calls


class Spawned:
    """One task on its way to exec. It must be kept until then: its list is what the child reads."""

    def __init__(self, user, chdir, printed, files, path, arguments, environ, texts):
        """`printed` becomes its output; `files`: how many it may have open, soft and hard."""
        self.pid = -1
        self._common = texts.calls(user.uid, user.gid, user.groups, umask_of(environ), files, chdir, printed)
        self.own = own = Calls()
        own_id = own.at(ctypes.create_string_buffer(b"SLURM_TASK_PID=", 40))
        own.add(NUMBER, own_id + len("SLURM_TASK_PID="), own.at(ctypes.create_string_buffer(24)) + 24)
        environ.pop("SLURM_TASK_PID", None)
        encoded = texts.of(environ)
        envp = (ctypes.c_char_p * (len(encoded) + 2))(*encoded)
        envp = (ctypes.c_void_p * (len(encoded) + 2)).from_buffer(envp)
        envp[len(encoded)] = own_id
        words = [os.fsencode(word) for word in (path, *arguments)]
        argv = (ctypes.c_char_p * (len(words) + 1))(*words)
        own.kept += [encoded, words]
        own.add(EXECVE, own.text(path), own.at(argv), own.at(envp))

    def begin(self, home, doors):
        """Its process id, below 0 where it cannot be. It is born in the control group of the descriptor
        `home` (-1: none), and enters those of which `doors` are the lists of processes."""
        function = code()
        if function is None or not _may_share():
            return -1
        first, zero = Calls(), self.own.at(ctypes.c_char(b"0"))
        first.add(SETSID)
        for door in doors:
            first.add(WRITE, door, zero, 1)
        words = first.words + self._common.words + self.own.words
        self.list = (ctypes.c_int64 * len(words))(*words)
        stack = self.own.at(ctypes.create_string_buffer(STACK_BYTES))
        flags = CLONE_VM | CLONE_CLEAR_SIGHAND | (CLONE_INTO_CGROUP if home >= 0 else 0)
        how = (ctypes.c_uint64 * 11)(
            flags, 0, 0, 0, signal.SIGCHLD, stack, STACK_BYTES, 0, 0, 0, max(home, 0)
        )
        self.pid = function(ctypes.addressof(how), ctypes.sizeof(how), ctypes.addressof(self.list))
        return self.pid

    def failed(self):
        """Did one of its calls fail? Known once it has called exec or has ended."""
        return any(result < 0 for result in self.list[WORDS - 1 :: WORDS])


def _limit(value):
    return (1 << 64) - 1 if value == resource.RLIM_INFINITY else value
