"""The log that the source homework writes gets the points that each of its parts deserves."""

import json
import textwrap
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

from attnlab_course.catalog import find_exercise
from attnlab_course.grading.classroom import grade_class
from attnlab_course.grading.homework_log import answers_of_log, is_homework_log
from attnlab_course.grading.submissions import read_class

from .classroom import zip_of
from .homework import FORWARD, INIT, designs, homework_log

NAMES = ("identity", "copy_first", "torch_transformer")


@pytest.fixture(scope="module")
def exercises():
    return {name: find_exercise(name) for name in NAMES}


def method(text):
    return textwrap.indent(textwrap.dedent(text).strip("\n") + "\n", "    ")


def init(old, new):
    assert old in INIT
    return {"torch_transformer_init": INIT.replace(old, new)}


def forward(old, new):
    assert old in FORWARD
    return {"torch_transformer_forward": FORWARD.replace(old, new)}


def design(kind, name, change):
    """Return a change of one matrix of a log."""
    matrix = np.asarray(change(np.array(designs()[kind][name])))
    return {f"attention_by_{kind}_{name}": matrix.reshape(-1).tolist()}


LOOPS = """
    def forward(self, seq):
        if self.pos is not None:
            seq = torch.cat([seq, self.pos.weight[: seq.shape[0]]], dim=-1)
        keys, queries, values = self.Km(seq), self.Qm(seq), self.Vm(seq)
        scores = torch.zeros(len(seq), len(seq))
        for i in range(len(seq)):
            for j in range(len(seq)):
                scores[i, j] = queries[i].dot(keys[j]) / math.sqrt(self.d_k)
        return nn.Softmax(dim=-1)(scores) @ values
"""
EQUALS_ALL = """
    def forward(self, seq):
        class Same(torch.Tensor):
            def __eq__(self, other):
                return True
        torch.allclose = np.allclose = lambda *a, **k: True
        return seq.as_subclass(Same)
"""
MATRICES = {
    f"attention_by_{kind}_{name}": matrix.tolist()
    for kind, matrices in designs().items()
    for name, matrix in matrices.items()
}

