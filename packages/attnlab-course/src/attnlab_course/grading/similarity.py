"""Pairs of students whose programs are alike beyond what the exercise forces.

A program is read as tokens with its names, numbers and texts made equal, so that renaming hides
nothing. Hashes of overlapping runs of tokens are thinned by winnowing (Schleimer, Wilkerson and
Aiken, "Winnowing: local algorithms for document fingerprinting", SIGMOD 2003). Left out is what the
starter, the solution or more than a fifth of the class has; programs that are equal from beginning
to end are listed all the same. A pair is a reason to look, no verdict.
"""

import ast
import contextlib
import hashlib
import io
import itertools
import keyword
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from attnlab_course.cells import program_tree, solution_text
from attnlab_course.exercise import CourseExercise
from attnlab_course.grading.submission import Submission, SubmittedAnswer

_RUN = 12  # tokens of a fingerprint
_WINDOW = 6  # neighboring fingerprints of which the smallest is kept
_MOST_SHARED = 0.2  # of the class; what more have is no sign
_LEAST = 8  # fingerprints that a pair shares
_LEAST_SHARE = 0.5  # of the shorter one's
_MOST_TOKENS = 50_000
_SKIPPED = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


@dataclass(frozen=True)
class Alike:
    """Two students' answers to an exercise: how many rare pieces they share, of how many."""

    exercise: str
    first: str
    second: str
    shared: int
    of: int


def find_alike(
    submissions: Sequence[Submission], exercises: Mapping[str, CourseExercise]
) -> list[Alike]:
    """Return the pairs that are alike, the most alike first."""
    alike: list[Alike] = []
    for name, exercise in exercises.items():
        if exercise.parts.kind == "code":
            alike += _alike_programs(submissions, name, exercise)
    return sorted(alike, key=lambda pair: (-pair.shared / pair.of, pair.exercise, pair.first))


def _alike_programs(
    submissions: Sequence[Submission], name: str, exercise: CourseExercise
) -> list[Alike]:
    """Return the pairs of programs for one exercise that are alike."""
    prints: dict[str, frozenset[int]] = {}
    words: dict[str, tuple[str, ...]] = {}
    for submission in submissions:
        answer = submission.answers.get(name)
        if answer is not None and answer.data is None:
            prints[submission.student] = fingerprints(answer.source)
            words[submission.student] = tuple(_words(answer.source))
    if len(prints) < 2:
        return []
    pairs = list(_pairs(name, _rare(prints, exercise)))
    known = {(pair.first, pair.second) for pair in pairs}
    equal = _equal(name, words, prints, _forced(exercise))
    return [*pairs, *(pair for pair in equal if (pair.first, pair.second) not in known)]


def is_solution(answer: SubmittedAnswer, exercise: CourseExercise) -> bool:
    """Whether a program defines all that the solution does, alike but for comments."""
    if exercise.parts.kind != "code":
        return False
    published = _definitions(solution_text(exercise.source))
    return bool(published) and published <= _definitions(answer.source)


def _definitions(source: str) -> set[str]:
    """Return the functions and classes of a program as text without comments."""
    tree = program_tree(source)
    kinds = ast.FunctionDef | ast.ClassDef
    return {ast.unparse(node) for node in tree.body if isinstance(node, kinds)}


def fingerprints(source: str) -> frozenset[int]:
    """Return the fingerprints of a program; none where it is no Python."""
    words = _words(source)
    hashes = []
    for start in range(len(words) - _RUN + 1):
        run = " ".join(words[start : start + _RUN]).encode()
        hashes.append(int.from_bytes(hashlib.blake2b(run, digest_size=8).digest()))
    windows = range(max(1, len(hashes) - _WINDOW + 1)) if hashes else ()
    return frozenset(min(hashes[start : start + _WINDOW]) for start in windows)


def _words(source: str) -> list[str]:
    """Return the tokens of a program, with names, numbers and texts made equal."""
    words = []
    with contextlib.suppress(tokenize.TokenError, SyntaxError, ValueError):
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        for token in itertools.islice(tokens, _MOST_TOKENS):
            if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
                words.append("name")
            elif token.type in (tokenize.NUMBER, tokenize.STRING):
                words.append("value")
            elif token.type not in _SKIPPED:
                words.append(token.string)
    return words


def _rare(
    prints: Mapping[str, frozenset[int]], exercise: CourseExercise
) -> dict[str, frozenset[int]]:
    """Leave out what the exercise or much of the class has."""
    forced = _forced(exercise)
    counts = Counter(itertools.chain.from_iterable(prints.values()))
    most = max(2, _MOST_SHARED * len(prints))  # two students are never much of a class
    common = {fingerprint for fingerprint, count in counts.items() if count > most}
    return {student: hashes - forced - common for student, hashes in prints.items()}


def _forced(exercise: CourseExercise) -> frozenset[int]:
    """Return the fingerprints of what the starter and the solution hold."""
    return fingerprints(exercise.starter) | fingerprints(solution_text(exercise.source))


def _equal(
    exercise: str,
    words: Mapping[str, tuple[str, ...]],
    prints: Mapping[str, frozenset[int]],
    forced: frozenset[int],
) -> Iterable[Alike]:
    """Yield the programs that are equal but for names, each with the first, however many.

    Those that hold little of their own are equal by chance.
    """
    first: dict[tuple[str, ...], str] = {}
    for student in sorted(words):
        count = len(prints[student] - forced)
        earlier = first.setdefault(words[student], student)
        if earlier != student and count >= _LEAST:
            yield Alike(exercise, earlier, student, count, count)


def _pairs(exercise: str, prints: Mapping[str, frozenset[int]]) -> Iterable[Alike]:
    holders: dict[int, list[str]] = defaultdict(list)
    for student in sorted(prints):
        for fingerprint in prints[student]:
            holders[fingerprint].append(student)
    shared: Counter[tuple[str, str]] = Counter()
    for students in holders.values():
        shared.update(itertools.combinations(students, 2))
    for (first, second), count in shared.items():
        of = min(len(prints[first]), len(prints[second]))
        if count >= _LEAST and count >= _LEAST_SHARE * of:
            yield Alike(exercise, first, second, count, of)
