"""The log that the source homework writes gets the points that each of its parts deserves."""

import json
import textwrap
from contextlib import nullcontext

import numpy as np
import pytest

from attnlab_course.catalog import find_exercise
from attnlab_course.grading.classroom import grade_class
from attnlab_course.grading.homework_log import answers_of_log, is_homework_log
from attnlab_course.grading.submissions import read_class
from attnlab_course.sandbox.worker import Worker

from .classroom import zip_of
from .homework import FORWARD, INIT, designs, homework_log

NAMES = ("identity", "copy_first", "torch_transformer")


@pytest.fixture(scope="module")
def exercises():
    return {name: find_exercise(name) for name in NAMES}


class Room:
    """A class of one: a log goes in, points and problems come out."""

    def __init__(self, folder, exercises, worker):
        self.folder = folder
        self.worker = worker
        self.exercises = exercises
        self.grades = {}
        self.problems = []

    def grade(self, log, who="alice"):
        (self.folder / "class").mkdir(exist_ok=True)
        (self.folder / "class" / f"{who}.json").write_text(json.dumps(log))
        (submission,) = read_class(self.folder / "class", self.exercises)
        self.problems = submission.problems
        graded = grade_class(
            [submission], self.exercises, self.folder / "grades", lambda: nullcontext(self.worker)
        )
        self.grades = {each.exercise: each for each in graded}
        full = {name: exercise.points for name, exercise in self.exercises.items()}
        return {name: full[name] - grade.points for name, grade in self.grades.items()}


@pytest.fixture(scope="module")
def worker():
    with Worker() as opened:
        yield opened


@pytest.fixture
def room(tmp_path, exercises, worker):
    return Room(tmp_path, exercises, worker)


RIGHT = dict.fromkeys(NAMES, 0)


def test_a_log_that_is_right_gets_all_points_and_no_problem_is_told(room):
    assert room.grade(homework_log()) == RIGHT
    assert room.problems == []


def method(text):
    return textwrap.indent(textwrap.dedent(text).strip("\n") + "\n", "    ")


