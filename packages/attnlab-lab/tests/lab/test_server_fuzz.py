"""Requests drawn from the API's own schema, right and wrong: each has an answer or a sentence."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.responses import Response

from attnlab_lab.server import answer_process
from attnlab_lab.server.answers import Answers
from attnlab_lab.server.jobs import Jobs

from .asgi import Page

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=6,
)
NAMES = st.sampled_from(["one", "none", "sorting", "", "..", "a/b", "\0", "ü"]) | st.text(
    max_size=12
)


async def _answered(self: Answers, question: Any) -> Response:
    status, _, body = answer_process._answer(json.dumps(question)).partition(" ")
    return Response(body, int(status), media_type="application/json")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Answers, "_answer", _answered)
        patch.setattr(Jobs, "_launch", lambda self, name: None)
        patch.setenv("HF_HUB_OFFLINE", "1")
        made = Page(tmp_path_factory.mktemp("fuzz"))
        yield made
        made.close()


PLAIN = {
    "object": st.dictionaries(st.text(max_size=9), ANYTHING, max_size=3),
    "string": NAMES,
    "integer": st.integers(-5, 2**64),
    "number": st.floats(),
    "boolean": st.booleans(),
    "null": st.none(),
}


def value_of(schema: dict[str, Any], schemas: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return values that a schema allows."""
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        return st.one_of(value_of(part, schemas) for part in schema["anyOf"])
    if "items" in schema:
        return st.lists(value_of(schema["items"], schemas), max_size=3)
    if "properties" in schema:
        own = {name: value_of(each, schemas) for name, each in schema["properties"].items()}
        needed = {name: own.pop(name) for name in schema.get("required", [])}
        return st.fixed_dictionaries(needed, optional=own)
    return PLAIN[schema["type"]] if "type" in schema else ANYTHING


@st.composite
def requests(draw: st.DrawFn, schema: dict[str, Any]) -> tuple[str, str, bytes]:
    """Draw a method, a target and a body."""
    path = draw(st.sampled_from(sorted(schema["paths"])))
    method = draw(st.sampled_from(sorted(schema["paths"][path])))
    stated = schema["paths"][path][method].get("requestBody")
    body: Any = {}
    if stated is not None:
        form = stated["content"]["application/json"]["schema"]
        body = draw(value_of(form, schema["components"]["schemas"]) | ANYTHING)
    target = path.replace("{name}", draw(NAMES))
    content = json.dumps(body).encode() if draw(st.integers(0, 9)) else draw(st.binary(max_size=50))
    return method.upper(), target, content


def check_any_request(page: Page, data: st.DataObject) -> None:
    method, target, content = data.draw(requests(page.app.openapi()))
    chunks = [content] if method == "POST" else []
    answer = page.ask(method, target.encode("utf-8", "replace").decode(), chunks=chunks)
    assert 200 <= answer.status < 500, (method, target, content, answer)
    if answer.status >= 400:
        assert list(json.loads(answer.body)) == ["error"]
        assert b"Traceback" not in answer.body


@settings(max_examples=80)
@given(st.data())
def test_any_request_has_an_answer_or_a_sentence(page, data):
    check_any_request(page, data)


@pytest.mark.slow
@settings(max_examples=20_000)
@given(st.data())
def test_very_many_requests_have_an_answer_or_a_sentence(page, data):
    check_any_request(page, data)
