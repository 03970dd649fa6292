"""Names that an exercise bans are found under every plain disguise, and honest code has none."""

from pathlib import Path

import pytest

from attnlab_course.cases import entry_names
from attnlab_course.catalog import exercise_names, find_exercise
from attnlab_course.cells import solution_text
from attnlab_course.grading.bans import banned_names, line_of_use

BANNED = ("scaled_dot_product_attention", "MultiheadAttention")

USES = {
    "alias": "from torch.nn.functional import scaled_dot_product_attention as a",
    "getattr of a sum": "getattr(F, 'scaled_dot_' + 'product_attention')",
    "getattr of anything": "getattr(F, ''.join(parts))",
    "exec": "exec(text)",
    "importlib": "import importlib\nimportlib.import_module(name)",
    "inner module": "torch._C._nn.scaled_dot_product_attention",
    "ops": "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)",
    "a module as self": "import torch.nn.functional as self\nself.scaled_dot_product_attention(q)",
    "pickles": "import pickle\nf = pickle.loads(b'')",
    "star beside an own function": (
        "from torch import *\ndef scaled_dot_product_attention(): pass\n"
        "scaled_dot_product_attention(q)"
    ),
    "a method of the name beside": (
        "class A:\n    def MultiheadAttention(self): pass\nx = MultiheadAttention"
    ),
    "getattr by its other name": "F.__getattribute__(name)",
}


@pytest.mark.parametrize("how", USES)
def test_a_banned_name_is_found(how):
    assert banned_names(USES[how], BANNED)


LINES = {
    "after words of it": ('"""No softmax."""\n# softmax\nx = "softmax"\ntorch.softmax(x, 0)', 4),
    "after a parameter of the name": ("def f(softmax):\n    return torch.softmax(softmax, 0)", 2),
    "in a chain": ("x = (\n    scores\n    .softmax(-1)\n)", 3),
    "imported": ("from torch import softmax\ndef f(x):\n    return softmax(x, 0)", 3),
    "imported under another name": ("from torch import softmax as s\ns(x)", 1),
    "looked up": ("# softmax\nf = getattr(torch, 'soft' + 'max')", 2),
    "in the answer": (
        "import torch\nprint(torch.softmax(x, 0))\ndef answer():\n    return torch.softmax(x, 0)",
        4,
    ),
}


@pytest.mark.parametrize("how", LINES)
def test_the_line_of_a_use_is_one_of_code(how):
    source, line = LINES[how]
    used = banned_names(source, ("softmax",), ("answer",))
    assert line_of_use(source, ("softmax",), used, ("answer",)) == line


HONEST = {
    "words": '"""Do not use scaled_dot_product_attention here."""',
    "own class of the name": "class MultiheadAttention: pass\nm = MultiheadAttention()",
    "evaluation": "model.eval()\nx = torch.compile",
    "getattr of a plain name": "getattr(self, 'weight')",
    "a message": "raise ValueError('scaled_dot_product_attention is not allowed, see the text')",
    "own attribute": "class A:\n    def f(self):\n        return self.MultiheadAttention",
    "like it": "my_scaled_dot_product_attention_2 = 3",
    "no Python": "def f(:",
}


@pytest.mark.parametrize("what", HONEST)
def test_an_honest_program_has_none(what):
    assert banned_names(HONEST[what], BANNED) == []


SOFTMAX = ("softmax", "log_softmax", "Softmax", "LogSoftmax", "softmin", "Softmin", "logsumexp")

REACHES_SOFTMAX = {
    "function": "import torch\ny = torch.softmax(x, -1)",
    "layer": "from torch import nn\ny = nn.Softmax(dim=-1)(x)",
    "private": "import torch\ny = torch._safe_softmax(x, -1)",
    "module by assignment": "import torch\nF = torch.nn.functional\ny = F.softmax(x, -1)",
    "special": "from torch.special import log_softmax as l",
    "logits": "from torch.distributions.utils import logits_to_probs",
    "distribution": "import torch\ny = torch.distributions.Categorical(logits=x).probs",
    "a loss": "import torch.nn.functional as F\ny = F.cross_entropy(x, i, reduction='none')",
    "cumulative": "import torch\ny = torch.logcumsumexp(x, -1)[..., -1:]",
    "attention": "import torch.nn.functional as F\ny = F.scaled_dot_product_attention(q, k, v)",
    "match": "import torch\nmatch torch:\n    case object(softmax=f): pass",
    "getattr by assignment": "import torch\ng = getattr\nf = g(torch, 'softmax')",
    "methodcaller": "import operator\nf = operator.methodcaller('softmax', -1)",
    "attrgetter by assignment": "import operator\ng = operator.attrgetter\nf = g('softmax')(torch)",
    "vars": "import torch\nf = vars(torch)['softmax']",
    "dict": "import torch\nf = torch.__dict__['softmax']",
    "globals": "from torch import *\nf = globals()[name]",
    "subclasses": "from torch import nn\nf = [k for k in nn.Module.__subclasses__() if k][0]",
    "builtins": "import builtins\nf = builtins.eval('torch.' + name)",
    "dynamic in a function": "def f(x):\n    return eval('x.soft' + 'max(-1)')",
    "star": "from torch import *\ny = softmax(x, -1)",
    "an own class of tensors": (
        "import torch\nclass T(torch.Tensor):\n    def go(self):\n        return self.softmax(-1)"
    ),
    "a static method": (
        "class A:\n    @staticmethod\n    def f(self):\n        return self.softmax(-1)"
    ),
    "self bound anew": (
        "import torch\nclass A:\n    def f(self, x):\n        self = torch\n"
        "        return self.softmax(x, -1)"
    ),
    "a module kept by an own object": (
        "class A:\n    def __init__(self, lib):\n        self.lib = lib\n"
        "    def f(self, x):\n        return self.lib.softmax(x)"
    ),
    "an own name that is bound to a module, too": (
        "class A:\n    def softmax(self): pass\na = A()\na = torch\ny = a.softmax(x)"
    ),
    "a class whose name is bound to another, too": (
        "class A: pass\nA = type_of(torch)\na = A()\ny = a.softmax(x)"
    ),
    "getattr of an own object that hands on": (
        "import torch\nclass A:\n    def __getattr__(self, name):\n"
        "        return getattr(torch, name)\ny = A().softmax(x)"
    ),
    "a call's table": "f = names_of(torch)['softmax']",
}


