"""Checks of the answers' queue; the process behind it is a small script."""

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from attnlab.lab.server import answers as module

from .aside import aside

PATIENCE = 60.0

SCRIPT = """
import json, os, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    if asked["what"] == "die": os.kill(os.getpid(), asked["number"])
    if asked["what"] == "slow": time.sleep(asked["seconds"])
    if asked["what"] == "half": os.write(1, b"200 [1, "); os._exit(0)
    if asked["what"] == "hang": time.sleep(600)
    print("200", json.dumps([asked, os.getpid()]), flush=True)
"""


def carried(patch: Any, check: Callable[[Any], Any]) -> None:
    """Run a check of answers that a script gives."""

    async def spawn(name: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            sys.executable, "-c", SCRIPT, stdin=pipe, stdout=pipe, start_new_session=True
        )

    patch.setattr(module, "spawn", spawn)

    async def run() -> None:
        answers = module.Answers()
        try:
            await asyncio.wait_for(check(answers), PATIENCE)
        finally:
            answers.close()
            if answers._process is not None:
                await answers._process.wait()

    aside(asyncio.run, run())


async def put(answers: Any, what: str, **facts: Any) -> tuple[dict[str, Any], int]:
    newest = facts.pop("newest", False)
    answer = await answers.ask(what, facts, newest=newest)
    assert answer.status == 200
    found, process = json.loads(answer.body)
    return found, process


async def check_latest_wins(answers: Any) -> None:
    first = asyncio.create_task(put(answers, "slow", seconds=0.3, number=0, newest=True))
    await asyncio.sleep(0.1)  # it has begun
    later = [asyncio.create_task(put(answers, "a", number=n, newest=True)) for n in range(1, 20)]
    patient = asyncio.create_task(put(answers, "b", number=20))
    found = await asyncio.gather(first, *later, patient, return_exceptions=True)
    assert found[0][0]["number"] == 0
    assert all(isinstance(each, module.Superseded) for each in found[1:19])
    assert (found[19][0]["number"], found[20][0]["number"]) == (19, 20)
    assert len({process for _, process in (found[0], found[19], found[20])}) == 1


async def check_burst(answers: Any) -> None:
    """Of 300 questions at once some wait and the others are refused; then all is as before."""
    running, most = 0, 0
    own = answers._answer

    async def counted(question: Any) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            return await own(question)
        finally:
            running -= 1

    answers._answer = counted
    asked = [asyncio.create_task(put(answers, "a", number=number)) for number in range(300)]
    found = await asyncio.gather(*asked, return_exceptions=True)
    right = [each for each in found if isinstance(each, tuple)]
    assert [each["number"] for each, _ in right] == list(range(module.MOST_WAITING))
    assert sum(isinstance(each, module.Busy) for each in found) == 300 - module.MOST_WAITING
    assert most == 1
    assert (await put(answers, "a", number=-1))[0]["number"] == -1


async def check_crashes(answers: Any) -> None:
    """A process that dies takes its own question along, and no other."""
    for number in range(20):
        how = (
            {"what": "half"} if number % 3 == 0 else {"what": "die", "number": (9, 11)[number % 2]}
        )
        dying = asyncio.create_task(put(answers, **how))
        after = [asyncio.create_task(put(answers, "a", number=each)) for each in range(3)]
        with pytest.raises(module.Crashed, match="ask again"):
            await dying
        assert [(await each)[0]["number"] for each in after] == [0, 1, 2]


async def check_no_answer_is_mistaken(answers: Any) -> None:
    """A question that is given up leaves no answer behind for the next one."""
    leaving = asyncio.create_task(put(answers, "slow", seconds=0.3, number=1))
    await asyncio.sleep(0.1)
    leaving.cancel()
    assert (await put(answers, "a", number=2))[0]["number"] == 2
    seconds, module._SECONDS = module._SECONDS, 0.5
    try:
        with pytest.raises(module.Crashed):
            await put(answers, "hang")
    finally:
        module._SECONDS = seconds
    assert (await put(answers, "a", number=3))[0]["number"] == 3
    assert answers._waiting == 0
