import errno
import os
import threading
from unittest import mock

import pytest
import safetensors.torch
import torch

from attnlab.core.store import (
    LOCK,
    CouldNotWrite,
    FolderInUse,
    StateFolder,
    StoredTensor,
    digest_of,
    locked,
    pack,
    read_header,
    read_json,
    read_json_lines,
    read_tensors,
    refusing_damage,
    write_bytes,
    write_json,
    write_tensors,
    write_text,
    writer_of,
)
from attnlab.errors import CouldNotRun


def test_a_file_is_replaced_whole_with_the_usual_permissions(tmp_path):
    file, mask = tmp_path / "a.txt", os.umask(0o022)
    try:
        write_text(file, "one")
        write_text(file, "two ·")
    finally:
        os.umask(mask)
    assert file.read_text(encoding="utf-8") == "two ·"
    assert file.stat().st_mode & 0o777 == 0o644
    with pytest.raises(ValueError, match="Out of range"):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("call", ["os.fsync", "os.replace"])
@pytest.mark.parametrize(
    ("error", "raised", "fact"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), CouldNotRun, "The disk is full"),
        (KeyboardInterrupt(), KeyboardInterrupt, None),
    ],
)
def test_a_full_disk_or_an_interrupt_leaves_the_old_file_alone(tmp_path, call, error, raised, fact):
    file = tmp_path / "a.bin"
    write_bytes(file, b"old")
    with mock.patch(call, side_effect=error), pytest.raises(raised, match=fact):
        write_bytes(file, b"new")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_missing_folder_or_file_is_said(tmp_path):
    with pytest.raises(CouldNotRun, match="The folder is not there"):
        write_text(tmp_path / "no" / "a.txt", "x")
    with pytest.raises(CouldNotRun, match=r"could not read .*No such file"):
        read_json(tmp_path / "a.json")


def test_a_full_disk_is_said_of_tensors_too(tmp_path, monkeypatch):
    file = tmp_path / "a.safetensors"
    write_tensors(file, {"x": torch.ones(3)})
    assert file.read_bytes() == pack({"x": torch.ones(3)})

    def full(*args):
        raise safetensors.SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(CouldNotWrite, match=r"a\.safetensors \(16 bytes\).*The disk is full"):
        write_tensors(file, {"x": torch.zeros(4)})
    assert read_tensors(file)["x"].tolist() == [1.0, 1.0, 1.0]
    assert list(tmp_path.iterdir()) == [file]


def test_what_reaches_its_name_was_synced_itself(tmp_path, monkeypatch):
    """safetensors writes to a file of its own and renames it, so another handle syncs nothing."""
    synced, sync = [], os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda handle: (synced.append(os.fstat(handle).st_ino), sync(handle))
    )
    write_tensors(tmp_path / "a", {"x": torch.ones(3)})
    write_text(tmp_path / "b", "x")
    a, b, folder = ((tmp_path / name).stat() for name in ("a", "b", "."))
    assert synced == [a.st_ino, folder.st_ino, b.st_ino, folder.st_ino]
    assert a.st_mode == b.st_mode


def test_tensors_that_are_not_those_of_the_checksum_are_refused(tmp_path):
    folder = StateFolder(tmp_path, "a.json", "attnlab things 1", "thing")
    write_tensors(tmp_path / "a", {"x": torch.ones(2, 3).half()}, {"by": "us"})
    digest = digest_of(tmp_path / "a")
    assert folder.get("a", digest)["x"].shape == (2, 3)
    for other in (None, "", digest[:16], 0):
        with pytest.raises(CouldNotRun, match=r"its checksum is not the one in a\.json"):
            folder.get("a", other)
    assert read_header(tmp_path / "a") == ({"x": StoredTensor("float16", (2, 3))}, {"by": "us"})
    (tmp_path / "a").write_bytes(b"no tensors")
    for read in (read_header, read_tensors, lambda path: digest_of(path.with_name("b"))):
        with pytest.raises(CouldNotRun, match=r"^could not read "):
            read(tmp_path / "a")


def test_a_state_is_read_or_refused_in_a_sentence(tmp_path):
    folder = StateFolder(tmp_path, "a.json", "attnlab things 1", "thing")
    with pytest.raises(CouldNotRun, match=rf"^there is no thing in {tmp_path}: a\.json is missing"):
        folder.read()
    folder.write({"x": 1})
    assert folder.read() == {"format": "attnlab things 1", "x": 1}
    for other in ('{"format": "attnlab things 2"}', "[]", "{}"):
        (tmp_path / "a.json").write_text(other)
        with pytest.raises(CouldNotRun, match="is no thing: it does not say 'attnlab things 1'"):
            folder.read()


@pytest.mark.parametrize(
    ("odd", "fact"),
    [
        (lambda: {}["x"], "'x' is missing"),
        (lambda: int("x"), "invalid literal"),
        (lambda: next(iter([[]]))[0], "out of range"),
    ],
)
def test_damage_is_one_sentence(odd, fact):
    with (
        pytest.raises(CouldNotRun, match=f"the thing is damaged: .*{fact}"),
        refusing_damage("the thing"),
    ):
        odd()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "a": 2}', "occurs twice"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ("{", "could not read"),
        ("[" * 100_000, "could not read"),
    ],
)
def test_unclean_json_is_refused(tmp_path, text, message):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(CouldNotRun, match=message):
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


def test_a_lock_that_may_not_be_tried_counts_as_held(tmp_path, monkeypatch):
    """As that of another user's run: whether it is held cannot be found out."""
    import filelock

    def denied(self, *args, **options):
        raise PermissionError(errno.EACCES, "Permission denied")

    (tmp_path / LOCK).write_text("4711")
    monkeypatch.setattr(filelock.FileLock, "acquire", denied)
    assert writer_of(tmp_path) == "process 4711"
    with pytest.raises(CouldNotWrite, match="no permission to write"), locked(tmp_path):
        pass


def test_a_file_system_without_locks_can_be_written_to(tmp_path, monkeypatch):
    import filelock

    def unsupported(self, *args, **options):
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(filelock.FileLock, "acquire", unsupported)
    with locked(tmp_path):
        assert writer_of(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_of_many_that_want_a_folder_at_once_one_gets_it(tmp_path):
    holders, refused, most = [], [], []

    def work():
        try:
            with locked(tmp_path):
                holders.append(1)
                most.append(len(holders))
                holders.pop()
        except FolderInUse:
            refused.append(1)

    for _ in range(15):
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert max(most) == 1
    assert len(most) + len(refused) == 60
    assert not (tmp_path / LOCK).exists()
