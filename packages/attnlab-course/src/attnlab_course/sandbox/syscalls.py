"""What the kernel refuses in the sandbox: a filter of system calls for seccomp.

Everything is allowed but: other networks than a process's own pairs, ways to another process's
memory or settings, new namespaces and mounts, keys, kernel programs, memory that no limit counts.
"""

import ctypes
import errno
import os
import tempfile

from attnlab.errors import CouldNotRun

_FORBIDDEN = """
    ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp
    pidfd_getfd pidfd_open
    unshare setns mount umount umount2 pivot_root chroot move_mount open_tree fsopen fsmount
    fsconfig fspick mount_setattr open_by_handle_at name_to_handle_at quotactl quotactl_fd
    fanotify_init fanotify_mark
    keyctl add_key request_key bpf perf_event_open userfaultfd
    io_uring_setup io_uring_enter io_uring_register io_setup io_submit vmsplice
    shmget shmat shmctl msgget msgsnd semget semop mq_open memfd_create memfd_secret
    kexec_load kexec_file_load init_module finit_module delete_module acct swapon swapoff reboot
    settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname syslog vhangup
    iopl ioperm modify_ldt personality lookup_dcookie uselib ustat sysfs nfsservctl
    move_pages migrate_pages
"""

# Refused where they name another process: by their first argument, or by their second.
_OF_OTHERS = "prlimit64 sched_setaffinity sched_setscheduler sched_setparam sched_setattr"
_OF_OTHERS_SECOND = "setpriority ioprio_set"
_FAMILY_UNIX = 1
_TYPE_INTO_TERMINAL = 0x5412  # TIOCSTI
_NEW_NAMESPACES = (0x10000000, 0x40000000, 0x20000000, 0x00020000, 0x08000000, 0x04000000)


_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000  # actions of libseccomp; the second holds an error number
_NOT_EQUAL, _MASKED_EQUAL = 1, 7


class _Comparison(ctypes.Structure):
    """What an argument of a system call is compared with: `scmp_arg_cmp` of libseccomp."""

    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("value", ctypes.c_uint64),
        ("masked_value", ctypes.c_uint64),
    )


def build_filter() -> bytes:
    """Return the filter as the kernel takes it.

    Raises:
        CouldNotRun: libseccomp is missing.
    """
    library = _load_library()
    rules = ctypes.c_void_p(library.seccomp_init(_ALLOW))

    def refuse(name: str, *comparison: int, error: int = errno.EPERM) -> None:
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number < 0:  # no call of this machine
            return
        compared = (_Comparison * bool(comparison))()
        if comparison:
            compared[0] = _Comparison(*comparison)
        action = ctypes.c_uint32(_REFUSE | error)
        status = library.seccomp_rule_add_array(rules, action, number, len(compared), compared)
        if status:
            raise CouldNotRun(f"libseccomp takes no rule for {name}: {os.strerror(-status)}")

    for name in _FORBIDDEN.split():
        refuse(name)
    for name in _OF_OTHERS.split():
        refuse(name, 0, _NOT_EQUAL, 0)
    for name in _OF_OTHERS_SECOND.split():
        refuse(name, 1, _NOT_EQUAL, 0)
    for name in ("socket", "socketpair"):
        refuse(name, 0, _NOT_EQUAL, _FAMILY_UNIX)
    for flag in _NEW_NAMESPACES:
        refuse("clone", 0, _MASKED_EQUAL, flag, flag)
    refuse("clone3", error=errno.ENOSYS)  # its flags are in memory
    refuse("ioctl", 1, _MASKED_EQUAL, 0xFFFFFFFF, _TYPE_INTO_TERMINAL)
    with tempfile.TemporaryFile() as stream:
        library.seccomp_export_bpf(rules, stream.fileno())
        library.seccomp_release(rules)
        stream.seek(0)
        return stream.read()


def _load_library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        raise CouldNotRun("grading needs libseccomp: apt-get install libseccomp2") from None
    library.seccomp_init.restype = ctypes.c_void_p
    return library
