"""Workers: they answer as the code does, trust nothing that comes back, and start again."""

import json
import os
import signal
import struct
from dataclasses import asdict

import pytest

from attnlab.errors import CouldNotRun
from attnlab_course.cases import make_questions
from attnlab_course.catalog import find_exercise
from attnlab_course.cells import solution_text
from attnlab_course.error_advice import error_advice
from attnlab_course.grading.student_feedback import failure_words
from attnlab_course.judge import judge
from attnlab_course.sandbox.replies import (
    SENTENCES,
    CaseAnswer,
    Reply,
    ask_here,
    clean_answer,
    clean_error,
    is_countable,
    split_reply,
)
from attnlab_course.sandbox.runner import has_ended
from attnlab_course.sandbox.student_code import encode
from attnlab_course.sandbox.worker import Limits, Worker
from tests.sampling import first_of_each, sampled

from .classroom import questions_of
from .hostile.cheats import CHEATS

SOLUTION = solution_text(find_exercise("attention").source)
QUICK = Limits(seconds=1)


def case(*args, call="answer", seed=0):
    items = {"kind": "list", "items": [encode(each) for each in args]}
    empty = {"kind": "dict", "items": []}
    return {
        "call": call,
        "args": items,
        "settings": empty,
        "build": None,
        "state": None,
        "methods": [],
        "answer": "result",
        "names": [],
        "training": False,
        "seed": seed,
    }


def ask(worker, source, cases=None, limits=QUICK, **more):
    return worker.ask(source, "mine.py", cases or [case()], limits=limits, **more)


@pytest.mark.parametrize("name", ["multi_head", "attention_heatmap", "tokenizer"])
def test_a_worker_answers_as_the_code_does_here(worker, name):
    exercise = find_exercise(name)
    questions = make_questions(exercise, 5, graded=True)
    source = solution_text(exercise.source)
    there = worker.ask(source, "mine.py", questions.encoded)
    here = ask_here(source, "mine.py", questions.encoded)
    assert json.dumps(asdict(there)) == json.dumps(asdict(here))
    assert judge(questions, there).passed


def test_a_file_that_cannot_be_run_is_broken_and_says_the_line(worker):
    problem = ask(worker, "x = 1\ny = 1 / 0\n").problem
    assert problem == "it cannot be run: ZeroDivisionError: division by zero (line 2)"


