"""The routes of the room Programs: the value of each line on an example, and a proof."""

from fastapi import FastAPI
from pydantic import Field
from starlette.responses import Response

from attnlab.lab.server.answers import Answers, Crashed, Form, PageId

PROOF_SECONDS = 60.0
"""How long a model may be made and proved, the start of the process included."""


class StepsRequest(Form):
    """A program as text, which is never run as Python, its alphabet, and an input."""

    text: str = Field(max_length=20_000)
    alphabet: str = Field(max_length=100)
    example: str = Field(max_length=100)
    page: PageId = None


class ProofRequest(StepsRequest):
    """The same, to be proved on all inputs up to a length."""

    longest: int


def add_programs(app: FastAPI, answers: Answers, proofs: Answers) -> None:
    """Add the routes; `proofs` is a process for proofs alone, started when first asked."""

    @app.post("/api/programs/steps")
    async def steps(asked: StepsRequest) -> Response:
        facts = asked.model_dump(exclude={"page"})
        return await answers.ask("program_steps", facts, page=asked.page)

    @app.post("/api/programs/prove")
    async def prove(asked: ProofRequest) -> Response:
        facts = asked.model_dump(exclude={"page"})
        try:
            return await proofs.ask("prove_program", facts, page=asked.page)
        except Crashed:
            raise Crashed(
                f"this took more than {PROOF_SECONDS:g} seconds or the memory there is: take fewer "
                "letters or shorter inputs, or attnlab compile in a terminal, which may take long."
            ) from None
