"""Journeys: what a person does, through the doors a person uses.

`home` is an empty home with a folder to work in, where commands run as they are typed; `Lab` is
`attnlab lab` started there; `visit` opens a served page or a page from disk, and at the end of the
test no page has complained.
"""

import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from filelock import FileLock

PATIENCE = 240  # seconds after which something hangs, on a busy machine
COMMANDS = Path(sys.executable).parent  # where pip puts `attnlab` and its like
KEPT = ("LANG", "LC_ALL", "TMPDIR", "OMP_NUM_THREADS", "PYTHONPATH", "XDG_CACHE_HOME")


class Answer(NamedTuple):
    """What a command printed, and its exit status."""

    out: str
    err: str
    status: int

    @property
    def text(self) -> str:
        return self.out + self.err


def environment_of(home: Path) -> dict[str, str]:
    """Return the environment of the commands of a home."""
    return {name: os.environ[name] for name in KEPT if name in os.environ} | {
        "HOME": str(home),
        "PATH": f"{COMMANDS}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "100",
        "HF_HUB_OFFLINE": "1",
    }


class Home:
    """A home of its own, and the folder in it where a person works.

    Figures of a run or recording are named and not painted, which is half of a short run.
    """

    def __init__(self, folder: Path, here: Path, warm: subprocess.Popen[str]) -> None:
        self.folder = folder
        self.here = here
        self.warm = warm
        self.environment = environment_of(folder)

    def run(self, command: str, *, status: int = 0, typed: str = "") -> Answer:
        """Run a command as it is typed in the folder; it must end with this exit status."""
        words = self._words(command)
        if words[1:2] == ["-m"]:
            answer = self._run_anew(words)
        else:
            answer = self._run_warm(words[words[0] == sys.executable :], typed)
        assert answer.status == status, answer.text
        assert "Traceback" not in answer.text
        return answer

    def _run_anew(self, words: list[str]) -> Answer:
        done = subprocess.run(
            words,
            check=False,
            cwd=self.here,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        return Answer(done.stdout, done.stderr, done.returncode)

    def _run_warm(self, words: list[str], typed: str) -> Answer:
        """Run a program of Python in a copy of a process that has loaded attnlab: see `warm.py`."""
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder, name) for name in ("typed", "out", "err")]
            for file, content in zip(files, (typed, "", ""), strict=True):
                file.write_text(content)
            command = {
                "words": words,
                "folder": str(self.here),
                "environment": self.environment,
                "files": [str(file) for file in files],
            }
            assert self.warm.stdin is not None
            assert self.warm.stdout is not None
            self.warm.stdin.write(json.dumps(command) + "\n")
            self.warm.stdin.flush()
            assert select.select([self.warm.stdout], [], [], PATIENCE)[0], f"{words} hangs"
            status = int(self.warm.stdout.readline())
            return Answer(files[1].read_text(), files[2].read_text(), status)

    def start(self, command: str) -> subprocess.Popen[str]:
        """Start a command that goes on; the caller ends it."""
        return subprocess.Popen(
            self._words(command),
            cwd=self.here,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def python(self, program: str, *, status: int = 0) -> Answer:
        """Run a program from a file, as a person who wrote it does."""
        (self.here / "program.py").write_text(program)
        return self.run("python program.py", status=status)

    def _words(self, command: str) -> list[str]:
        program, *words = shlex.split(command)
        if program == "python":
            return [sys.executable, *words]
        return [str(COMMANDS / program), *words]


@pytest.fixture(scope="module")
def home_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """The process whose copies run commands; what it loads may look for a home, which is empty."""
    process = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("warm.py")],
        env=environment_of(tmp_path_factory.mktemp("warm")),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.communicate()


@pytest.fixture
def home(home_folder: Path, warm: subprocess.Popen[str], request: pytest.FixtureRequest) -> Home:
    """The home of this file's person, empty before the first journey, and an empty folder in it."""
    name = re.sub(r"\W+", "-", request.node.name)[:40]
    here = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=home_folder))
    return Home(home_folder, here, warm)


@pytest.fixture(scope="session")
def first_run(
    tmp_path_factory: pytest.TempPathFactory, warm: subprocess.Popen[str]
) -> tuple[Path, Answer]:
    """The folder where `attnlab run sorting` was typed, once for all workers, and what it said."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    here, said = shared / "first" / "work", shared / "first" / "said.json"
    with FileLock(shared / "first.lock"):
        if not said.exists():
            here.mkdir(parents=True)
            home = Home(here.parent, here, warm)
            said.write_text(json.dumps(home.run("attnlab run sorting")))
    return here, Answer(*json.loads(said.read_text()))


@pytest.fixture(scope="session")
def sandbox() -> None:
    """Skip the stories of grading where the system forbids its sandbox."""
    pytest.importorskip("tests.course.classroom").sandbox()


class Lab:
    """`attnlab lab` in a home, and an address for each browser that comes."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.process = home.start("attnlab lab --no-browser")
        self.is_new = True

    def address(self) -> str:
        """Return the first address it prints, or press Enter and return the next."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if not self.is_new:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        self.is_new = False
        printed = ""
        for line in self.process.stdout:
            printed += line
            address = re.search(r"http://\S+", line)
            if address:
                return address[0]
        raise AssertionError(f"the lab printed no address: {printed}")

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=PATIENCE)


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open an address or a file in a browser of its own; at the end, no page has complained.

    A request to another machine is answered by nothing; it is a complaint unless the page is one
    of nbconvert's, which look for scripts of their own.
    """
    complaints: list[str] = []
    contexts = []

    def open_it(
        address: str | Path, width: int = 1280, elsewhere: bool = False, **options: Any
    ) -> Any:
        if isinstance(address, Path):
            address = address.resolve().as_uri()
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        context.set_default_timeout(PATIENCE * 1000)
        contexts.append(context)

        def answer_nothing(route: Any) -> None:
            if not elsewhere:
                complaints.append(f"asked another machine: {route.request.url}")
            route.fulfill(body="")

        context.route(re.compile(r"https?://(?!127\.0\.0\.1|localhost)"), answer_nothing)
        page = context.new_page()
        page.on("console", lambda line: line.type == "error" and complaints.append(line.text))
        page.on("pageerror", lambda error: elsewhere or complaints.append(str(error)))
        page.goto(address)
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert complaints == []
