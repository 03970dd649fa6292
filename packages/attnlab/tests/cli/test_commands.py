import importlib
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

import attnlab
import attnlab_course
from attnlab.cli import commands, doctor, main, terminal
from attnlab.errors import CouldNotRun
from attnlab.experiments.claims import read_claims
from tests.sampling import sampled

TINY = "steps=20 evaluate_every=10"


@pytest.fixture(scope="module")
def runs(tmp_path_factory, sorter):
    """A folder with one good run in it."""
    parent = tmp_path_factory.mktemp("work")
    shutil.copytree(sorter, parent / "runs" / "good")
    return parent


@pytest.fixture(autouse=True)
def _elsewhere(runs, monkeypatch):
    monkeypatch.chdir(runs)
    monkeypatch.setenv("COLUMNS", "80")


def with_claims(runs, folder, passed):
    """Copy the good run, with another verdict of some claims."""
    shutil.copytree(runs / "runs" / "good", folder)
    claims = json.loads((folder / "claims.json").read_text())
    for claim in claims:
        claim["passed"] = passed.get(claim["name"], claim["passed"])
    (folder / "claims.json").write_text(json.dumps(claims))
    return folder


def test_an_undecided_claim_is_status_0_and_is_said(run, runs, tmp_path):
    folder = with_claims(runs, tmp_path / "open", {"all_inputs_right": None})
    status, out, _ = run("show", folder)
    assert status == 0
    assert "? undecided" in out
    assert "2 of 3 claims hold, 1 undecided, self-checks: 1 of 1" in out
    assert json.loads(run("show", folder, "--json")[1])["claims"][0]["passed"] is None
    status, _, err = run("resume", folder)
    assert (status, "exit status" in err) == (0, False)
    assert "2/3, 1 undecided" in run("list", tmp_path)[1]


def test_a_held_claim_takes_one_line_after_a_run_and_show_states_it(run, capsys, runs):
    claims = read_claims(json.loads((runs / "runs" / "good" / "claims.json").read_text()))
    terminal.show_claims(claims)
    brief = capsys.readouterr().out.splitlines()
    assert len(brief) == 3 + 1  # the self-checks are counted in the last line
    assert max(map(len, brief)) <= 80
    assert "27/27" in brief[0]
    terminal.show_claims([replace(claims[0], passed=False), *claims[1:]])
    told = " ".join(capsys.readouterr().out.split())
    assert "greedy" in told  # of the statement that failed
    assert "the mean loss is within" not in told
    assert "the mean loss is within" in run("show good")[1]


def test_a_self_check_that_fails_is_shown_by_itself_and_is_status_1(run, runs, tmp_path):
    folder = with_claims(runs, tmp_path / "bad", {"causal": False})
    status, out, _ = run("show", folder)
    assert status == 1
    assert "✗ failed  causal" in out
    assert "no output depends on a later token" in out
    assert "parameters counted" not in out
    assert "1 of 4 claims failed, self-checks: 0 of 1" in out


def test_a_folder_of_runs_inside_runs_is_named_listed_and_opened(run, runs, tmp_path, monkeypatch):
    shutil.copytree(runs / "runs" / "good", tmp_path / "runs" / "seed-3" / "good")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("webbrowser.open", lambda url: True)
    assert "1 more   attnlab list runs/seed-3\n" in run("list")[1]
    assert "runs/seed-3/good" in run("list seed-3")[1]
    assert run("open seed-3")[1].endswith("runs/seed-3/index.html\n")
    assert "name one of them: runs/seed-3/good." in run("show seed-3")[2]