OTHER_RIGHT_CLASSES = {
    "a table of its own": {
        "torch_transformer_init": INIT.replace(
            "nn.Embedding(max_seq_len, pos_dim)",
            "nn.Parameter(torch.randn(max_seq_len, pos_dim))",
        ),
        "torch_transformer_forward": FORWARD.replace(
            "self.pos(torch.arange(len(seq)))", "self.pos[: len(seq)]"
        ),
    },
    "super with the class": {
        "torch_transformer_init": INIT.replace("super()", "super(PytorchTransformer, self)")
    },
    "super with another class": {
        "torch_transformer_init": INIT.replace("super()", "super(MyTransformer, self)")
    },
    "a flush-left text inside": {
        "torch_transformer_init": INIT.replace("The notebook's constructor.", "The\nnotebook's.")
    },
    "tabs": {
        "torch_transformer_init": INIT.replace("    ", "\t"),
        "torch_transformer_forward": FORWARD.replace("    ", "\t"),
    },
    "not indented": {
        "torch_transformer_init": textwrap.dedent(INIT),
        "torch_transformer_forward": textwrap.dedent(FORWARD),
    },
    "loops over new tensors": {
        "torch_transformer_forward": method(
            """
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
        )
    },
}


@pytest.mark.parametrize("kind", OTHER_RIGHT_CLASSES)
def test_a_right_class_written_in_another_way_gets_all_points(room, kind):
    assert room.grade(homework_log(**OTHER_RIGHT_CLASSES[kind])) == RIGHT


WRONG_CLASSES = {
    "no scaling": (FORWARD, " / np.sqrt(self.d_k)", "", "no scaling"),
    "softmax over queries": (FORWARD, "dim=1)\n    return", "dim=0)\n    return", None),
    "a bias": (INIT, "qk_dim, bias=False", "qk_dim", None),
    "positions in front": (FORWARD, "[seq, places]", "[places, seq]", "positions first"),
    "cuts what is too long": (
        FORWARD,
        "        places",
        "        seq = seq[: self.pos.num_embeddings]\n            places",
        "too long is cut",
    ),
}


@pytest.mark.parametrize("kind", WRONG_CLASSES)
def test_a_wrong_class_loses_points_and_the_designs_keep_theirs(room, kind):
    text, old, new, mistake = WRONG_CLASSES[kind]
    old, new = (
        old.replace("\n    return", "\n        return"),
        new.replace("\n    r", "\n        r"),
    )
    assert old in text
    key = "torch_transformer_init" if text is INIT else "torch_transformer_forward"
    lost = room.grade(homework_log(**{key: text.replace(old, new)}))
    assert lost.pop("torch_transformer") > 0
    assert lost == {"identity": 0, "copy_first": 0}
    assert mistake is None or mistake in room.grades["torch_transformer"].mistake


def flat(kind, name, change):
    """Return a change of one matrix of a log."""
    matrix = np.array(designs()[kind][name])
    return {f"attention_by_{kind}_{name}": np.asarray(change(matrix)).reshape(-1).tolist()}


WRONG_DESIGNS = {
    "too quiet": ("identity", flat("content", "Q", lambda m: m / 10)),
    "the wrong letter": ("identity", flat("content", "K", lambda m: np.roll(m, 1, axis=0))),
    "the second place": ("copy_first", flat("position", "Q", lambda m: np.roll(m, 1, axis=1))),
    "one number too few": ("identity", {"attention_by_content_V": [1.0] * 8}),
    "one number too many": ("copy_first", {"attention_by_position_K": [0.0] * 29}),
    "no number": ("copy_first", {"attention_by_position_pos": []}),
    "no numbers at all": ("identity", {"attention_by_content_K": "as in the lecture"}),
    "not finite": ("identity", {"attention_by_content_Q": [float("nan")] * 9}),
    "too large": ("identity", {"attention_by_content_Q": [10**400] * 9}),
    "a matrix missing": ("copy_first", {"attention_by_position_V": None}),
    "a number in place of a list": ("copy_first", {"attention_by_position_pos": 3}),
}


@pytest.mark.parametrize("kind", WRONG_DESIGNS)
def test_a_wrong_design_gets_no_point_for_what_is_wrong_and_costs_the_others_nothing(room, kind):
    exercise, change = WRONG_DESIGNS[kind]
    lost = room.grade(homework_log(**change))
    assert lost.pop(exercise) > 0
    assert set(lost.values()) == {0}
    assert room.grades[exercise].unjudged is None


def test_a_list_of_a_wrong_length_is_told_with_its_key(room):
    room.grade(homework_log(attention_by_content_V=[1.0] * 8))
    (words,) = [each for each in room.problems if "attention_by_content_V" in each]
    assert "alice.json: identity: attention_by_content_V has 8 numbers" in words
    room.grade(homework_log(attention_by_position_V=None))
    assert room.problems == ["alice.json: copy_first: the log lacks attention_by_position_V"]


def test_matrices_in_rows_are_read_as_they_are(room):
    rows = {}
    for kind, matrices in designs().items():
        for name, matrix in matrices.items():
            rows[f"attention_by_{kind}_{name}"] = matrix.tolist()
    assert room.grade(homework_log(**rows)) == RIGHT


PARTS = {
    "identity": [f"attention_by_content_{name}" for name in "QKV"],
    "copy_first": [f"attention_by_position_{name}" for name in ("pos", "K", "Q", "V")],
    "torch_transformer": ["torch_transformer_init", "torch_transformer_forward"],
}


@pytest.mark.parametrize("exercise", PARTS)
def test_a_part_that_is_missing_is_a_blank_answer(room, exercise):
    lost = room.grade(homework_log(**dict.fromkeys(PARTS[exercise])))
    assert lost.pop(exercise) == find_exercise(exercise).points
    assert set(lost.values()) == {0}
    (words,) = room.problems
    assert f"{exercise}: the log lacks" in words


BROKEN_METHODS = {
    "a syntax error": "    def forward(self, seq)\n        return seq\n",
    "no text": 7,
    "nothing in it": "",
    "another function": "    def backward(self, seq):\n        return seq\n",
    "a statement": "print('full points')",
    "an early end": method("def forward(self, seq):\n    import os\n    os._exit(0)"),
    "an equal to everything": method(
        """
        def forward(self, seq):
            class Same(torch.Tensor):
                def __eq__(self, other):
                    return True
            torch.allclose = np.allclose = lambda *a, **k: True
            return seq.as_subclass(Same)
        """
    ),
}


@pytest.mark.parametrize("kind", BROKEN_METHODS)
def test_a_method_that_is_broken_or_cheats_gets_nothing_and_the_designs_keep_their_points(
    room, kind
):
    lost = room.grade(homework_log(torch_transformer_forward=BROKEN_METHODS[kind]))
    full = find_exercise("torch_transformer").points
    assert lost.pop("torch_transformer") in (full, full - 2)  # 2 for the layers of the constructor
    assert lost == {"identity": 0, "copy_first": 0}


def test_what_the_log_says_was_computed_is_left_alone(room):
    told = {"torch_transformer_value": [1.0] * 5, "attention_by_content": [1.0] * 9}
    lost = room.grade(
        homework_log(**told, torch_transformer_forward=method("def forward(s, x): 1"))
    )
    assert lost["torch_transformer"] >= 12


def test_a_class_that_calls_what_is_banned_waits_for_a_review(room):
    forward = FORWARD.replace("F.softmax(", "F.scaled_dot_product_attention(")
    room.grade(homework_log(torch_transformer_forward=forward))
    assert room.grades["torch_transformer"].banned == ("scaled_dot_product_attention",)


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


def test_one_students_log_downloaded_twice_is_one_submission(tmp_path, exercises):
    files = {}
    for name in ("submission_log.json", "submission_log (1).json"):
        files[name] = json.dumps(homework_log())
    (tmp_path / "alice.zip").write_bytes(zip_of(files))
    (alice,) = read_class(tmp_path, exercises)
    assert (alice.student, alice.problems) == ("alice", [])
    assert sorted(alice.answers) == sorted(NAMES)


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