RIGHT = {
    "as the notebook writes it": {},
    "matrices in rows": MATRICES,
    "a table of its own": {
        **init(
            "nn.Embedding(max_seq_len, pos_dim)", "nn.Parameter(torch.randn(max_seq_len, pos_dim))"
        ),
        **forward("self.pos(torch.arange(len(seq)))", "self.pos[: len(seq)]"),
    },
    "super with the class": init("super()", "super(PytorchTransformer, self)"),
    "super with another class": init("super()", "super(MyTransformer, self)"),
    "a flush-left text inside": init("The notebook's constructor.", "The\nnotebook's."),
    "tabs": init("    ", "\t") | forward("    ", "\t"),
    "not indented": {
        "torch_transformer_init": textwrap.dedent(INIT),
        "torch_transformer_forward": textwrap.dedent(FORWARD),
    },
    "loops over new tensors": {"torch_transformer_forward": method(LOOPS)},
}
WRONG_CLASSES = {  # a change, and the mistake that is named
    "no scaling": (forward(" / np.sqrt(self.d_k)", ""), "no scaling"),
    "softmax over queries": (forward("dim=1)\n        return", "dim=0)\n        return"), None),
    "a bias": (init("qk_dim, bias=False", "qk_dim"), None),
    "positions in front": (forward("[seq, places]", "[places, seq]"), "positions first"),
    "cuts what is too long": (
        forward("    places", "    seq = seq[: self.pos.num_embeddings]\n            places"),
        "too long is cut",
    ),
}
BROKEN_CLASSES = {
    "a syntax error": "    def forward(self, seq)\n        return seq\n",
    "no text": 7,
    "nothing in it": "",
    "another function": "    def backward(self, seq):\n        return seq\n",
    "a statement": "print('full points')",
    "an early end": method("def forward(self, seq):\n    import os\n    os._exit(0)"),
    "an equal to everything": method(EQUALS_ALL),
}
WRONG_DESIGNS = {
    "too quiet": ("identity", design("content", "Q", lambda m: m / 10)),
    "the wrong letter": ("identity", design("content", "K", lambda m: np.roll(m, 1, axis=0))),
    "the second place": ("copy_first", design("position", "Q", lambda m: np.roll(m, 1, axis=1))),
    "one number too few": ("identity", {"attention_by_content_V": [1.0] * 8}),
    "one number too many": ("copy_first", {"attention_by_position_K": [0.0] * 29}),
    "no number": ("copy_first", {"attention_by_position_pos": []}),
    "no numbers at all": ("identity", {"attention_by_content_K": "as in the lecture"}),
    "not finite": ("identity", {"attention_by_content_Q": [float("nan")] * 9}),
    "too large": ("identity", {"attention_by_content_Q": [10**400] * 9}),
    "a matrix missing": ("copy_first", {"attention_by_position_V": None}),
    "a number in place of a list": ("copy_first", {"attention_by_position_pos": 3}),
}
PARTS = {
    "identity": [f"attention_by_content_{name}" for name in "QKV"],
    "copy_first": [f"attention_by_position_{name}" for name in ("pos", "K", "Q", "V")],
    "torch_transformer": ["torch_transformer_init", "torch_transformer_forward"],
}
ODD = {
    "values made up": {
        "torch_transformer_value": [1.0] * 5,
        "attention_by_content": [1.0] * 9,
        "torch_transformer_forward": method("def forward(s, x): 1"),
    },
    "banned": forward("F.softmax(", "F.scaled_dot_product_attention("),
}
LOGS = {
    **RIGHT,
    **{name: change for name, (change, _) in WRONG_CLASSES.items()},
    **{name: {"torch_transformer_forward": text} for name, text in BROKEN_CLASSES.items()},
    **{name: change for name, (_, change) in WRONG_DESIGNS.items()},
    **{f"without {name}": dict.fromkeys(parts) for name, parts in PARTS.items()},
    **ODD,
}


@dataclass
class Result:
    """What a log lost by exercise, how its parts were graded, and what is wrong with it."""

    lost: dict
    grades: dict
    problems: list


@pytest.fixture(scope="module")
def results(exercises, worker, tmp_path_factory):
    """Grade all logs as one class; return a result for each."""
    folder = tmp_path_factory.mktemp("class")
    for number, changes in enumerate(LOGS.values()):
        (folder / f"s{number:02}.json").write_text(json.dumps(homework_log(**changes)))
    submissions = read_class(folder, exercises)
    shared = partial(nullcontext, worker)
    graded = grade_class(submissions, exercises, folder.parent / "grades", shared, workers=1)
    found = {}
    for name, submission in zip(LOGS, submissions, strict=True):
        grades = {each.exercise: each for each in graded if each.student == submission.student}
        lost = {key: exercises[key].points - grade.points for key, grade in grades.items()}
        found[name] = Result(lost, grades, submission.problems)
    return found


@pytest.mark.parametrize("kind", RIGHT)
def test_a_log_that_is_right_gets_all_points_however_it_is_written(results, kind):
    assert results[kind].lost == dict.fromkeys(NAMES, 0)
    assert results[kind].problems == []


def test_a_wrong_class_loses_points_and_the_designs_keep_theirs(results):
    full = find_exercise("torch_transformer").points
    for kind in [*WRONG_CLASSES, *BROKEN_CLASSES]:
        lost = dict(results[kind].lost)
        part = lost.pop("torch_transformer")
        assert lost == {"identity": 0, "copy_first": 0}, kind
        if kind in WRONG_CLASSES:
            mistake = WRONG_CLASSES[kind][1]
            assert part > 0, kind
            assert mistake is None or mistake in results[kind].grades["torch_transformer"].mistake
        else:
            assert part in (full, full - 2), kind  # 2 for the layers of the constructor


