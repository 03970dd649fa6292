"""The exercises: those of this course, and files of an instructor's own folder."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean
from attnlab_course.exercise import CourseExercise, Exercise
from attnlab_course.sandbox.student_code import load_names

HOME = Path(__file__).with_name("exercises")


def _read_chapters(text: str) -> dict[str, tuple[str, ...]]:
    """Read lines of a chapter's title, a colon and its exercises; indented ones go on."""
    chapters = {}
    for line in text.replace("\n    ", " ").strip().splitlines():
        title, _, names = line.partition(": ")
        chapters[title] = tuple(names.split())
    return chapters


CHAPTERS = _read_chapters("""
Attention: softmax attention attention_heatmap scaling causal_mask padding_mask multi_head
    predict_attention
By hand: numpy_transformer torch_transformer identity copy_first unique same_head
    predict_handmade
A verdict on a text: tokenizer token_embedding sinusoidal_positions input_embedding
    attention_dropout layer_norm feed_forward encoder_block mini_transformer batches
    training_step train predict_sentiment
Looking things up: cross_attention decoder_layer greedy_decode scramble_test predict_lookup
Learning to sort: factorized_projection next_token_loss learning_rate generate trace_steps
    predict_sorting
Modern parts: rms_norm swiglu rotary_positions causal_heads
Puzzles: puzzle_which_head puzzle_decoy puzzle_program
In your own words: reflect_attention reflect_design reflect_model
""")
"""The chapters in order, each with its exercises in order."""


@cache
def load_exercise(path: Path) -> CourseExercise:
    """Read an exercise's file.

    Raises:
        CouldNotRun: it cannot be read.
        WrongUsage: it declares no `EXERCISE`.
    """
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise CouldNotRun(f"could not read the exercise {path}: {error}.") from None
    parts = load_names(source, str(path)).get("EXERCISE")
    if not isinstance(parts, Exercise):
        raise WrongUsage(f"{path} must declare EXERCISE = Exercise(…).")
    return CourseExercise(path.stem, source, path, parts)


def exercise_names() -> list[str]:
    """Return the names of the course's exercises, in order."""
    return [name for names in CHAPTERS.values() for name in names]


def instructor_exercises(folder: Path | None) -> list[str]:
    """Return the names of an instructor's own exercises."""
    if folder is None:
        return []
    if not folder.is_dir():
        raise WrongUsage(f"there is no folder {folder} of exercises.")
    return sorted(path.stem for path in folder.glob("*.py"))


def holds_back(exercise: CourseExercise) -> bool:
    """Whether an exercise keeps some checks for the grading: an instructor's own may."""
    return exercise.path.parent != HOME


def find_exercise(name: str, folder: Path | None = None) -> CourseExercise:
    """Return an exercise by its name.

    Args:
        name: of the course, or of a file in the folder.
        folder: an instructor's own exercises, looked through first.

    Raises:
        WrongUsage: there is none of this name.
    """
    extra_names = instructor_exercises(folder)
    if folder is not None and name in extra_names:
        return load_exercise(folder / f"{name}.py")
    names = exercise_names()
    if name not in names:
        hint = did_you_mean(name, [*extra_names, *names])
        raise WrongUsage(f"there is no exercise named {name!r}; {hint}")
    return load_exercise(HOME / f"{name}.py")


def exercise_of_file(name: str, folder: Path | None = None) -> CourseExercise:
    """Return an exercise by its name or by that of an answer's file, as `find_exercise` does."""
    if name.endswith((".py", ".ipynb")):
        name = Path(name).stem
    return find_exercise(name, folder)


def all_exercises(folder: Path | None = None) -> Iterator[tuple[str, CourseExercise]]:
    """Yield every exercise with its chapter, an instructor's own first."""
    for name in instructor_exercises(folder):
        yield str(folder), find_exercise(name, folder)
    for chapter, names in CHAPTERS.items():
        for name in names:
            yield chapter, find_exercise(name)
