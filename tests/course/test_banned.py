"""Names that an exercise bans are found under every plain disguise, and honest code has none."""

import pytest

from attnlab.course.grading.bans import banned_names

BANNED = ("scaled_dot_product_attention", "MultiheadAttention")

USES = {
    "call": "F.scaled_dot_product_attention(q, k, v)",
    "import": "from torch.nn.functional import scaled_dot_product_attention",
    "alias": "from torch.nn.functional import scaled_dot_product_attention as a",
    "star": "from torch.nn import *\nMultiheadAttention(4, 2)",
    "star, kept under another name": "from torch.nn import *\nm = MultiheadAttention",
    "own class over it": "class MultiheadAttention(nn.MultiheadAttention): pass",
    "getattr": "getattr(F, 'scaled_dot_product_attention')",
    "getattr of a sum": "getattr(F, 'scaled_dot_' + 'product_attention')",
    "getattr of a format": "getattr(F, f\"scaled_{'dot'}_product_attention\")",
    "getattr of anything": "getattr(F, ''.join(parts))",
    "vars": "vars(F)['scaled_dot_product_attention']",
    "dict": "F.__dict__[name]",
    "attrgetter": "import operator\noperator.attrgetter(name)(F)",
    "attrgetter, imported": "from operator import attrgetter as g\ng(name)(F)",
    "exec": "exec(text)",
    "eval": "eval('F.' + name)",
    "import by name": "__import__('torch.nn.functional')",
    "importlib": "import importlib\nimportlib.import_module(name)",
    "inner module": "torch._C._nn.scaled_dot_product_attention",
    "inner module, imported": "from torch._C import _nn",
    "ops": "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)",
    "a private one": "y = torch._scaled_dot_product_attention_math(q, k, v)",
    "a module as self": "import torch.nn.functional as self\nself.scaled_dot_product_attention(q)",
    "members": "import inspect\nd = dict(inspect.getmembers(F))",
    "pickles": "import pickle\nf = pickle.loads(b'')",
    "star beside an own function": (
        "from torch import *\ndef scaled_dot_product_attention(): pass\n"
        "scaled_dot_product_attention(q)"
    ),
    "a method of the name beside": (
        "class A:\n    def MultiheadAttention(self): pass\nx = MultiheadAttention"
    ),
    "getattr by its other name": "F.__getattribute__(name)",
    "getattr, imported": "from inspect import getattr_static as g",
    "in a function": "def f():\n    def g():\n        return nn.MultiheadAttention",
    "in a decorator": "@nn.MultiheadAttention\ndef f(): pass",
}


@pytest.mark.parametrize("how", USES)
def test_a_banned_name_is_found(how):
    assert banned_names(USES[how], BANNED), how


HONEST = {
    "words": '"""Do not use scaled_dot_product_attention here."""',
    "comment": "# not scaled_dot_product_attention\nx = 1",
    "own class of the name": "class MultiheadAttention: pass\nm = MultiheadAttention()",
    "own function": (
        "def scaled_dot_product_attention(q): return q\nscaled_dot_product_attention(1)"
    ),
    "evaluation": "model.eval()\nx = torch.compile",
    "getattr of a plain name": "getattr(self, 'weight')",
    "a message": "raise ValueError('scaled_dot_product_attention is not allowed, see the text')",
    "a title": "plt.title('MultiheadAttention')\nlabels = {'MultiheadAttention': 1}",
    "own attribute": "class A:\n    def f(self):\n        return self.MultiheadAttention",
    "like it": "my_scaled_dot_product_attention_2 = 3",
    "no Python": "def f(:",
}


@pytest.mark.parametrize("what", HONEST)
def test_an_honest_program_has_none(what):
    assert banned_names(HONEST[what], BANNED) == []


def test_an_exercise_that_bans_nothing_finds_nothing():
    assert banned_names("exec('x')", ()) == []


def test_deep_expressions_are_said_to_be_unreadable_or_are_read():
    deep = "x = " + "+".join(["'a'"] * 900)
    assert banned_names(deep, BANNED) in ([], ["expressions nested too deep to read"])


def test_no_solution_of_the_course_uses_what_its_exercise_bans():
    from attnlab.course.catalog import HOME, load_exercise
    from attnlab.course.cells import solution_text

    for path in sorted(HOME.glob("[a-z]*.py")):
        exercise = load_exercise(path)
        text = solution_text(exercise.source)
        assert banned_names(text, exercise.parts.banned) == [], exercise.name
