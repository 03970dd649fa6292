"""Programs that try to reach out of the sandbox, to harm the machine, or to outlive their request.

Each defines `attempt(secret, port, host, folder)`, which gets the path of a file it must not read,
the port of a server on this machine, the process that runs the tests, and a folder it must not
write into. It returns True where it got out, and what it read where it read something. `ENDLESS`
are those that never answer by themselves.
"""

_SYSTEM_CALL = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    libc.syscall.restype = ctypes.c_long
    return libc.syscall(ctypes.c_long(number), *[
        each if isinstance(each, (bytes, ctypes.Array)) else ctypes.c_long(each)
        for each in args]) >= 0
"""

_DAEMON = """
import os, subprocess, sys, threading, time
def last():
    time.sleep(60)
    os._exit(0)
"""


def _network(family: str, kind: str, address: str, more: str = "") -> str:
    return f"""
import socket
def attempt(secret, port, host, folder):
    link = socket.socket(socket.{family}, socket.{kind} {more})
    link.settimeout(0.5)
    link.connect({address})
    link.send(b"hello")
    return True
"""


def _reads(path: str) -> str:
    return f"""
import os
def attempt(secret, port, host, folder):
    with open({path}, "rb") as stream:
        return stream.read(200).decode(errors="replace") or "nothing"
"""


def _writes(path: str) -> str:
    return f"""
import os
def attempt(secret, port, host, folder):
    with open({path}, "a") as stream:
        stream.write("written")
    return True
"""


def _calls(number: int, *args: str) -> str:
    return f"""{_SYSTEM_CALL}
def attempt(secret, port, host, folder):
    return call({number}, {", ".join(args)})
