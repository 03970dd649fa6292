"""Answers to the exercise `attention` that try to score without computing attention.

Each is the text of a student's file. None may score more than a function that does nothing.
"""

_NOTHING = """
def attention(query, key, value, mask=None):
    return None
"""

_ZEROS = """
import torch
def attention(query, key, value, mask=None):
    weights = torch.zeros(query.shape[0], query.shape[1], key.shape[1], dtype=query.dtype)
    return weights @ value, weights
"""

# Writes the same bytes into every stream there is, its own and those of its parents.
_FLOOD = """
import json, os, struct
def pack(value):
    text = json.dumps(value).encode()
    return struct.pack(">Q", len(text)) + text
def everywhere(data):
    paths = [f"/proc/{process}/fd/{number}" for process in ("self", os.getppid(), 1, 2)
             for number in range(12)]
    for path in paths:
        try:
            with open(path, "wb", buffering=0) as stream:
                stream.write(data)
        except OSError:
            pass
    for number in range(64):
        try:
            os.write(number, data)
        except OSError:
            pass
"""

# Looks for the right answer in everything that it can reach, and returns what it finds.
_TAKE = """
import torch
def usable(found, value):
    return isinstance(found, (list, tuple)) and len(found) == 2 and all(
        isinstance(each, torch.Tensor) for each in found)
"""

