"""Connections: clients that leave in the middle of a stream, and bytes that are no HTTP."""

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