@pytest.mark.parametrize("how", REACHES_SOFTMAX)
def test_pytorchs_own_softmax_is_found_under_any_plain_name(how):
    assert banned_names(REACHES_SOFTMAX[how], SOFTMAX), how


OWN = "    return torch.exp(x) / torch.exp(x).sum(dim, keepdim=True)\n"
OWN_SOFTMAX = {
    "function": f"import torch\ndef softmax(x, dim):\n{OWN}y = softmax(x, -1)",
    "lambda": "softmax = lambda x: x.exp() / x.exp().sum()\ny = softmax(x)",
    "parameter": "def attend(scores, softmax):\n    return softmax(scores)",
    "local": "def f(x):\n    softmax = x.exp()\n    return softmax / softmax.sum()",
    "loop": "for softmax in (mine, yours):\n    print(softmax(x))",
    "global": "def f():\n    global softmax\n    softmax = mine\ndef g(x): return softmax(x)",
    "method": (
        "class Head:\n    def softmax(self, x): return x\n"
        "    def forward(self, x): return self.softmax(x)"
    ),
    "method of a module": (
        "from torch import nn\nclass Head(nn.Module):\n    def softmax(self, x): return x\n"
        "    def forward(self, x): return self.softmax(x)\nhead = Head()\ny = head.softmax(x)"
    ),
    "inherited": (
        "class A:\n    def softmax(self, x): return x\nclass B(A):\n"
        "    def f(self, x): return super().softmax(x)\ny = B().softmax(x)"
    ),
    "own tensor with a method": (
        "import torch\nclass T(torch.Tensor):\n    def softmax(self, dim): return self.exp()\n"
        "    def go(self): return self.softmax(-1)"
    ),
    "part of an object": (
        "class S:\n    def softmax(self, x): return x\nclass H:\n    def __init__(self):\n"
        "        self.part = S()\n    def f(self, x): return self.part.softmax(x)"
    ),
    "key of a table": "out = {'softmax': 1}\nprint(out['softmax'])",
    "key of a table of a table": "runs = {}\nprint(runs['a']['softmax'])",
    "key of a parameter": "def show(results): return results['softmax']",
    "key of rows": "rows = [{'softmax': 1}]\nfor row in rows: print(row['softmax'])",
    "key of an object's table": (
        "class A:\n    def f(self):\n        self.out = {}\n        return self.out['softmax']"
    ),
    "setting an attribute": "class A: pass\na = A()\na.softmax = mine\na.softmax(x)",
    "parts by number": (
        "from torch import nn\nclass H(nn.Module):\n    def part(self, i):\n"
        "        return getattr(self, f'head_{i}')"
    ),
    "a local name of a builtin": "def f(vars, compile):\n    return vars, compile",
    "own name of a builtin": "def compile(x): return x\ny = compile(1)",
}


@pytest.mark.parametrize("what", OWN_SOFTMAX)
def test_a_softmax_of_the_programs_own_is_not_held(what):
    assert banned_names(OWN_SOFTMAX[what], SOFTMAX) == []


@pytest.mark.parametrize(
    ("source", "finds"),
    [
        ("vars(F)['softmax']", ["softmax", "vars"]),
        ("globals()['log_softmax']", ["globals", "log_softmax"]),
        ("F.__dict__['soft' + 'max']", ["__dict__", "softmax"]),
        ("table_of(F)[f'log_{\"softmax\"}']", ["log_softmax"]),
        ("import names\nnames.of_torch['_softmax']", ["_softmax"]),
        ("getattr(torch, 'nn.Softmax2d')", ["Softmax2d"]),
    ],
)
def test_the_text_of_a_subscript_or_getter_is_read(source, finds):
    assert banned_names(source, SOFTMAX) == finds