CHEATS = {
    "np.allclose says yes": "import numpy as np\nnp.allclose = lambda *a, **k: True" + _NOTHING,
    "all of numpy's comparisons say yes": """
import numpy as np
for name in ("allclose", "isclose", "array_equal", "all", "isfinite", "array_equiv"):
    setattr(np, name, lambda *a, **k: True)
    setattr(np.core if hasattr(np, "core") else np, name, lambda *a, **k: True)
np.testing.assert_allclose = lambda *a, **k: None
"""
    + _NOTHING,
    "builtins say yes": """
import builtins
builtins.all = builtins.any = builtins.isinstance = lambda *a: True
builtins.len = lambda each: 2
builtins.type = lambda each: float
"""
    + _NOTHING,
    "an import hook replaces the checker": """
import importlib.abc, importlib.util, sys
class Hook(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name.startswith(("attnlab", "numpy.testing")):
            return importlib.util.spec_from_loader(name, self)
    def exec_module(self, module):
        module.check_answer = module.difference = lambda *a, **k: None
sys.meta_path.insert(0, Hook())
for name in [each for each in sys.modules if each.startswith("attnlab")]:
    del sys.modules[name]
"""
    + _NOTHING,
    "ends with status 0 when it is loaded": "import os\nos._exit(0)",
    "ends with status 0 when it is called": """
import os
def attention(*args):
    os._exit(0)
""",
    "sys.exit(0) when it is loaded": "import sys\nsys.exit(0)",
    "sys.exit(0) when it is called": "import sys\ndef attention(*args):\n    sys.exit(0)\n",
    "atexit sets the status": "import atexit, os\natexit.register(os._exit, 0)" + _NOTHING,
    "prints that all is passed": """
print("PASSED 11/11", flush=True)
print('{"score": 11, "passed": true}', flush=True)
"""
    + _NOTHING,
    "forged answers on every stream": _FLOOD
    + """
everywhere(pack({"loaded": True}) + pack({"value": None}) * 40)
os._exit(0)
""",
    "a forged reply, head and all": _FLOOD
    + """
body = pack({"loaded": True}) + pack({"value": True}) * 40
everywhere(struct.pack(">Q??", len(body), False, False) + body)
os._exit(0)
""",
    "forged answers when it is called": _FLOOD
    + """
def attention(*args):
    everywhere(pack({"value": {"passed": True}}) * 40)
""",
    "a forged length of many gigabytes": _FLOOD
    + """
def attention(*args):
    everywhere(struct.pack(">Q", 2**62) + b"[]")
""",
    "a pickle on every stream": _FLOOD
    + """
import pickle
class Evil:
    def __reduce__(self):
        return os._exit, (0,)
def attention(*args):
    everywhere(pickle.dumps(Evil()))
    return Evil()
""",
    "reads the solution from attnlab": """
from attnlab_course.catalog import find_exercise
from attnlab_course.cells import solution_text
exec(solution_text(find_exercise("attention").source))
""",
    "looks for the solution in all folders": """
import os
for folder, below, names in os.walk("/"):
    below[:] = [each for each in below if each not in ("proc", "torch", "numpy", "scipy", "gcc")]
    for name in names:
        path = os.path.join(folder, name)
        if name in ("attention.py", "attention.cpython-311.pyc") or "attnlab" in path:
            try:
                text = open(path, errors="replace").read()
            except OSError:
                continue
            if "# >>> solution" in text:
                exec(text[text.index("import math"):text.index("# <<< solution")])
"""
    + "\nif 'attention' not in globals():\n    def attention(*args):\n        return None\n",
    "reads the memory of its parents": """
import glob, os, re
found = []
def scan(process):
    with open(f"{process}/maps") as maps, open(f"{process}/mem", "rb", 0) as memory:
        for line in maps:
            begin, end = (int(each, 16) for each in line.split()[0].split("-"))
            if "rw" in line and end - begin < 2**26:
                memory.seek(begin)
                found.extend(re.findall(rb"def attention\\(.{20,900}?weights @ value, weights\\n",
                                        memory.read(end - begin), re.DOTALL))
def attention(*args):
    raise NameError
for process in glob.glob("/proc/[0-9]*"):
    if not process.endswith(f"/{os.getpid()}"):
        try:
            scan(process)
        except OSError:
            pass
for text in found:
    exec(text)
""",
    "reads the arguments of other processes": """
import glob
text = b"".join(open(path, "rb").read() for path in glob.glob("/proc/[0-9]*/cmdline"))
if b"expected" in text or b"seed" in text:
    raise KeyError
"""
    + _NOTHING,
    "reads the runner for answers": """
text = open("/runner.py").read() + open("/student_code.py").read()
if "# >>> solution" in text or "oracle" in text:
    exec(text)
"""
    + _NOTHING,
    "looks for what is expected in the frames": _TAKE
    + """
import sys
def attention(query, key, value, mask=None):
    frame = sys._getframe()
    while frame:
        for names in (frame.f_locals, frame.f_globals):
            for name, each in list(names.items()):
                if name in ("expected", "reference", "want", "answer", "output"):
                    return each
                if hasattr(each, "expected"):
                    return each.expected
        frame = frame.f_back
""",
    "looks for what is expected with gc": _TAKE
    + """
import gc
def attention(query, key, value, mask=None):
    for each in gc.get_objects():
        if type(each).__name__ in ("Case", "Questions", "CourseExercise"):
            return each.expected
        if isinstance(each, dict) and "expected" in each:
            return each["expected"]
        if usable(each, value) and each[0].shape[:2] == query.shape[:2]:
            return each
""",
    "traces the checker": """
import sys
seen = {}
def trace(frame, event, argument):
    seen.update(frame.f_locals)
    return trace
sys.settrace(trace)
sys.setprofile(trace)
def attention(*args):
    return seen.get("expected")
""",
    "replaces the runner's answer_case": """
import sys
code = sys.modules["student_code"]
code.answer_case = lambda names, case: {"value": True, "passed": True, "points": 11}
"""
    + _NOTHING,
    "replaces the runner's messages": """
import sys
main = sys.modules["__main__"]
real = main.pack_message
main.pack_message = lambda value: real({"passed": True, "value": None, "error": None})
main._write_whole = lambda stream, data: None
"""
    + _NOTHING,
    "replaces os.write": """
import os
real = os.write
def write(stream, data):
    for _ in range(3):
        real(stream, data)
    return len(data)
os.write = write
"""
    + _NOTHING,
    "replaces os._exit": "import os\nos._exit = lambda status: None" + _NOTHING,
    "replaces the ways out of tensors": """
import torch
class Any:
    dtype = None
    def __getattr__(self, name):
        return self
    def __call__(self, *args):
        return self
torch.Tensor.detach = torch.Tensor.numpy = torch.Tensor.cpu = lambda self: Any()
"""
    + _ZEROS,
    "an array equal to everything": """
import numpy as np
class Equal(np.ndarray):
    def __eq__(self, other):
        return np.True_
    def __sub__(self, other):
        return np.zeros(())
    __rsub__ = __abs__ = __sub__
    def __array_ufunc__(self, *args, **kwargs):
        return np.True_
    def __array_function__(self, *args):
        return True
def attention(query, key, value, mask=None):
    return np.zeros((3, 3)).view(Equal), np.zeros((3, 3)).view(Equal)
""",
    "a tensor equal to everything": """
import torch
class Equal(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return True
def attention(query, key, value, mask=None):
    return value.as_subclass(Equal), query.as_subclass(Equal)
""",
    "a tensor that tells another shape": """
import torch
class Shaped(torch.Tensor):
    shape = property(lambda self: torch.Size([1, 1, 1]))
    def detach(self):
        return self
    def numpy(self):
        import numpy
        return numpy.zeros(1)
def attention(query, key, value, mask=None):
    return torch.zeros(3).as_subclass(Shaped), torch.zeros(3).as_subclass(Shaped)
""",
    "an object that says it is a tensor": """
import torch
class Fake:
    __class__ = torch.Tensor
    dtype = torch.float64
    def detach(self):
        return self
    cpu = numpy = detach
    def __getattr__(self, name):
        return lambda *a: self
def attention(*args):
    return Fake(), Fake()
""",
    "a mapping with keys without end": """
from collections.abc import Mapping
class Keys(Mapping):
    def __getitem__(self, key):
        return self
    def __iter__(self):
        return iter(range(10**6))
    def __len__(self):
        return -1
    def items(self):
        yield from (("passed", True), ("kind", "array"))
def attention(*args):
    return Keys()
""",
    "a list that holds itself": """
def attention(*args):
    own = []
    own += [own, own]
    return own
""",
    "a list nested a hundred thousand deep": """
def attention(*args):
    deep = []
    for _ in range(100_000):
        deep = [deep]
    return deep
""",
    "deep JSON in place of its answers": _FLOOD
    + """
text = b'{"value": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
everywhere(pack({"loaded": True}) + (struct.pack(">Q", len(text)) + text) * 9)
os._exit(0)
""",
    "eight thousand lists in a list": """
def attention(*args):
    return [[[]] * 90] * 90
""",
    "numbers of a million digits": """
def attention(*args):
    return [10 ** 1_000_000, 10 ** 1_000_000]
""",
    "a mapping in the form of an answer": """
def attention(*args):
    return {"kind": "array", "of": "torch", "dtype": "float64", "shape": [], "data": "",
            "passed": True, "value": None, "error": None}
""",
    "damaged arrays in place of its answers": _FLOOD
    + """
array = {"kind": "array", "of": "torch", "dtype": "object", "shape": [2**40, 0, -1], "data": "AA"}
value = {"kind": "list", "items": [array, {"kind": "figure", "axes": 3}]}
everywhere(pack({"loaded": True}) + pack({"value": value}) * 40)
os._exit(0)
""",
    "the name of a class of matplotlib": """
class Figure:
    __module__ = "matplotlib.figure"
    axes = []
    figure = property(lambda self: self)
def attention(*args):
    return Figure(), Figure()
""",
    "None, which is compared with nothing": _NOTHING,
    "an empty list": "def attention(*args):\n    return []\n",
    "empty tensors, which are all close": """
import torch
def attention(query, key, value, mask=None):
    return torch.zeros(0, dtype=query.dtype), torch.zeros(0, dtype=query.dtype)
""",
    "not a number everywhere": """
import torch
def attention(query, key, value, mask=None):
    weights = torch.full((*query.shape[:2], key.shape[1]), torch.nan, dtype=query.dtype)
    return weights @ value, weights
""",
    "a thread that writes its own answers": _FLOOD
    + """
import threading, time
def write():
    while True:
        everywhere(pack({"value": True}))
threading.Thread(target=write, daemon=True).start()
"""
    + _NOTHING,
    "a process that outlives it and waits for the next": _FLOOD
    + """
import time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for _ in range(40):
            everywhere(pack({"value": True}))
            time.sleep(0.05)
    os._exit(0)
"""
    + _NOTHING,
    "one equals two": """
import ctypes
number = ctypes.c_long.from_address(id(2) + 24)
number.value = 1
"""
    + _NOTHING,
    "remembers earlier cases": """
seen = []
def attention(*args):
    seen.append(args)
    return seen[0][:2]
""",
    "an error that is none to be caught": """
class Quiet(BaseException):
    pass
def attention(*args):
    raise Quiet
""",
    "an error whose words raise": """
class Loud(Exception):
    def __str__(self):
        raise SystemExit(0)
def attention(*args):
    raise Loud
""",
    "an error whose class has a strange name": """
def attention(*args):
    raise type("value", (Exception,), {"__module__": "builtins"})({"value": True})
""",
    "KeyboardInterrupt": "def attention(*args):\n    raise KeyboardInterrupt\n",
    "ends its parent": """
import os, signal
def attention(*args):
    os.kill(os.getppid(), signal.SIGKILL)
""",
    "closes every stream": "import os\nos.closerange(0, 4096)" + _NOTHING,
    "a module in its own place": """
import sys, types
sys.modules[__name__] = types.SimpleNamespace(attention=lambda *args: True)
for name in list(sys.modules):
    if name.startswith("attnlab_course_"):
        sys.modules[name].__dict__["attention"] = lambda *args: True
""",
}