@pytest.mark.parametrize(
    ("failing", "words"),
    [
        ("import no_such_package", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("exit()", "SystemExit: None"),
        ("get_ipython().system('ls')", "NameError: name 'get_ipython' is not defined"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("@no_such_decorator\ndef helper(): pass", "NameError: name 'no_such_decorator' is n"),
    ],
)
def test_a_statement_at_the_top_that_fails_is_passed_over_and_named(worker, failing, words):
    """A program ran where a package, a file or a notebook was; an answer does not need them."""
    source = f"{failing}\nimport json\n\ndef answer():\n    return json.loads('1')\n\nx = 1 / 0\n"
    reply = ask(worker, f'"""Mine."""\nfrom __future__ import annotations\n{source}')
    assert reply.answers == [CaseAnswer(1)]
    assert reply.passed_over.startswith(f"line 3 fails and was passed over: {words}")


def test_an_answer_that_ends_python_is_told_to_have_done_so(worker):
    source = "def answer():\n    raise SystemExit(0)\n"
    (answer,) = ask(worker, source).answers
    assert answer.words == "SystemExit: 0 (line 2)"
    assert any("ends by `return`" in words for words in error_advice(answer.words))
    (answer,) = ask(worker, source, is_graded=True).answers
    assert failure_words(answer.error).startswith("it ended Python, as exit() and raise SystemExit")


def test_the_other_names_of_an_import_that_fails_are_bound(worker):
    """Also those on its line and behind it."""
    source = "import math, no_such, json; import re\nfrom json import no_such, dumps\n"
    source += "def answer(): return [math.sqrt(4), json.loads('1'), re.escape('b'), dumps(3)]"
    (answer,) = ask(worker, source).answers
    assert answer.value["items"] == [2.0, 1, "b", "3"]


def test_annotations_of_a_package_that_is_not_there_are_no_matter(worker):
    source = "from jaxtyping_of_mine import Float\n"
    assert ask(worker, source + "def answer() -> Float['n']: return 1\n").answers == [CaseAnswer(1)]


def test_a_compiled_answer_is_run_as_it_is_written(worker):
    source = "import torch\n@torch.compile\ndef answer(): return torch.ones(1).item()\n"
    limits = Limits(seconds=60)  # to import the compiler
    assert ask(worker, source, limits=limits).answers == [CaseAnswer(1.0)]


def test_what_a_demonstration_has_switched_is_switched_back(worker):
    source = (
        "import torch\ntorch.set_grad_enabled(False)\ntorch.autograd.set_detect_anomaly(True)\n"
    )
    questions = questions_of("attention")
    assert judge(questions, worker.ask(source + SOLUTION, "mine.py", questions.encoded)).passed


def test_a_number_of_numpy_is_a_number(worker):
    source = "import numpy as np\ndef answer(): return np.float32(0.5), np.bool_(1), np.int64(3)"
    (answer,) = ask(worker, source).answers
    assert answer.value["items"] == [0.5, True, 3]


def test_one_case_without_an_end_costs_that_case(worker):
    source = "def answer(number):\n    while number == 2:\n        pass\n    return number\n"
    first, second, third = ask(worker, source, [case(1), case(2), case(3)]).answers
    assert (first, third) == (CaseAnswer(1), CaseAnswer(3))
    assert second.words == "it took too long; is there a loop that does not end?"


def test_after_two_failures_an_exercise_is_given_up(worker, monkeypatch):
    """Each further try would take a process of its own."""
    tries, exchange = [], Worker._exchange
    monkeypatch.setattr(
        Worker, "_exchange", lambda self, *told: tries.append(1) or exchange(self, *told)
    )
    source = "import os\ndef answer(number):\n    return number if number == 1 else os._exit(0)\n"
    answers = ask(worker, source, [case(each) for each in (1, *range(2, 200))]).answers
    assert answers[0] == CaseAnswer(1)
    assert {answer.error for answer in answers[1:]} == {"ProcessEnded"}
    assert (len(answers), len(tries)) == (199, 2)


@pytest.mark.parametrize(
    ("source", "why"),
    first_of_each(
        [
            ("while True: pass", "TookTooLong"),
            ("def answer():\n    while True: pass", "TookTooLong"),
            ("import os; os._exit(0)", "ProcessEnded"),
            ("def answer(): return 'x' * 13_000_000", "TooLarge"),
            ("import os, signal; os.kill(os.getppid(), signal.SIGKILL)", "ProcessEnded"),
        ],
        lambda case: case[1],
    ),
)
def test_what_does_not_answer_is_refused_and_the_next_is_answered(worker, source, why):
    assert ask(worker, source) == Reply(problem=SENTENCES[why])
    assert ask(worker, "def answer(): return 1") == Reply([CaseAnswer(1)])


def test_a_stopped_worker_is_late_and_is_replaced(worker, monkeypatch):
    monkeypatch.setattr("attnlab_course.sandbox.worker._GRACE", 0.1)
    stops = "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\n"
    late = ask(worker, stops, limits=Limits(seconds=0.1))
    assert late == Reply(problem=SENTENCES["TookTooLong"])
    assert ask(worker, "def answer(): return 1") == Reply([CaseAnswer(1)])


CHANCE = """
import random, numpy as np, torch
def answer():
    values = [random.random(), float(np.random.rand()), float(torch.rand(()))]
    return [*values, hash('a'), list({'a', 'b', 'c', 'd'})]
"""


def test_a_process_that_ended_is_replaced_and_no_other_is_signaled(worker, monkeypatch):
    """In the next, chance is the same."""
    signaled = []

    def kill_own_child(process):
        assert has_ended(process)  # raises of a process that was reaped: its number may be taken
        signaled.append(process)

    first = ask(worker, CHANCE, [case(seed=3)])
    ended = worker._process.pid
    os.kill(ended, signal.SIGKILL)
    os.waitid(os.P_PID, ended, os.WEXITED | os.WNOWAIT)
    monkeypatch.setattr("attnlab_course.sandbox.worker.kill_group", kill_own_child)
    assert ask(worker, CHANCE, [case(seed=3)]) == first
    assert first.answers[0].value != ask(worker, CHANCE, [case(seed=4)]).answers[0].value
    assert signaled == [ended]


def test_a_worker_that_cannot_start_says_why(monkeypatch):
    monkeypatch.setattr("attnlab_course.sandbox.worker.RUNNER", "/there/is/no/such.py")
    with Worker() as worker, pytest.raises(CouldNotRun, match="No such file or directory"):
        ask(worker, "")


def test_graded_errors_tell_their_type_and_no_input(worker):
    raises = "class Own(Exception): pass\ndef answer(x): raise Own(x)\n"
    named = "def answer(x): raise type(f'E{x}', (Exception,), {})(x)\n"
    known = "def answer(x): raise ValueError(x)\n"
    missing = "def answer(x):\n    raise type('Missing', (Exception,), {})(x)\n"
    secret = [case(7654321)]
    assert "7654321" in str(ask(worker, raises, secret))
    for source in (raises, named, known, missing):
        answer = ask(worker, source, secret, is_graded=True).answers[0]
        assert "7654321" not in str(answer)
        assert answer.error in ("Exception", "ValueError", "Missing")


def test_a_graded_file_that_breaks_has_seen_no_case(worker):
    """Nor has one that goes on after its error."""
    source = "import sys\nframe = sys._getframe()\nwhile 'request' not in frame.f_locals:\n"
    source += "    frame = frame.f_back\n"
    source += "raise ValueError(str(frame.f_locals['request']['cases']))\n"
    secret = [case(7654321)]
    for program in (source, f"def answer(x): return 1\n{source}"):
        assert "7654321" in str(ask(worker, program, secret))
        reply = ask(worker, program, secret, is_graded=True)
        assert "ValueError: []" in reply.problem + reply.passed_over


def test_a_child_finds_nothing_of_an_earlier_request_in_its_memory(worker):
    mark = "earlier" + "request"
    ask(worker, f"own = '{mark}'\ndef answer(x): return own + x", [case("andanswer")])
    source = """
import ctypes
def answer(mark):
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # so that /proc/self/mem can be read
    found = 0
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
        for line in maps:
            begin, end = (int(each, 16) for each in line.split()[0].split("-"))
            if line.split()[1].startswith("rw"):
                memory.seek(begin)
                try:
                    found += memory.read(end - begin).count((mark[::-1]).encode())
                except OSError:
                    pass
    return found
"""
    looks = [case(mark[::-1])]
    slow = Limits(seconds=20)
    assert ask(worker, source, looks, slow) == Reply([CaseAnswer(0)])
    planted = f"planted = ['{mark}' for _ in range(1)]\n{source}"
    assert ask(worker, planted, looks, slow).answers[0].value > 0


def test_the_values_of_an_answer_are_left_for_their_reader():
    value = {"kind": "list", "items": 3}
    cleaned = clean_answer({"value": value, "passed": True}, "answer", is_graded=False)
    assert cleaned == CaseAnswer(value)


def test_errors_of_another_form_are_damaged():
    assert clean_error({"error": ["x"], "message": {}, "line": "3"}) == CaseAnswer(
        error="damaged answer"
    )
    assert len(clean_error({"error": "e" * 999, "message": "m" * 999}).message) == 300
    assert not is_countable(b"[" * 300_000)


def test_damaged_messages_end_a_reply():
    good, deep = b"\0\0\0\0\0\0\0\2{}", b"[" * 100_000
    assert split_reply(good * 2) == [{}, {}]
    for damaged in (b"\0\0\0\0\0\0\0\1{" + good, b"\xff" * 8 + b"{}", b"\0\0"):
        assert split_reply(good + damaged) == [{}]
    assert split_reply(struct.pack(">Q", len(deep)) + deep) == []


@pytest.mark.parametrize("step", sampled([3, 1], 1))
def test_no_cheat_scores_more_than_doing_nothing(jailed, step):
    questions = questions_of("attention")

    def score(source):
        return judge(questions, ask(jailed, source, questions.encoded, is_graded=True)).points

    assert score("def attention(query, key, value, mask=None):\n    return None\n") == 0
    assert {
        name: points for name in [*CHEATS][step // 3 :: step] if (points := score(CHEATS[name]))
    } == {}
    assert score(SOLUTION) == sum(check.points for check in questions.checks)
