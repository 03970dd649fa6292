"""What the kernel refuses in the sandbox: a filter of system calls for seccomp.

Everything is allowed but: other networks than a process's own pairs, ways to another process's
memory or settings, new namespaces and mounts, keys, kernel programs, memory that no limit counts.
"""

import errno
import tempfile
from typing import Any

from attnlab.errors import CouldNotRun

_INSTALL = "pip install 'attnlab[grade]'"

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
_UNKNOWN = -1  # to this machine
_FAMILY_UNIX = 1
_TYPE_INTO_TERMINAL = 0x5412  # TIOCSTI
_NEW_NAMESPACES = (0x10000000, 0x40000000, 0x20000000, 0x00020000, 0x08000000, 0x04000000)


def build_filter() -> bytes:
    """Return the filter as the kernel takes it.

    Raises:
        CouldNotRun: pyseccomp or libseccomp is missing.
    """
    seccomp = _import()
    rules = seccomp.SyscallFilter(seccomp.ALLOW)
    refuse = seccomp.ERRNO(errno.EPERM)

    def add(action: int, name: str, *args: Any) -> None:
        if seccomp.resolve_syscall(seccomp.system_arch(), name) != _UNKNOWN:
            rules.add_rule(action, name, *args)

    for name in _FORBIDDEN.split():
        add(refuse, name)
    of_others = seccomp.Arg(0, seccomp.NE, 0)
    for name in _OF_OTHERS.split():
        add(refuse, name, of_others)
    for name in _OF_OTHERS_SECOND.split():
        add(refuse, name, seccomp.Arg(1, seccomp.NE, 0))
    for name in ("socket", "socketpair"):
        add(refuse, name, seccomp.Arg(0, seccomp.NE, _FAMILY_UNIX))
    for flag in _NEW_NAMESPACES:
        add(refuse, "clone", seccomp.Arg(0, seccomp.MASKED_EQ, flag, flag))
    add(seccomp.ERRNO(errno.ENOSYS), "clone3")  # its flags are in memory
    add(refuse, "ioctl", seccomp.Arg(1, seccomp.MASKED_EQ, 0xFFFFFFFF, _TYPE_INTO_TERMINAL))
    with tempfile.TemporaryFile() as stream:
        rules.export_bpf(stream)
        stream.seek(0)
        return stream.read()


def _import() -> Any:
    try:
        import pyseccomp
    except ModuleNotFoundError:
        raise CouldNotRun(f"grading needs pyseccomp: {_INSTALL}") from None
    except (RuntimeError, OSError):
        raise CouldNotRun("grading needs libseccomp: apt-get install libseccomp2") from None
    return pyseccomp
