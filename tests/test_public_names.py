"""The public names are those of the committed list, and none breaks without warning."""

import pytest
from cyclopts import App

import attnlab
from docs import public_names
from docs.public_names import breaks, broken_promises, may_go

LISTED = public_names.LIST.read_text().splitlines()


@pytest.fixture(scope="module")
def names():
    return public_names.public_names()


@pytest.fixture
def released(tmp_path, monkeypatch):
    """A copy of the list after a first release, and a promise whose table one may fill."""
    for name, text in (
        ("CHANGES", "# Changes\n\n## Unreleased\n\n## 0.1.0\n"),
        ("PROMISE", "no name is going\n"),
        ("LIST", "\n".join(LISTED) + "\n"),
    ):
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(public_names, name, tmp_path / name)
    return tmp_path


def test_the_list_has_the_public_names_of_today(names):
    assert broken_promises(LISTED, names) == []
    added, gone = set(names) - set(LISTED), set(LISTED) - set(names)
    assert (added, gone) == (set(), set()), "make public-names writes the list anew"


def test_the_list_has_names_of_each_kind():
    for line in (
        "attnlab.causal_mask(num_queries, num_keys=..., *, device=...)",
        "attnlab.edits.Certificate.holds",
        "attnlab_course.check(exercise, names=..., *, seed=...)",
        "$ attnlab lab [--runs] [--port] [--no-browser] [--static]",
        "entry points: attnlab.edits",
        "run folder: claims.json",
    ):
        assert line in LISTED
    assert {f"attnlab.{name}" for name in attnlab.__all__} <= {*map(public_names.key, LISTED)}


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("f(a, b=...)", "g(a, b=...)", "is gone"),
        ("f(a, b=...)", "f", "is a value and no function"),
        ("f(a, b=...)", "f(a)", "has no parameter b"),
        ("f(a, b=...)", "f(a, c=...)", "has no parameter b"),
        ("f(a, b)", "f(b, a)", "has its parameter a in another place"),
        ("f(a, b=...)", "f(a, c=..., b=...)", "has its parameter b in another place"),
        ("f(a, b=...)", "f(a, *, b=...)", "takes its parameter b in another way"),
        ("f(*, b=...)", "f(b=..., /)", "takes its parameter b in another way"),
        ("f(a, b=...)", "f(a, b)", "needs its parameter b"),
        ("f(a)", "f(a, b)", "needs a parameter b"),
        ("f(a, **more)", "f(a)", "has no parameter more"),
        ("$ f RUN [--out]", "$ f RUN", "has no --out"),
        ("$ f RUN [--out]", "$ f RUN --out", "needs --out"),
        ("$ f RUN [TEXT]", "$ f [TEXT] RUN", "takes TEXT where RUN was"),
        ("$ f RUN", "$ f RUN --out", "needs --out"),
        ("$ f RUN", "$ g RUN", "is gone"),
        ("run folder: claims.json", "run folder: claims.toml", "is gone"),
    ],
)
def test_what_no_longer_works_is_found(old, new, reason):
    assert list(breaks([old], [new]).values()) == [reason]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("f(a, b=...)", "f(a=..., b=..., c=..., *, d=...)"),
        ("f(a, *, b=...)", "f(a, b=..., *, c=...)"),
        ("f(a, *, b, c)", "f(a, *, c, b)"),
        ("f(a)", "f(a, *rest, **more)"),
        ("$ f RUN --out", "$ f RUN [TEXT] [--out] [--json]"),
    ],
)
def test_what_is_added_breaks_nothing(old, new):
    assert breaks([old], [new, "g(a)"]) == {}


def shorter(name):
    """Return the list without the line of a name."""
    return [line for line in LISTED if public_names.key(line) != name]


def test_the_list_is_not_written_anew_where_that_breaks_the_promise(released, monkeypatch, capsys):
    monkeypatch.setattr(public_names, "public_names", lambda: shorter("attnlab.ablate"))
    assert public_names.rewrite() == 1
    assert "attnlab.ablate is gone; give it two minor versions" in capsys.readouterr().err
    assert (released / "LIST").read_text().splitlines() == LISTED


def test_a_name_goes_two_minor_versions_after_its_row_in_the_promise(released, monkeypatch):
    row = "| `attnlab.ablate` | 0.2.0 | `attnlab.effect` |\n"
    (released / "PROMISE").write_text(row)
    monkeypatch.setattr(public_names, "public_names", lambda: shorter("attnlab.ablate"))
    monkeypatch.setattr(attnlab, "__version__", "0.3.9")
    assert public_names.rewrite() == 1
    monkeypatch.setattr(attnlab, "__version__", "0.4.0")
    assert public_names.rewrite() == 0
    assert (released / "LIST").read_text().splitlines() == shorter("attnlab.ablate")
    assert not may_go("attnlab.effect", row, "0.4.0")


def test_the_promise_begins_with_the_first_release(released):
    (released / "CHANGES").write_text("# Changes\n\n## Unreleased\n")
    assert broken_promises(LISTED, shorter("attnlab.ablate")) == []


def test_a_renamed_parameter_a_lost_option_and_a_lost_file_change_the_list(released, monkeypatch):
    monkeypatch.setattr(attnlab, "ablate", lambda model, tokens: None)
    monkeypatch.setattr(public_names, "run_files", list)
    app = App(name="attnlab")
    app.command(lambda *, runs=".": None, name="lab")
    monkeypatch.setattr(public_names, "app", app)
    reasons = breaks(LISTED, public_names.public_names())
    assert reasons["attnlab.ablate"] == "has no parameter inputs"
    assert reasons["$ attnlab lab"] == "has no --port"
    assert reasons["$ attnlab open"] == reasons["run folder: claims.json"] == "is gone"
    assert not [name for name in reasons if name.startswith("attnlab.") and "ablate" not in name]
