"""The served page's calls: the page's engine answers as on the static page, PyTorch for a run."""

import json
import re
from typing import Any

from attnlab.draw.bundle import bundle

from .engine_cases import ENGINE, needs_node, run_engine

REFUSED: list[list[Any]] = [
    ["ask", 1, "no input"],
    ["anatomy", "no experiment", {}],
    ["constructor"],
]
CALLS: list[list[Any]] = [
    ["create", {"seed": 3}],
    ["advance", 1, 0],
    ["check", 1],
    ["ask", 1, "bca"],
    ["save", 1],
    ["open", {}],
    ["drop", 2],
    ["createHead", {"rule": "unique", "seed": 1}],
    ["advance", 3, 0],
    ["readHead", 3],
    ["drop", 3],
    ["anatomy", "scaling", {"width": 64}],
    ["anatomy", "masking", {"masks": [[1] * 36]}],
    ["anatomy", "maskValue", {"value": -100, "size": 100, "open": [1] * 8}],
    ["anatomy", "ordering", {"positions": "none", "first": [0, 1], "second": [1, 0]}],
    ["anatomy", "norming", {"numbers": [1.0, 2.0]}],
    ["anatomy", "costs", {"width": 64, "lengths": [32]}],
    *REFUSED,
]
"""Every method of the page's engine, as the page calls it; `open` gets what `save` answers."""

RUN = {"run": "sorting"}
REPLIES = {
    "/api/runs/sorting": {"config": {"model": {}}, "metrics": [{"step": 9, "loss": 0.5}]},
    "/api/populations/many/4": {"config": {"model": {}}, "metrics": []},
    "/api/domain": {"right": [1], "margins": [0.5], "answers": ["abc"], "inputs": ["cab"]},
    "/api/ask": {"answer": "abc", "steps": []},
}
RUN_CALLS: list[tuple[list[Any], list[str]]] = [
    (["create", RUN], ["/api/runs/sorting", "/api/domain"]),
    (["create", {"run": "many/4"}], ["/api/populations/many/4", "/api/domain"]),
    (["advance", RUN, 20], []),
    (["check", RUN, []], ["/api/domain"]),
    (["ask", RUN, "cab", []], ["/api/ask"]),
    (["drop", RUN], []),
]
"""What the page calls for a run, and which of the server's addresses answer."""


def static(calls: list[list[Any]]) -> list[Any]:
    """Put calls to the page's engine alone, as the static page does."""
    messages = [
        {"number": number, "method": method, "args": args}
        for number, (method, *args) in enumerate(calls)
    ]
    [answers] = run_engine([{"what": "messages", "messages": messages}])
    assert [answer["number"] for answer in answers] == list(range(len(calls)))
    return answers


def served(calls: list[list[Any]]) -> list[Any]:
    """Put calls as the served page does."""
    script = bundle("attnlab_lab/parts/server.js")
    request = {"what": "served", "calls": calls, "replies": REPLIES, "script": script}
    [answers] = run_engine([request])
    return answers


@needs_node
def test_the_served_page_answers_every_call_of_the_static_page_alike() -> None:
    saved = static([["create", {"seed": 3}], ["save", 1]])[1]["result"]
    calls = [[method, saved] if method == "open" else [method, *args] for method, *args in CALLS]
    methods = re.search(r"METHODS = \[(.+)\]", (ENGINE / "worker.js").read_text())
    assert methods is not None
    assert set(json.loads(f"[{methods[1]}]")) == {call[0] for call in calls} - {"constructor"}
    found = static(calls)
    assert found[-1]["error"] == "there is no method constructor"
    for call, alone, both in zip(CALLS, found, served(calls), strict=True):
        answer = {"error": alone["error"]} if call in REFUSED else alone.get("result")
        assert (both["answer"], both["local"], both["paths"]) == (answer, True, []), call


@needs_node
def test_what_is_asked_of_a_run_is_answered_by_the_server_alone() -> None:
    answers = served([call for call, _ in RUN_CALLS])
    for (call, paths), answer in zip(RUN_CALLS, answers, strict=True):
        assert (answer["local"], answer["paths"]) == (False, paths), call
        assert call[0] == "drop" or "error" not in answer["answer"], call
    assert answers[0]["answer"]["id"] == RUN
    assert answers[2]["answer"]["losses"] == [[9, 0.5]]
