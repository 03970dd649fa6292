import errno
import os
import threading

import pytest

from attnlab.errors import CouldNotRun
from attnlab.files import (
    LOCK,
    locked,
    read_json,
    read_json_lines,
    write_bytes,
    write_json,
    write_text,
    writer_of,
)


def test_a_file_is_replaced_whole(tmp_path):
    file = tmp_path / "a.txt"
    write_text(file, "one")
    write_text(file, "two ·")
    assert file.read_text(encoding="utf-8") == "two ·"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("call", ["os.fsync", "os.replace"])
def test_a_full_disk_leaves_the_old_file_and_no_remains(tmp_path, monkeypatch, call):
    file = tmp_path / "a.bin"
    write_bytes(file, b"old")

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(call, full)
    with pytest.raises(CouldNotRun, match=r"a\.bin \(3 bytes\).*The disk is full"):
        write_bytes(file, b"new")
    monkeypatch.undo()
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_an_interrupt_leaves_the_old_file_and_no_remains(tmp_path, monkeypatch):
    file = tmp_path / "a.bin"
    write_bytes(file, b"old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        write_bytes(file, b"new")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_missing_folder_is_said(tmp_path):
    with pytest.raises(CouldNotRun, match="The folder is not there"):
        write_text(tmp_path / "no" / "a.txt", "x")


def test_the_usual_permissions_are_given(tmp_path):
    old = os.umask(0o022)
    try:
        write_text(tmp_path / "a", "x")
    finally:
        os.umask(old)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "a": 2}', "stands twice"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ("{", "could not read"),
        ("[" * 100_000, "could not read"),
    ],
)
def test_unclean_json_is_refused(tmp_path, text, message):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(CouldNotRun, match=message):
        read_json(tmp_path / "a.json")


def test_a_missing_json_file_is_said(tmp_path):
    with pytest.raises(CouldNotRun, match=r"could not read .*No such file"):
        read_json(tmp_path / "a.json")


def test_lines_of_json_are_read_and_the_damaged_one_is_named(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text('{"a": 1}\n\n{"b": 2}\n')
    assert read_json_lines(file) == [{"a": 1}, {"b": 2}]
    for damaged, message in (
        (b'{"a": 1}\n{"b"', "line 2 of"),
        (b"[1]\n", "must be a JSON object"),
        (b"\xff", "a.jsonl"),
    ):
        file.write_bytes(damaged)
        with pytest.raises(CouldNotRun, match=message):
            read_json_lines(file)


def test_json_never_holds_nan(tmp_path):
    with pytest.raises(ValueError, match="Out of range"):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_who_writes_into_a_folder_is_known_and_a_dead_writer_is_none(tmp_path):
    assert writer_of(tmp_path) is None
    (tmp_path / LOCK).write_text("4711")  # as a writer that was killed leaves it
    assert writer_of(tmp_path) is None
    with locked(tmp_path):
        assert writer_of(tmp_path) == f"process {os.getpid()}"
        assert writer_of(tmp_path) == f"process {os.getpid()}"  # asking changed nothing
    assert writer_of(tmp_path) is None


def test_to_ask_who_writes_keeps_nobody_from_writing(tmp_path):
    import fcntl

    (tmp_path / LOCK).write_text("4711")
    with open(tmp_path / LOCK, "rb") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        threading.Timer(0.005, fcntl.flock, (asking, fcntl.LOCK_UN)).start()
        with locked(tmp_path):
            assert writer_of(tmp_path) == f"process {os.getpid()}"
