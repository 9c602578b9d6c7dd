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
PR_SET_PDEATHSIG = 1
DEFAULTED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD, signal.SIGXFSZ)
SUID_DUMPABLE = "/proc/sys/fs/suid_dumpable"


def _may_share():
    """Is memory that a child of the user's shares closed to the user?"""
    try:
        with open(SUID_DUMPABLE, "rb", 0) as file:
            return file.read().strip() != b"1"
    except OSError:
        return False


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


class Spawned:
    """One task on its way to exec. It must be kept until then: its list is what the child reads."""

    def __init__(self, user, chdir, printed, files, path, arguments, environ):
        """`printed` becomes its output; `files`: how many it may have open, soft and hard."""
        self.kept, self.pid, self.calls = [], -1, []
        self._call(SETSID)
        self.first = len(self.calls)
        if os.getuid() == 0:
            groups = (ctypes.c_uint32 * len(user.groups))(*user.groups)
            self._call(SETGROUPS, len(user.groups), self._at(groups))
            self._call(SETGID, user.gid)
            self._call(SETUID, user.uid)
        self._call(PRCTL, PR_SET_PDEATHSIG, signal.SIGKILL)  # setuid clears it, so it comes after
        self._call(UMASK, umask_of(environ))
        self._call(PRLIMIT, 0, resource.RLIMIT_NOFILE, self._at((ctypes.c_uint64 * 2)(*map(_limit, files))))
        self._call(CHDIR, self._text(chdir))
        self._call(CLOSE, 0)
        self._call(OPEN, self._text(os.devnull), os.O_RDONLY)  # as the lowest that is free
        self._call(DUP2, printed, 1)
        self._call(DUP2, printed, 2)
        default = self._at((ctypes.c_uint64 * 4)())
        for number in DEFAULTED:
            self._call(SIGACTION, number, default, 0, 8)
        own, digits = ctypes.create_string_buffer(b"SLURM_TASK_PID=", 40), ctypes.create_string_buffer(24)
        self._call(NUMBER, self._at(own) + len("SLURM_TASK_PID="), self._at(digits) + 24)
        texts = [
            os.fsencode(name) + b"=" + os.fsencode(value)
            for name, value in environ.items()
            if name != "SLURM_TASK_PID"
        ]
        envp = (ctypes.c_char_p * (len(texts) + 2))(*texts)
        envp = (ctypes.c_void_p * (len(texts) + 2)).from_buffer(envp)
        envp[len(texts)] = ctypes.addressof(own)
        words = [os.fsencode(word) for word in (path, *arguments)]
        argv = (ctypes.c_char_p * (len(words) + 1))(*words)
        self.kept += [texts, words]
        self._call(EXECVE, self._text(path), self._at(argv), self._at(envp))

    def _call(self, number, *arguments):
        self.calls.append([number, *arguments])

    def _at(self, data):
        self.kept.append(data)
        return ctypes.addressof(data)

    def _text(self, text):
        return self._at(ctypes.create_string_buffer(os.fsencode(text)))

    def begin(self, home, doors):
        """Its process id, below 0 where it cannot be. It is born in the control group of the descriptor
        `home` (-1: none), and enters those of which `doors` are the lists of processes."""
        function = code()
        if function is None or not _may_share():
            return -1
        zero = self._at(ctypes.c_char(b"0"))
        self.calls[self.first : self.first] = [[WRITE, door, zero, 1] for door in doors]
        self.list = (ctypes.c_int64 * (WORDS * len(self.calls)))()
        for i, call in enumerate(self.calls):
            self.list[WORDS * i : WORDS * i + len(call)] = call
        stack = self._at(ctypes.create_string_buffer(STACK_BYTES))
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