"""


def _does(body: str, before: str = "") -> str:
    lines = "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
    return f"{before}\ndef attempt(secret, port, host, folder):\n{lines}\n"


NETWORK = {
    "TCP to this machine": _network("AF_INET", "SOCK_STREAM", "('127.0.0.1', port)"),
    "UDP to this machine": _network("AF_INET", "SOCK_DGRAM", "('127.0.0.1', port)"),
    "raw packets": _network("AF_INET", "SOCK_RAW", "('127.0.0.1', 0)", ", socket.IPPROTO_ICMP"),
    "netlink": _network("AF_NETLINK", "SOCK_RAW", "(0, 0)"),
    "a socket of the virtual machine": _network("AF_VSOCK", "SOCK_STREAM", "(2, port)"),
    "a socket of kernel cryptography": _network("AF_ALG", "SOCK_SEQPACKET", "('hash', 'sha256')"),
    "an abstract socket of the host": _network("AF_UNIX", "SOCK_STREAM", "f'\\0attnlab-{port}'"),
    "a socket in a folder of the host": _network("AF_UNIX", "SOCK_STREAM", "folder + '/socket'"),
    "a web address": _does(
        "return urllib.request.urlopen(f'http://127.0.0.1:{port}/', timeout=0.5).read(9).decode()",
        "import urllib.request",
    ),
    "a server of its own": _does(
        "socket.create_server(('127.0.0.1', 0))\nreturn True", "import socket"
    ),
    "the list of network interfaces": _does(
        "return len(socket.if_nameindex()) > 1", "import socket"
    ),
}

READING = {
    "a file of the host": _reads("secret"),
    "the users": _reads("'/etc/passwd'"),
    "the passwords": _reads("'/etc/shadow'"),
    "the name of the host": _does(
        "return os.uname().nodename != 'box' or os.path.exists('/etc/hostname')", "import os"
    ),
    "all homes": _does(  # but the way to a Python that lies in one
        "own = (sys.prefix, sys.base_prefix, *sys.path)\n"
        "names = [f'/home/{one}/{name}' for one in os.listdir('/home')\n"
        "         for name in os.listdir(f'/home/{one}')]\n"
        "return any(not any(path.startswith(name) for path in own) for name in names)",
        "import os, sys",
    ),
    "attnlab": _does("import attnlab.errors\nreturn True"),
    "a file through a link": _does(
        "os.symlink(secret, '/box/link')\nreturn open('/box/link').read()", "import os"
    ),
    "a file above the root": _does(
        "return open('/usr/' + '../' * 30 + secret.lstrip('/')).read()", "import os"
    ),
    "the root of its first process": _reads("f'/proc/1/root{secret}'"),
    "the root of its parent": _reads("f'/proc/{os.getppid()}/root{secret}'"),
    "the memory of its parent": _reads("f'/proc/{os.getppid()}/mem'"),
    "the environment of its first process": _does(
        "return 'ATTNLAB_SECRET' in open('/proc/1/environ').read()"
    ),
    "the variables of the host": _does(
        "return 'ATTNLAB_SECRET' in os.environ or 'PWD_OF_HOST' in os.environ", "import os"
    ),
    "the processes of the host": _does(
        "found = [each for each in os.listdir('/proc') if each.isdigit()]\n"
        "return len(found) > 8 or os.path.exists(f'/proc/{host}/status') and host > 50",
        "import os",
    ),
    "what its parent still reads": _does(
        "stream = os.open(f'/proc/{os.getppid()}/fd/0', os.O_RDONLY | os.O_NONBLOCK)\nreturn True",
        "import os",
    ),
    "the memory of the kernel": _reads("'/dev/mem'"),
    "a file by its handle": _calls(304, "3", "ctypes.create_string_buffer(128)", "0"),
}

WRITING = {
    "into a folder of the host": _writes("folder + '/written'"),
    "into the root": _writes("'/written'"),
    "into the system's programs": _writes("'/usr/bin/written'"),
    "into Python's packages": _does(
        "import torch\n"
        "open(os.path.join(os.path.dirname(torch.__file__), 'written.py'), 'w')\nreturn True",
        "import os",
    ),
    "over the runner": _writes("'/runner.py'"),
    "another file over the runner": _does(
        "open('/box/new', 'w').close()\nos.replace('/box/new', '/runner.py')\nreturn True",
        "import os",
    ),
    "into its parent's memory": _writes("f'/proc/{os.getppid()}/mem'"),
    "into its parent's reply": _writes("f'/proc/{os.getppid()}/fd/3'"),
    "into the kernel's settings": _writes("'/proc/sys/kernel/core_pattern'"),
    "the owner of a file": _does(
        "open('/box/own', 'w').close()\nos.chown('/box/own', 0, 0)\nreturn True", "import os"
    ),
    "a device": _does(
        "os.mknod('/box/disk', 0o60666, os.makedev(254, 0))\nreturn True", "import os"
    ),
    "a lower place among the killed": _does(
        "open('/proc/self/oom_score_adj', 'w').write('-1000')\nreturn True"
    ),
}

KERNEL = {
    "a new user namespace": _calls(272, "0x10000000"),
    "a new network namespace": _calls(272, "0x40000000"),
    "a new mount namespace": _calls(272, "0x20000"),
    "a process in a new namespace": _calls(56, "0x10000000 | 17", "0", "0", "0", "0"),
    "a process by clone3": _calls(435, "ctypes.create_string_buffer(88)", "88"),
    "the namespace of its first process": _does(
        "stream = os.open('/proc/1/ns/net', os.O_RDONLY)\nreturn call(308, stream, 0)", _SYSTEM_CALL
    ),
    "a mount": _calls(165, "b'none'", "b'/box'", "b'tmpfs'", "0", "0"),
    "an unmount": _calls(166, "b'/proc'", "2"),
    "another root": _calls(155, "b'/box'", "b'/box'"),
    "a root of its own": _does("os.chroot('/box')\nreturn True", "import os"),
    "a tree by the new calls": _calls(428, "-100", "b'/'", "1"),
    "the debugger on its parent": _does("return call(101, 16, os.getppid(), 0, 0)", _SYSTEM_CALL),
    "another process's memory": _does(
        "return call(310, os.getppid(), 0, 0, 0, 0, 0)", _SYSTEM_CALL
    ),
    "another process's streams": _does(
        "link = libc.syscall(434, os.getppid(), 0)\nreturn link >= 0 and call(438, link, 0, 0)",
        _SYSTEM_CALL,
    ),
    "keys": _calls(248, "b'user'", "b'name'", "b'data'", "4", "-3"),
    "the list of keys": _calls(250, "0", "-3", "1"),
    "a program in the kernel": _calls(321, "0", "ctypes.create_string_buffer(64)", "64"),
    "counters of the processor": _calls(
        298, "ctypes.create_string_buffer(128)", "0", "-1", "-1", "0"
    ),
    "faults in user space": _calls(323, "1"),
    "requests by io_uring": _calls(425, "8", "ctypes.create_string_buffer(128)"),
    "a module of the kernel": _calls(175, "b'module'", "6", "b''"),
    "another kernel": _calls(246, "0", "0", "0", "0"),
    "a restart": _calls(169, "0xFEE1DEAD", "672274793", "0", "0"),
    "another time": _calls(227, "0", "ctypes.create_string_buffer(16)"),
    "another host name": _does("socket.sethostname('other')\nreturn True", "import socket"),
    "the ports of the machine": _calls(172, "3"),
    "the log of the kernel": _calls(103, "10", "0", "0"),
    "swapping": _calls(167, "b'/box/swap'", "0"),
    "memory no limit counts": _calls(319, "b'name'", "0"),
    "memory that stays (System V)": _calls(29, "0", "1 << 20", "0o1600"),
    "messages that stay (System V)": _calls(68, "0", "0o1600"),
    "to be root": _does("os.setuid(0)\nreturn True", "import os"),
    "other groups": _does("os.setgroups([0])\nreturn True", "import os"),
    "another user's programs": _does(
        "done = subprocess.run(['/usr/bin/su', '-c', 'id'], capture_output=True, stdin=-3)\n"
        "return b'uid=0' in done.stdout",
        "import subprocess",
    ),
    "all capabilities": _does(
        "text = open('/proc/self/status').read()\n"
        "return 'CapEff:\\t0000000000000000' not in text or 'NoNewPrivs:\\t1' not in text"
    ),
    "system calls of 32 bits": _does(
        "code = b'\\xb8\\x14\\0\\0\\0\\xcd\\x80\\xc3'  # getpid by int 0x80\n"
        "page = mmap.mmap(-1, 4096, prot=7)\npage.write(code)\n"
        "place = ctypes.addressof(ctypes.c_char.from_buffer(page))\n"
        "return ctypes.CFUNCTYPE(ctypes.c_int)(place)() > 0",
        "import ctypes, mmap",
    ),
    "letters typed into the terminal": _does(
        "import fcntl\nfcntl.ioctl(os.open('/dev/tty', os.O_RDWR), 0x5412, b'x')\nreturn True",
        "import os",
    ),
}

PROCESSES = {
    "a signal to the host": _does("os.kill(host, 0)\nreturn host > 50", "import os"),
    "a signal to its first process": _does(
        "os.kill(1, 9)\nreturn False if os.path.exists('/proc/1') else True", "import os"
    ),
    "limits for its parent": _does(
        "import resource\nresource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (3, 3))\n"
        "return True",
        "import os",
    ),
    "a higher limit": _does(
        "import resource\nresource.setrlimit(resource.RLIMIT_NPROC, (10**6, 10**6))\nreturn True"
    ),
    "a core file": _does(
        "import resource\nif os.fork() == 0:\n    os.abort()\nos.wait()\n"
        "return any('core' in each for each in os.listdir('/box'))",
        "import os",
    ),
    "a process forked twice": _DAEMON
    + _does(
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        last()\n"
        "    os._exit(0)"
    ),
    "a program that ignores signals": _DAEMON
    + _does(
        "code = 'import signal, time\\nfor n in range(1, 32):\\n  try: signal.signal(n, 1)\\n'"
        "'  except OSError: pass\\ntime.sleep(60)'\n"
        "subprocess.Popen([sys.executable, '-I', '-c', code], start_new_session=True)"
    ),
    "a thread that goes on": _DAEMON + _does("threading.Thread(target=last).start()"),
    "processes that fork as they are killed": _DAEMON
    + _does(
        "for _ in range(4):\n    if os.fork() == 0:\n        os.setsid()\n"
        "        while True:\n            try:\n                if os.fork():\n"
        "                    os._exit(0)\n            except OSError:\n                pass"
    ),
    "a fork bomb": _does(
        "begun = 0\ntry:\n    while begun < 300:\n        if os.fork() == 0:\n"
        "            time.sleep(60)\n            os._exit(0)\n        begun += 1\n"
        "except OSError:\n    pass\nreturn begun > 60",
        "import os, time",
    ),
    "a thousand threads": _does(
        "begun = 0\ntry:\n    for begun in range(1000):\n"
        "        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "except RuntimeError:\n    pass\nreturn begun > 60",
        "import threading, time",
    ),
    "no signal that can end it": _does(
        "for each in range(1, 32):\n    try:\n        signal.signal(each, signal.SIG_IGN)\n"
        "    except OSError:\n        pass\nos.kill(os.getppid(), 0)\nreturn False",
        "import os, signal",
    ),
    "a signal that Python hears, to its parent": _does(
        "for each in range(1, 32):\n    os.kill(os.getppid(), each)\n"
        "os.kill(os.getppid(), signal.SIGSTOP)\nreturn False",
        "import os, signal",
    ),
    "an end of its parent": _does("os.kill(os.getppid(), 9)\ntime.sleep(9)", "import os, time"),
    "an end of all processes": _does("os.kill(-1, 9)\ntime.sleep(9)", "import os, time"),
}

RESOURCES = {
    "eight gigabytes": _does("return len(bytearray(8 * 2**30)) > 0"),
    "memory by many processes": _does(
        "for _ in range(12):\n    if os.fork() == 0:\n        try:\n"
        "            held = [bytearray(b'x') * 2**28 for _ in range(5)]\n"
        "        except MemoryError:\n            pass\n        time.sleep(60)\n"
        "        os._exit(0)\n"
        "time.sleep(60)\nreturn True",
        "import os, time",
    ),
    "shared memory by many processes": _does(
        "for _ in range(12):\n    if os.fork() == 0:\n        held = mmap.mmap(-1, 2**30)\n"
        "        for place in range(0, 2**30, 4096):\n            held[place] = 1\n"
        "        time.sleep(60)\ntime.sleep(60)\nreturn True",
        "import mmap, os, time",
    ),
    "a full disk": _does(
        "written = 0\ntry:\n    for number in range(100):\n"
        "        with open(f'/box/{number}', 'wb') as stream:\n"
        "            written += stream.write(bytes(2**23))\nexcept OSError:\n    pass\n"
        "return written > 2**27"
    ),
    "a file too large": _does(
        "with open('/box/large', 'wb') as stream:\n    stream.truncate(2**26)\nreturn True"
    ),
    "ten thousand files": _does(
        "for number in range(10_000):\n    open(f'/box/{number}', 'w').close()\nreturn False"
    ),
    "deep folders, one that cannot be entered, a file read by nobody": _does(
        "os.mkdir('/box/shut')\nopen('/box/shut/in', 'w').close()\nos.chmod('/box/shut', 0)\n"
        "os.mkfifo('/box/pipe')\n"
        "for _ in range(1000):\n    os.mkdir('deep')\n    os.chdir('deep')\nreturn False",
        "import os",
    ),
    "recursion without end": _does(
        "import sys\nsys.setrecursionlimit(10**9)\nf = lambda: f()\nreturn f()"
    ),
    "a crash": _does("import ctypes\nctypes.string_at(0)\nreturn True"),
    "a flood of standard output": _does(
        "for _ in range(200):\n    os.write(1, bytes(2**20))\nprint('x' * 2**22)\nreturn False",
        "import os",
    ),
    "a flood into its parent": _does(
        "while True:\n    for stream in range(3, 20):\n        try:\n"
        "            os.write(stream, bytes(2**20))\n        except OSError:\n            pass",
        "import os",
    ),
    "an answer of a hundred megabytes": _does("return 'x' * 10**8"),
    "all streams closed": _does("os.closerange(0, 4096)\nreturn False", "import os"),
}

ENDLESS = {
    "a loop without end": _does("while True:\n    pass"),
    "a sleep of an hour": _does("time.sleep(3600)", "import time"),
    "a loop when it is loaded": "while True:\n    pass",
    "a loop that catches everything": _does(
        "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n"
        "        pass"
    ),
    "a lock taken twice": _does(
        "lock = threading.Lock()\nlock.acquire()\nlock.acquire()", "import threading"
    ),
    "a pattern that takes for ever": _does(
        "return bool(re.match('(a+)+b', 'a' * 60))", "import re"
    ),
    "a stopped process": _does("os.kill(os.getpid(), signal.SIGSTOP)", "import os, signal"),
}

ESCAPES = {
    f"{group}: {name}": source
    for group, table in (
        ("network", NETWORK),
        ("reads", READING),
        ("writes", WRITING),
        ("kernel", KERNEL),
        ("processes", PROCESSES),
        ("resources", RESOURCES),
        ("endless", ENDLESS),
    )
    for name, source in table.items()
}

WORKS_WITHOUT_THE_SANDBOX = (
    "network: TCP to this machine",
    "network: an abstract socket of the host",
    "network: a web address",
    "network: a server of its own",
    "reads: a file of the host",
    "reads: the users",
    "reads: attnlab",
    "reads: a file above the root",
    "writes: into a folder of the host",
    "processes: a signal to the host",
)