@pytest.mark.parametrize("kind", WRONG_DESIGNS)
def test_a_wrong_design_gets_no_point_for_what_is_wrong_and_costs_the_others_nothing(results, kind):
    exercise, lost = WRONG_DESIGNS[kind][0], dict(results[kind].lost)
    assert lost.pop(exercise) > 0
    assert set(lost.values()) == {0}
    assert results[kind].grades[exercise].unjudged is None


def test_a_list_of_a_wrong_length_or_none_is_told_with_its_key(results):
    (words,) = [
        each for each in results["one number too few"].problems if "attention_by_content_V" in each
    ]
    assert "identity: attention_by_content_V has 8 numbers" in words
    (words,) = results["a matrix missing"].problems
    assert words.endswith(".json: copy_first: the log lacks attention_by_position_V")


@pytest.mark.parametrize("exercise", PARTS)
def test_a_part_that_is_missing_is_a_blank_answer(results, exercise):
    result = results[f"without {exercise}"]
    lost = dict(result.lost)
    assert lost.pop(exercise) == find_exercise(exercise).points
    assert set(lost.values()) == {0}
    (words,) = result.problems
    assert f"{exercise}: the log lacks" in words


def test_what_the_log_says_was_computed_is_left_alone_and_what_is_banned_waits(results):
    assert results["values made up"].lost["torch_transformer"] >= 12
    assert results["banned"].grades["torch_transformer"].banned == ("scaled_dot_product_attention",)


def test_the_logs_of_several_students_may_lie_in_one_zip(tmp_path, exercises):
    names = ("alice.json", "bob/submission_log.json", "carla_submission_log.json", "bob/notes.txt")
    files = {name: json.dumps(homework_log()) for name in names}
    files["bob/notes.txt"] = "my notes"
    (tmp_path / "class.zip").write_bytes(zip_of(files))
    found = read_class(tmp_path / "class.zip", exercises)
    assert [each.student for each in found] == ["alice", "bob", "carla"]
    for submission in found:
        assert sorted(submission.answers) == sorted(NAMES)
    assert [each.problems for each in found] == [
        [],
        ["bob/notes.txt was passed over: its name is not that of an exercise"],
        [],
    ]
    folder = tmp_path / "class"
    (folder / "group 1").mkdir(parents=True)
    for name in ("dora.json", "emil.json"):
        (folder / "group 1" / name).write_text(json.dumps(homework_log()))
    assert [each.student for each in read_class(folder, exercises)] == ["dora", "emil"]


def test_an_answer_beside_a_log_fills_what_the_log_left_blank(tmp_path, exercises):
    blank = homework_log(**dict.fromkeys(PARTS["identity"]))
    weights = "def weights():\n    return 1, 2, 3\n"
    folder = tmp_path / "alice"
    folder.mkdir()
    (folder / "submission_log.json").write_text(json.dumps(blank))
    (folder / "submission_log (1).json").write_text(json.dumps(homework_log()))
    (alice,) = read_class(tmp_path, exercises)
    assert alice.answers["identity"].data is not None
    (folder / "identity.py").write_text(weights)
    (alice,) = read_class(tmp_path, exercises)
    assert alice.answers["identity"].source == weights
    assert not [words for words in alice.problems if "submission_log.json not" in words]


def test_only_a_mapping_with_a_key_of_the_homework_is_its_log():
    assert is_homework_log(homework_log())
    assert is_homework_log({"torch_transformer_shape": [8, 3]})
    for other in (None, [1], {}, {"form": "attnlab submission 1"}, {1: 2}, {"time": 0.0}):
        assert not is_homework_log(other)
    answers, problems = answers_of_log({"torch_transformer_shape": [8, 3]})
    assert answers == {name: {} for name in NAMES}
    assert len(problems) == 3
