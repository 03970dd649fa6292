"""Grade a class in the sandbox: how long 100 submissions take, and whether results repeat.

    python benchmarks/grading.py [--students 100] [--workers 2] [--again 20] [--exercises 12]

Each student answers every exercise: solutions, named mistakes, programs that raise, and
starters. Weights come as data. `--again` grades the first ten students so many times,
with the same questions, and compares every file byte for byte.
"""

import argparse
import hashlib
import io
import json
import os
import random
import shutil
import sys
import tempfile
import time
import zipfile
from functools import partial
from pathlib import Path
from typing import ClassVar

from attnlab_course.catalog import HOME, load_exercise
from attnlab_course.cells import solution_text
from attnlab_course.grading.classroom import grade_class
from attnlab_course.grading.course_file import Course
from attnlab_course.grading.exports import write_exports
from attnlab_course.grading.gradebook import make_gradebook
from attnlab_course.grading.pages import write_pages
from attnlab_course.grading.similarity import find_alike
from attnlab_course.grading.submissions import read_class
from attnlab_course.mistakes import with_mistake
from attnlab_course.sandbox.jail import probe
from attnlab_course.sandbox.processes import processes_below
from attnlab_course.sandbox.student_code import encode, load_names
from attnlab_course.sandbox.worker import Worker
from attnlab_course.workspace import FORM


class Measured(Worker):
    """A worker that counts the processor seconds of its sandbox before it ends."""

    seconds: ClassVar[list[float]] = []

    def close(self) -> None:
        """End the process and all that it has started."""
        if self._process is not None and self._process.poll() is None:
            for process in processes_below(self._process.pid):
                fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
                ticks = sum(map(int, fields[11:15]))  # user, system, and those of its children
                self.seconds.append(ticks / os.sysconf("SC_CLK_TCK"))
        super().close()


def main() -> None:
    """Make the class, grade it, and print what it took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--students", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--again", type=int, default=20)
    parser.add_argument("--exercises", type=int, default=None)
    options = parser.parse_args()
    paths = sorted(HOME.glob("[a-z]*.py"))[: options.exercises]
    exercises = {path.stem: load_exercise(path) for path in paths}
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder)
        (room / "submissions").mkdir()
        for number in range(options.students):
            content = submission(number, exercises)
            (room / "submissions" / f"student{number:03}.zip").write_bytes(content)
        start = time.perf_counter()
        answers = grade(room, "submissions", "grades", exercises, options.workers)
        minutes = (time.perf_counter() - start) / 60
        print(f"{options.students} submissions, {len(exercises)} exercises, {answers} answers")
        print(f"{minutes:.2f} minutes with {options.workers} workers at the same time")
        own, theirs = time.process_time() / 60, sum(Measured.seconds) / 60
        print(f"processor minutes: {own:.2f} asking and judging, {theirs:.2f} in sandboxes")
        start = time.perf_counter()
        grade(room, "submissions", "grades", exercises, options.workers)
        print(f"the same command again: {time.perf_counter() - start:.1f} seconds")
        if options.again:
            compare(room, exercises, options)


def grade(room: Path, submissions: str, grades: str, exercises: dict, workers: int) -> int:
    """Grade as `attnlab grade` does, and return how many answers there are."""
    jail = probe()
    course = Course(exercises)
    handed_in = read_class(room / submissions, exercises)
    last = 0.0

    def tell(done: int, total: int) -> None:
        nonlocal last
        if time.perf_counter() - last > 20:
            last = time.perf_counter()
            print(f"  {done} of {total}", file=sys.stderr, flush=True)

    graded = grade_class(
        handed_in,
        exercises,
        room / grades,
        partial(Measured, jail=jail),
        workers=workers,
        progress=tell,
    )
    book = make_gradebook(course, handed_in, graded, room / grades)
    write_exports(book, room / grades)
    write_pages(book, find_alike(handed_in, exercises), room / grades)
    return len(graded)


def compare(room: Path, exercises: dict, options: argparse.Namespace) -> None:
    """Grade ten students anew in a folder with the same seed, and compare all files."""
    (room / "few").mkdir()
    for path in sorted((room / "submissions").iterdir())[:10]:
        shutil.copy(path, room / "few")
    digests = set()
    for _ in range(options.again):
        shutil.rmtree(room / "again", ignore_errors=True)
        (room / "again").mkdir()
        shutil.copy(room / "grades" / "grading.json", room / "again")
        grade(room, "few", "again", exercises, options.workers)
        digest = hashlib.sha256()
        for path in sorted((room / "again").rglob("*")):
            if path.is_file():
                digest.update(f"{path.relative_to(room / 'again')}\n".encode())
                digest.update(path.read_bytes())
        digests.add(digest.hexdigest())
    print(f"graded {options.again} times: {len(digests)} different results")


def submission(number: int, exercises: dict) -> bytes:
    """Return the zip of a student, whose answers the number decides."""
    dice = random.Random(number)
    files, entries = {}, {}
    for name, exercise in exercises.items():
        kind = exercise.parts.kind
        if kind == "text":
            file, content = f"work/{name}.txt", f"Student {number} thinks it is so."
        elif kind == "weights":
            value = load_names(program(exercise, dice))["weights"]()
            file, content = f"work/{name}.json", json.dumps({"weights": encode(value)})
        else:
            file, content = f"work/{name}.py", program(exercise, dice)
        digest = hashlib.sha256(content.encode()).hexdigest()
        entries[name] = {"file": file, "kind": kind, "sha256": digest}
        files[file] = content
    manifest = {"format": FORM, "version": "0", "student": str(number), "exercises": entries}
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", json.dumps(manifest))
        for file, content in files.items():
            archive.writestr(file, content)
    return written.getvalue()


def program(exercise, dice: random.Random) -> str:
    """Return an answer: 6 in 10 right, 3 with a mistake, 1 that raises."""
    solution = solution_text(exercise.source)
    throw = dice.random()
    if throw < 0.6 or not exercise.named_mistakes:
        return solution
    if throw > 0.9 and exercise.parts.kind == "code":
        return solution.replace("    return ", "    raise ValueError('no'); return ")
    return with_mistake(exercise, dice.choice(exercise.named_mistakes))


if __name__ == "__main__":
    main()