def test_without_out_the_next_free_folder_of_runs_is_taken(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, _ = run(f"run sorting -q --set {TINY}")
    assert status == 1
    assert "✗ failed" in out
    assert "runs/sorting/report.html" in out
    status, out, err = run(f"run sorting --json --set {TINY}")
    assert (status, err) == (1, "")
    assert json.loads(out)["run"] == "runs/sorting-2"


def test_json_is_json_and_nothing_else(run):
    for typed in (
        "list --json",
        "show good --json",
        "settings sorting --json",
        "settings --json",
        "trace good cab --json",
        "doctor --json",
    ):
        status, out, err = run(typed)
        json.loads(out)
        assert (status, err) == (0, "")


MISTAKES = {
    "run sorting --set postions=none": "no setting 'postions'; did you mean 'positions'?",
    "run sorting --set rank=0": "rank must be an integer from 1 to 4,096; got 0.",
    "run sorting --set positions=nnoe": "one of none, sinusoidal, learned",
    "run sorting --set rank": "a setting is written key=value; got 'rank'.",
    "run sorting --set rank=1 rank=2": "given twice",
    "run sorting --set rank=1..6": "a sweep: attnlab sweep sorting --set rank=1..6",
    "run sorting --set d_model=7": "multiple of num_heads; got 7 and 2",
    "run sorting --set steps=9 warmup_steps=9": "warmup_steps must be below steps",
    "run srting": "no experiment 'srting'; did you mean 'sorting'?",
    "run": "name an experiment, as in: attnlab run sorting; known: anatomy, handmade",
    "run sorting --layout batched": 'from: "auto", "simd", "vmap", "sequential"',
    "run sorting --set": "--set needs at least one key=value",
    "run sorting steps=5": "Settings are written --set key=value",
    "run sorting --sed 1": "Did you mean --seed?",
    "run sorting --seed x": "--seed: expected a whole number; got 'x'.",
    "run sorting --seed 1.5": "--seed: expected a whole number; got '1.5'.",
    "run sorting --seed [/red]": "got '[/red]'.",
    "run sorting --seed -1": "a seed must be",
    "rnu": 'Did you mean "run"?',
    "show runs": "runs is no run but holds some; name one of them: runs/good.",
    "trace good xyz": "expected 3 letters from a to c, such as 'cba'; got 'xyz'.",
    "trace": "name a run, as in: attnlab trace sorting; known: good",
    "compile": "such as examples/programs/sort.py",
    "search": "search needs a value for MODEL: a pretrained model",
    "search good cab": "search needs a value for --corpus: the texts: a .csv",
    "search good --corpus": "search needs a value for --corpus",
    "grade good": "grade needs a value for --out: the folder of the grades",
    "run sorting --seeds": "run needs a value for --seeds: how many models",
    "run sorting --steps 20": "Did you mean --seeds? Settings are written --set key=value.",
    "truth show": "truth show needs a value for CIRCUIT: ",
}
NOT_THERE = {
    "run sorting --out runs/good": "holds a run already, and nothing is overwritten",
    "run sorting --out afile --set steps=20": "There is a file where a folder is needed",
    "run sorting --out afile/x --set steps=20": "There is a file where a folder is needed",
    f"run sorting --out {'x' * 300} --set steps=20": "too long. Choose a shorter name",
    "show goood": "no run in goood; did you mean 'good'?",
    "show [/red]": "no run in [/red]; known: good",
    f"show {'x' * 300}": "no run in xxx",
    f"open {'x' * 300}": "no run in xxx",
    f"list {'x' * 300}": "there is no folder xxx",
    "trace nothere": "no run called nothere, and no such pretrained model: 'nothere' is no folder",
    "show nothing": "there is no run in nothing; known: good",
    "list nowhere": "there is no folder nowhere",
}


@pytest.mark.parametrize("typed", [*MISTAKES, *NOT_THERE])
def test_every_mistake_gets_one_sentence_and_its_status(refused, runs, typed):
    (runs / "afile").write_text("mine")
    refused(typed, 2 if typed in MISTAKES else 3, {**MISTAKES, **NOT_THERE}[typed])
    assert (runs / "afile").read_text() == "mine"


def test_the_prompt_asks_again_after_a_wrong_input_and_ends_with_the_input(run, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("cab\nxyz\n\nbba\n"))
    status, out, err = run("trace good")
    assert status == 2  # a script was not asked again
    assert "c a b → a b c" in out
    assert "b b a → a b b" in out
    assert err.count("expected 3 letters from a to c") == 2


def test_no_input_is_wrong_usage_in_every_command_that_asks_a_model(run, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    for command in ("trace good", "look good", "edit good --zero-head 0.0"):
        status, out, err = run(command)
        assert (status, out) == (2, ""), command
        assert "type an input after the run" in err


def test_a_trace_shows_probabilities_choice_and_each_head(run):
    _, out, _ = run("trace good c a b")
    assert out.count("p(a)") == 3
    assert len(re.findall(r"^ *0\.1  ", out, re.MULTILINE)) == 3
    assert "step 2 of 3" in out


@pytest.mark.parametrize("command", ["show good", "list", "trace good cab", "settings sorting"])
def test_no_line_is_wider_than_the_terminal(run, monkeypatch, command):
    for columns in (80, 160):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = run(command)[1].splitlines()
        assert max(len(line) for line in lines if "report.html" not in line) <= columns


def test_open_hands_the_report_to_the_browser_or_names_it(run, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    assert run("open good")[0] == 0
    assert opened[0].startswith("file://")
    assert opened[0].endswith("runs/good/report.html")
    monkeypatch.setattr("webbrowser.open", lambda url: False)
    _, out, _ = run("open good")
    assert "no browser was found" in out


def test_the_doctor_finds_this_machine_fit_or_a_package_missing(run, monkeypatch):
    known = doctor._version
    monkeypatch.setattr(
        doctor, "_version", lambda name: None if name == "safetensors" else known(name)
    )
    status, out, _ = run("doctor")
    assert status == 3
    assert "matrix path" in out
    assert "pip install" in out


class _Unread(io.StringIO):
    """A pipe whose reader has gone."""

    def write(self, text):
        raise BrokenPipeError(32, "Broken pipe")


@pytest.mark.parametrize("typed", ["settings sorting", "edits", "list", "--help", "look --help"])
def test_a_reader_that_has_gone_ends_every_command_quietly(run, capsys, monkeypatch, typed):
    monkeypatch.setattr(sys, "stdout", _Unread())
    assert main(typed.split()) == 0
    monkeypatch.undo()
    assert capsys.readouterr().err == ""
    assert run("--help")[1] != ""  # and a later one in the same process is heard


def test_a_run_whose_progress_nobody_reads_goes_on(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "stderr", _Unread())
    status = main(f"run sorting --out {tmp_path / 'run'} --set {TINY}".split())
    assert status == 1
    assert "report" in capsys.readouterr().out


def failing_with(monkeypatch, error):
    def fail(*args):
        raise error

    monkeypatch.setattr("attnlab.experiments.folder.list_runs", fail)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[…] DefaultCPUAllocator: can't allocate memory: you tried …"),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."),
        RuntimeError("unable to mmap 8 bytes from file <x>: Cannot allocate memory (12)"),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    ],
    ids=str,
)
def test_too_little_memory_is_one_sentence(run, monkeypatch, error):
    failing_with(monkeypatch, error)
    status, _, err = run("list")
    assert status == 3
    assert err.startswith("attnlab: there is not enough memory for this; try a smaller model")


def test_a_fault_of_ours_still_shows_its_traceback(monkeypatch):
    failing_with(monkeypatch, RuntimeError("shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        main(["list"])


def test_an_import_that_an_interrupt_broke_is_an_interrupt(run, monkeypatch):
    def broken(*args):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError("cannot import name 'x'") from None

    monkeypatch.setattr("attnlab.experiments.folder.list_runs", broken)
    before = signal.getsignal(signal.SIGINT)
    assert run("list") == (130, "", "attnlab: stopped by you.\n")
    assert signal.getsignal(signal.SIGINT) is before
    failing_with(monkeypatch, ImportError("no interrupt, no excuse"))
    with pytest.raises(ImportError, match="no excuse"):
        main(["list"])


class Last:
    """Ends with a signal, as if it had come at that very moment."""

    def __init__(self, number):
        self.number = number

    def __del__(self):
        signal.raise_signal(self.number)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_while_an_object_ends_is_not_lost(number, status, monkeypatch, capsys):
    def runs(*_, **__):
        last = Last(number)
        del last  # Python drops what is raised here
        time.sleep(10)

    monkeypatch.setattr("attnlab.cli.commands.app", runs)
    before = sys.unraisablehook
    assert main([]) == status
    assert sys.unraisablehook is before


def test_an_ignored_interrupt_stays_ignored_and_one_while_the_commands_load_is_said(
    run, monkeypatch
):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as `nohup attnlab … &` starts us
    try:
        assert main(["settings"]) == 0
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    monkeypatch.setattr("attnlab.cli.commands.main", lambda _: signal.raise_signal(signal.SIGINT))
    assert run("list") == (130, "", "attnlab: stopped by you.\n")


def test_what_only_reads_the_files_of_runs_does_not_load_torch(runs):
    code = (
        "import sys, webbrowser\nwebbrowser.open = lambda page: True\nfrom attnlab.cli import "
        "main\nfor command in ('list', 'open runs', 'open good'):\n"
        "    assert main(command.split()) == 0\n    assert 'torch' not in sys.modules, command"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=runs, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("runs/") >= 3


def shell(runs, command):
    command = command.replace("attnlab", f"{shlex.quote(sys.executable)} -m attnlab", 1)
    return subprocess.run(
        command, shell=True, cwd=runs, capture_output=True, text=True, check=False
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@pytest.mark.parametrize("command", sampled(["list runs", "list runs --json", "--version"], 1))
def test_an_output_that_is_full_is_one_sentence(runs, command):
    done = shell(runs, f"attnlab {command} >/dev/full")
    assert done.returncode == 3
    assert (
        done.stderr == "attnlab: could not use standard input or output: No space left on device.\n"
    )


CLOSED = {"list runs >&- 2>&-": 0, "trace runs/good <&- 2>&-": 2, "list runs >&-": 0}


@pytest.mark.parametrize("command", sampled(CLOSED, 1))
def test_a_closed_stream_is_as_an_empty_one(runs, command):
    done = shell(runs, f"attnlab {command}")
    assert (done.returncode, done.stderr) == (CLOSED[command], "")


def test_what_an_encoding_cannot_say_is_replaced(run, monkeypatch):
    ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", ascii_only)
        assert main(["show", "good"]) == 0
    ascii_only.flush()
    assert b"? holds" in ascii_only.buffer.getvalue()
    said = run("show good --json")[1]  # in letters that every encoding has
    assert said.isascii()
    assert json.loads(said)["experiment"] == "sorting"


def test_damage_is_status_3_for_every_look_and_a_state_in_the_list(run, runs, tmp_path):
    damaged = shutil.copytree(runs / "runs" / "good", tmp_path / "[/red]")
    (damaged / "claims.json").write_text("[]")
    for command in ("show", "trace", "open"):
        status, _, err = run(command, damaged)
        assert status == 3
        assert f"{damaged / 'claims.json'} is damaged: claims" in err
    status, out, _ = run(f"list {tmp_path / '['}")
    assert status == 0
    assert "damaged" in out
    assert "[/red]" in "".join(out.split())


def test_settings_lists_the_experiments_and_the_settings_of_one(run):
    assert "sorting" in run("settings")[1]
    out = run("settings sorting")[1]
    assert "learning_rate" in out
    assert "gated" in out
    assert "--full" not in out
    assert "attnlab run handmade --full starts from seeds=20" in run("settings handmade")[1]


def test_what_was_typed_at_great_length_is_repeated_in_part_alone(run):
    for typed in ("z" * 100_000, "z " * 50_000):
        status, _, err = run("trace good", typed)
        assert status == 2
        assert len(err) < 200
        assert "characters)" in err
        status, _, err = run(typed)
        assert (status, len(err) < 500) == (2, True)


def test_a_refused_run_announces_no_folder(run, runs, monkeypatch):
    monkeypatch.chdir(runs)
    shutil.copytree(runs / "runs" / "good", runs / "runs" / "sorting", dirs_exist_ok=True)
    status, _, err = run("run sorting --set lettrs=4")
    assert status == 2
    assert len(err.splitlines()) == 1
    assert "sorting-2" not in err
    shutil.rmtree(runs / "runs" / "sorting")


def test_a_folder_with_a_blank_is_quoted_in_every_command_that_is_shown(run, runs, tmp_path):
    folder = shutil.copytree(runs / "runs" / "good", tmp_path / "my runs" / "the first")
    assert run("show", folder)[0] == 0
    (folder / "report.html").unlink(missing_ok=True)
    (folder / "claims.json").rename(folder / "claims")
    assert f"attnlab resume '{folder}'" in run("list", folder.parent)[1]
    assert f"attnlab resume '{folder}'" in run("open", folder)[2]


def test_the_commands_are_listed_in_groups_and_each_in_one(run):
    out = run("--help")[1]
    assert [title for title in commands.GROUPS if title not in out] == []
    grouped = [command for group in commands.GROUPS.values() for command in group]
    assert len(grouped) == len({name for name in commands.app if not name.startswith("-")})


def test_a_command_of_a_package_that_is_missing_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(commands, "_ADDED", {})
    command = commands._load_command("grade", "attnlab-course")
    with pytest.raises(CouldNotRun, match="needs the package attnlab-course: pip install attnlab-"):
        command("submissions", "--out", "grades")


def test_the_course_is_part_of_attnlab_where_it_is_installed():
    for name in ("catalog", "grading.bans", "notebook"):
        module = importlib.import_module(f"attnlab.course.{name}")
        assert module is importlib.import_module(f"attnlab_course.{name}")
        assert module.__spec__.name == f"attnlab_course.{name}"
    assert attnlab.course.check is attnlab_course.check
    with pytest.raises(ModuleNotFoundError, match=r"attnlab_course\.nothing"):
        importlib.import_module("attnlab.course.nothing")


class WithoutTheCourse:
    """Finds no package attnlab_course."""

    def find_spec(self, name, path=None, target=None):
        if name == "attnlab_course":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_where_the_course_is_missing_its_name_says_how_to_install_it(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("attnlab_course")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "attnlab.course", raising=False)
    monkeypatch.setattr(sys, "meta_path", [WithoutTheCourse(), *sys.meta_path])
    with pytest.raises(CouldNotRun, match="pip install attnlab-course"):
        importlib.import_module("attnlab.course")
