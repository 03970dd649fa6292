"""Opens folders, in a copy of the process of the tests, and tells what that did."""

import json
import os
import pickle
import resource
import sys
import tempfile
import warnings
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from unittest import mock

import transformers
from torch import nn

import attnlab
from attnlab.pretrained.model_files import build, folder, hub
from attnlab.pretrained.model_files.gguf import gguf_cache
from attnlab.pretrained.model_files.hub import load_pretrained

SEEN: list[tuple[str, str]] = []
WATCHING: list[bool] = []  # while there is something in it
MODULES: list[int] = []  # one for each module that is made
LIBRARIES = [place for place in sys.path if place.endswith("site-packages")]
SOURCE = os.path.dirname(os.path.dirname(os.path.realpath(attnlab.__file__)))
ALLOWED = tuple(
    map(
        os.path.realpath,
        (sys.prefix, sys.base_prefix, *LIBRARIES, "/proc/meminfo", "/sys/fs/cgroup", "/dev/null"),
    )
)


def hook(event, details):
    if not WATCHING:
        return
    if event == "open" and isinstance(details[0], str | bytes | os.PathLike):
        SEEN.append(("open", os.path.realpath(os.fsdecode(details[0]))))
    elif event.startswith(("socket.", "subprocess.", "os.system", "os.exec", "pickle.")):
        SEEN.append((event, str(details)[:200]))


def watched(path):
    """Open one path, and say how that ended and what was seen."""
    SEEN.clear()
    before, modules_before = forgotten_peak(), sum(MODULES)
    is_folder = os.path.lexists(path)
    WATCHING.append(True)
    try:
        load_pretrained(path)
        error, words = "", ""
    except BaseException as raised:
        error, words = type(raised).__name__, str(raised)
    WATCHING.clear()
    modules_made, megabytes = sum(MODULES) - modules_before, peak() - before
    allowed = (*ALLOWED, *own_places(), SOURCE)
    if is_folder:
        allowed += (os.path.realpath(path),)
    elsewhere = [place for kind, place in SEEN if kind == "open" and not place.startswith(allowed)]
    modules = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
    beside = os.path.realpath(os.path.dirname(path)) + os.sep
    return {
        "error": error,
        "words": words,
        "elsewhere": elsewhere,
        "sockets": [details for kind, details in SEEN if kind.startswith("socket.")],
        "programs": [details for kind, details in SEEN if kind.startswith(("subprocess.", "os."))],
        "unpickled": [details for kind, details in SEEN if kind.startswith("pickle.")],
        "imported": [file for file in modules if file.startswith(beside)],
        "modules": modules_made,
        "megabytes": megabytes,
    }


def count_modules():
    """Note each module that is made: a measure of work without the machine."""
    make = nn.Module.__init__

    def counting(self, *arguments, **options):
        MODULES.append(1)
        make(self, *arguments, **options)

    nn.Module.__init__ = counting


def own_places():
    """Say where a GGUF file is spread out."""
    temporary = os.path.realpath(tempfile.gettempdir())
    return os.path.realpath(gguf_cache()), os.path.join(temporary, "attnlab-gguf-")


def forgotten_peak():
    """Let the system forget the most memory that this process ever had."""
    with suppress(OSError):  # not on every system
        Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak():
    """Return the most memory since the peak was forgotten, in MB."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def with_fault(fault):  # noqa: C901
    """Take one check out."""
    stack = ExitStack()

    def change(where, name, what):
        stack.enter_context(mock.patch.object(where, name, what))

    def trusting(path, **_):
        return transformers.AutoModelForCausalLM.from_pretrained(
            path, trust_remote_code=True, local_files_only=True
        )

    def unpickling(path, **_):
        with open(Path(path) / "pytorch_model.bin", "rb") as file:
            return pickle.load(file)

    match fault:
        case "links may lead anywhere":
            change(folder, "_check_entry", lambda entry, root: None)
        case "remote code is trusted":
            change(hub, "inspect_folder", trusting)
        case "pickles are opened":
            change(hub, "inspect_folder", unpickling)
        case "nobody compares":
            change(build, "_compare", lambda *_: ({}, []))
        case "the network is always there":
            change(hub, "is_offline", lambda: False)
            change(hub, "_answers", lambda host, port: True)
        case "as many modules as asked":
            change(build, "bounded_modules", lambda most, name: nullcontext())
        case "":
            pass
        case _:
            raise AssertionError(fault)
    return stack


def watch(cases, file):
    """Open each (name, path, fault) and write what that did to a file."""
    warnings.simplefilter("default")
    with suppress(Exception):
        load_pretrained(cases[0][1])  # the first is sound: imports are no part of what is measured
    sys.addaudithook(hook)
    count_modules()
    found = []
    for _, path, fault in cases:
        with with_fault(fault):
            found.append(watched(path))
    WATCHING.clear()
    file.write_text(json.dumps(found))
    return 0