MINE = f"import torch\nimport torch.nn.functional as F\ndef softmax(x, dim=-1):\n{OWN}"
BESIDE = {
    "another exercise's answer": "def attention(q): return torch.softmax(q, -1)",
    "a demonstration": "x = torch.ones(3)\nprint((softmax(x) - torch.softmax(x, -1)).abs().max())",
    "a program's main part": "if __name__ == '__main__':\n    softmax = torch.softmax",
    "a test": "def test_it(x=1):\n    assert (softmax(x) == x.softmax(-1)).all()",
    "a class of its own": (
        "class Head:\n    def __init__(self):\n        self.s = torch.nn.Softmax(-1)\nhead = Head()"
    ),
}


@pytest.mark.parametrize("what", BESIDE)
def test_what_an_answer_does_not_reach_is_not_held_against_it(what):
    source = f"{MINE}\n{BESIDE[what]}\n"
    assert banned_names(source, SOFTMAX, ["softmax"]) == []
    assert banned_names(source, SOFTMAX), "without the names that are asked for, all counts"


REACHED = {
    "a helper of a helper": (
        "def b(x): return torch.softmax(x, -1)\na = b\nclass A:\n    go = a\n"
        "def softmax(x): return A.go(x)"
    ),
    "an assignment after it": f"{MINE}\nsoftmax = torch.softmax",
    "in a condition": f"{MINE}\nif (softmax := torch.softmax): pass",
    "in a try": "try:\n    from torch import softmax\nexcept ImportError:\n    pass",
    "a decorator": "def by(f): return lambda g: f\n@by(torch.softmax)\ndef softmax(x): pass",
    "getattr of its own": "get = getattr\ndef softmax(x): return get(torch, 'soft' + 'max')(x, -1)",
    "star": "from torch import *\ndef mine(x): return softmax(x, -1)\n",
    "a main that is always run": (
        f"{MINE}\n__name__ = '__main__'\nif __name__ == '__main__':\n    softmax = torch.softmax"
    ),
    "a table filled later": (
        "table = {}\ndef softmax(x): return table[0](x, -1)\ntable[0] = torch.softmax"
    ),
    "a table filled by a method": (
        "table = []\ndef softmax(x): return table[0](x, -1)\ntable.append(torch.softmax)"
    ),
    "a table filled under another name": (
        "table = []\ndef softmax(x): return table[0](x, -1)\nt = table\nt += [torch.softmax]"
    ),
    "a global": (
        "def set_it(f):\n    global g\n    g = f\ndef softmax(x): return g(x, -1)\n"
        "def go(): set_it(torch.softmax)\ngo()"
    ),
    "setattr": "import math\nsetattr(math, 'm', torch.softmax)\ndef softmax(x): return math.m(x)",
    "a module's names": (
        "import math\nmath.__dict__.update(m=torch.softmax)\ndef softmax(x): return math.m(x, -1)"
    ),
    "its code": "def softmax(x): pass\nsoftmax.__code__ = torch.softmax.__code__",
    "globals": f"{MINE}\nglobals()['softmax'] = torch.softmax",
    "exec beside": f"{MINE}\nexec('softmax = torch.soft' + 'max')",
}


@pytest.mark.parametrize("how", REACHED)
def test_what_an_answer_reaches_is_found(how):
    answer = "mine" if how == "star" else "softmax"
    assert banned_names(f"import torch\n{REACHED[how]}", SOFTMAX, [answer]), how


def test_no_right_answer_of_the_course_is_held():
    """Neither a solution nor one that is written in another way uses what its exercise bans."""
    answers = [(name, solution_text(find_exercise(name).source)) for name in exercise_names()]
    for path in sorted((Path(__file__).parent / "variants").glob("*.py")):
        answers.append((path.stem.partition("__")[0], path.read_text()))
    for name, text in answers:
        exercise = find_exercise(name)
        assert banned_names(text, exercise.parts.banned) == [], name
        assert banned_names(text, exercise.parts.banned, entry_names(exercise)) == [], name
    assert banned_names("exec('x')", ()) == []


def test_deep_expressions_are_said_to_be_unreadable_or_are_read():
    deep = "x = " + "+".join(["'a'"] * 900)
    assert banned_names(deep, BANNED) in ([], ["expressions nested too deep to read"])


@pytest.mark.parametrize(
    "source",
    ["y = F.batch_norm(x.T, None, None, training=True).T", "y = F.normalize(x, dim=-1) * 4"],
)
def test_another_normalization_than_the_banned_one_is_found(source):
    source = f"import torch.nn.functional as F\n{source}"
    assert banned_names(source, ("LayerNorm", "layer_norm"))
    assert (
        banned_names("class A:\n    def normalize(self): return self.normalize()", ["rms_norm"])
        == []
    )
