"""A filter of system calls for jobs: what no training job needs, and what attacks on kernels begin with.

A deny list as containers have it, without what computing needs: tracing one's own processes and NUMA memory
policies stay. Denied calls fail with EPERM; clone3, whose flags a filter cannot see, fails with ENOSYS, so
that C libraries fall back to clone, and so do all calls of another architecture: 32-bit programs do not run.
Installed by a process that may do so without `no_new_privs`; kept by everything that the job starts.
"""

import ctypes
import errno
import os
import struct

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
X32 = 0x40000000  # the second set of calls of x86-64, with numbers of its own
# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET; and NEWTIME, which unshare alone takes
NAMESPACES, NEWTIME = 0x7E020000, 0x80
# name: (number on x86-64, on aarch64); None where there is no such call
DENIED = {
    # mounts and roots
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433), "mount_setattr": (442, 442), "open_by_handle_at": (304, 265),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "swapon": (167, 224), "swapoff": (168, 225),
    # the kernel itself
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142), "bpf": (321, 280),
    "perf_event_open": (298, 241), "syslog": (103, 116), "acct": (163, 89), "lookup_dcookie": (212, 18),
    "iopl": (172, None), "ioperm": (173, None), "vhangup": (153, 58),
    # the host's name and clocks
    "sethostname": (170, 161), "setdomainname": (171, 162), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "clock_adjtime": (305, 266),
    # namespaces of others, keys of others, and two large surfaces for attacks
    "setns": (308, 268), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}  # fmt: skip
CLONE, UNSHARE, CLONE3 = (56, 220), (272, 97), (435, 435)
LOAD, IF_EQUAL, IF_AT_LEAST, IF_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_prctl = ctypes.CDLL(None, use_errno=True).prctl


def assembled(machine):
    """The filter for `uname -m`, in the form of struct sock_filter; OSError when there is none for it."""
    if machine not in ARCHITECTURES:
        raise OSError(errno.ENOSYS, "there is no filter of system calls for %s" % machine)
    column = list(ARCHITECTURES).index(machine)
    numbers = sorted(call[column] for call in DENIED.values() if call[column] is not None)
    denied, unknown = ERRNO | errno.EPERM, ERRNO | errno.ENOSYS
    code = [
        (LOAD, 0, 0, 4), (IF_EQUAL, 1, 0, ARCHITECTURES[machine]), (RETURN, 0, 0, unknown),
        (LOAD, 0, 0, 0),
    ]  # fmt: skip
    if machine == "x86_64":
        code += [(IF_AT_LEAST, 0, 1, X32), (RETURN, 0, 0, unknown)]
    code += [(IF_EQUAL, 0, 1, CLONE3[column]), (RETURN, 0, 0, unknown)]
    for call, flags in ((CLONE, NAMESPACES), (UNSHARE, NAMESPACES | NEWTIME)):
        # the flags are the first argument, whose lower half lies at 16
        code += [(IF_EQUAL, 0, 4, call[column]), (LOAD, 0, 0, 16), (IF_ANY_BIT, 0, 1, flags),
                 (RETURN, 0, 0, denied), (RETURN, 0, 0, ALLOW)]  # fmt: skip
    for at, number in enumerate(numbers):
        code.append((IF_EQUAL, len(numbers) - at, 0, number))
    code += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, denied)]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def install(code):
    """Bind this process and all that it will start; OSError when the kernel takes no filter."""
    held = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(held))
    _must(_prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.create_string_buffer(program), 0, 0), "seccomp")


def forbid_new_privileges():
    """No program that this process starts gains rights by a set-user-ID bit or file capabilities."""
    _must(_prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def _must(result, what):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, "%s: %s" % (what, os.strerror(number)))
