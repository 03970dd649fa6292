"""Connections: clients that leave in the middle of a stream, and bytes that are no HTTP."""

import logging
import random

import pytest

from .connections_checks import threaded


def test_clients_that_leave_a_stream_leave_nothing_behind(tmp_path, monkeypatch):
    with threaded(monkeypatch, tmp_path) as server:
        folder = server.page.runs / ".jobs" / "one"
        folder.mkdir(parents=True)
        (folder / "job.json").write_text("{}")
        (folder / "events.jsonl").write_text('{"event": "began"}\n')
        monkeypatch.setattr(server.page.lab.jobs, "is_live", lambda name: True)
        for _ in range(40):
            with server.connect() as client:
                client.sendall(server.head(path="/api/jobs/one/events"))
                found = b""
                while b"began" not in found:
                    found += client.recv(2**16)
        server.until(lambda: server.open == 0)
        with server.connect() as client:
            client.sendall(server.head(path="/api/jobs/one/events"))
            client.recv(2**16)
            server.close()  # it ends while a page listens
            client.recv(2**16)


def raw_requests(server, number):
    """Yield requests with bytes of them changed, cut or doubled."""
    draw = random.Random(7)
    whole = [
        server.head() + b"",
        server.head(path="/api/jobs/one/events"),
        server.head("POST", "/api/ask", content_length="2") + b"{}",
        server.head("POST", "/api/jobs", transfer_encoding="chunked") + b"2\r\n{}\r\n0\r\n\r\n",
    ]
    for _ in range(number):
        content = bytearray(draw.choice(whole))
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(content))
            match draw.randrange(4):
                case 0:
                    content[at] = draw.randrange(256)
                case 1:
                    del content[at : at + draw.randint(1, 20)]
                case 2:
                    content[at:at] = content[at : at + draw.randint(1, 60)]
                case _:
                    content[at:at] = draw.choice([b"\r\n", b"\0", b":", b" ", b"\xff", b"\r\n\r\n"])
            content = content or bytearray(b" ")
        yield bytes(content)


def check_raw(server, number, caplog):
    for content in raw_requests(server, number):
        answer = server.send(content, 0.05)
        assert not answer.startswith(b"HTTP/1.1 5"), (content, answer)
        assert b"Traceback" not in answer
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


def test_no_bytes_break_it(tmp_path, monkeypatch, caplog):
    with threaded(monkeypatch, tmp_path) as server:
        check_raw(server, 100, caplog)


@pytest.mark.slow
def test_very_many_bytes_do_not_break_it(tmp_path, monkeypatch, caplog):
    with threaded(monkeypatch, tmp_path) as server:
        check_raw(server, 20_000, caplog)
