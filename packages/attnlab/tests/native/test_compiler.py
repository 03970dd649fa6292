"""Our C++ is compiled once, kept where nobody else may write."""

import multiprocessing
import stat

import pytest

from attnlab.native import NotCompiled, compiled, compiler, compiler_name, vector_bytes, vectors

SOURCE = 'extern "C" int answer() { return 42; }'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    if compiler_name() is None:
        pytest.skip("there is no C++ compiler here")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "attnlab" / "tests"


def answer(source=SOURCE):
    return compiled(source, name="tests", has="answer", flags=("-O0",)).answer()


def test_a_function_is_compiled_and_called(folder):
    assert answer() == 42
    assert len(list(folder.glob("*.so"))) == 1


def test_what_was_compiled_is_kept_and_not_compiled_again(folder, monkeypatch):
    answer()
    monkeypatch.setattr(compiler, "_built", None)
    assert answer() == 42
    with pytest.raises(TypeError):
        answer(SOURCE.replace("42", "43"))


def test_a_damaged_file_is_never_loaded_but_compiled_anew(folder):
    answer()
    (library,) = folder.glob("*.so")
    library.unlink()
    library.write_bytes(b"something else")
    assert answer() == 42
    assert library.read_bytes() != b"something else"


def test_other_flags_are_another_library(folder, monkeypatch):
    answer()
    monkeypatch.setenv("CXXFLAGS", "-DANYTHING")
    answer()
    assert len(list(folder.glob("*.so"))) == 2


def test_a_folder_that_others_may_write_is_made_private(folder):
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    answer()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_that_cannot_be_made_costs_only_the_keeping(folder, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert answer() == 42


def test_without_a_compiler_it_is_said_what_was_looked_for(folder, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(NotCompiled, match=r"looked for no-such-compiler \(from CXX\)"):
        answer()
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NotCompiled, match=r"looked for g\+\+ or clang\+\+"):
        answer()


def test_a_source_that_does_not_compile_is_told_with_the_first_complaint(folder):
    with pytest.raises(NotCompiled, match=r"does not compile it: .*error"):
        answer("not C++")


def _together(barrier, results):
    barrier.wait()
    results.put(answer())


def test_two_processes_may_compile_the_same_at_once(folder):
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(2), context.Queue()
    running = [context.Process(target=_together, args=(barrier, results)) for _ in range(2)]
    for process in running:
        process.start()
    assert [results.get(timeout=60) for _ in running] == [42, 42]
    for process in running:
        process.join()


@pytest.mark.parametrize(("width", "is_double"), [(16, False), (32, True)])
def test_vectors_of_every_width_compare_and_choose(folder, width, is_double):
    if width > vector_bytes():
        pytest.skip("vectors of this width are not there")
    source = (
        vectors(is_double=is_double, width=width)
        + """
    extern "C" int answer() {
      V a, b;
      for (int i = 0; i < W; ++i) a[i] = i, b[i] = W - 1 - i;
      V most = larger(a, b), chosen = choose(a > b, a, b), lost = larger(a, splat(NAN));
      int right = lanes_above(a, b) == ((1u << W) - 1 & ~((1u << W / 2) - 1));
      for (int i = 0; i < W; ++i) right &= most[i] == chosen[i] && lost[i] != lost[i];
      return right && of_bits(bits_of(a))[W - 1] == W - 1;
    }"""
    )
    assert compiled(source, name="tests", has="answer", flags=("-O1",)).answer() == 1
