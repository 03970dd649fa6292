"""Checks of the answers' queue; the process behind it is a small script."""

import asyncio
import json
import random
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from attnlab_lab.server import answers as module

from .aside import aside, ended

PATIENCE = 60.0

SCRIPT = """
import json, os, signal, sys, time
totals, stops = {}, []
signal.signal(signal.SIGINT, lambda *_: stops.append(1))
for line in sys.stdin:
    asked = json.loads(line)
    if asked["what"] == "die": os.kill(os.getpid(), asked["number"])
    if asked["what"] == "half": os.write(1, b"200 [1, "); os._exit(0)
    if asked["what"] == "hang": time.sleep(600)
    if asked["what"] == "endless":
        print('100 "begun"', flush=True)
        while len(stops) < asked.get("stops", 3): time.sleep(0.01)
    if asked["what"] == "add":
        totals[asked["owner"]] = asked["total"] = totals.get(asked["owner"], 0) + asked["number"]
    if asked["what"] == "count":
        before = len(stops)
        time.sleep(0.3)
        asked["stops"] = len(stops) - before
    print("200", json.dumps([asked, os.getpid()]), flush=True)
"""


def carried(patch: Any, check: Callable[[Any], Any]) -> None:
    """Run a check of answers that a script gives."""

    spawned: list[asyncio.subprocess.Process] = []

    async def spawn(name: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", SCRIPT, stdin=pipe, stdout=pipe, start_new_session=True
        )
        spawned.append(process)
        return process

    patch.setattr(module, "spawn", spawn)

    async def run() -> None:
        answers = module.Answers()
        try:
            await asyncio.wait_for(check(answers), PATIENCE)
        finally:
            await ended(spawned)

    aside(asyncio.run, run())


async def put(answers: Any, what: str, **facts: Any) -> tuple[dict[str, Any], int]:
    page = facts.pop("page", None)
    answer = await answers.ask(what, facts, page=page)
    assert answer.status_code == 200
    found, process = json.loads(answer.body)
    return found, process


async def begun(answers: Any, **facts: Any) -> asyncio.Task[Any]:
    """Put a question that only stops end, and wait until its answer has begun."""
    asking = asyncio.create_task(put(answers, "endless", **facts))
    while not answers.said:
        await asyncio.sleep(0.01)
    return asking


async def check_stop(answers: Any) -> None:
    """A page that stops ends the answer to its question, whose process does not heed the first
    interrupts, or drops a question that waits; the next question is not interrupted."""
    endless = await begun(answers, page="one")
    waiting = asyncio.create_task(put(answers, "a", page="other"))
    await asyncio.sleep(0)
    await answers.stop("other")
    assert not endless.done()
    stopping = asyncio.create_task(answers.stop("one"))
    assert (await endless)[0]["what"] == "endless"
    assert (await put(answers, "count", page="one"))[0]["stops"] == 0
    await stopping
    with pytest.raises(module.Superseded):
        await waiting


async def check_said(answers: Any) -> None:
    """What the process says before its answer can be read meanwhile, and is no answer."""
    asking = await begun(answers, page="one", stops=1)
    assert answers.said == "begun"
    await answers.stop("one")
    assert (await asking)[0]["what"] == "endless"
    assert answers.said == ""


async def check_latest_wins(answers: Any) -> None:
    first = await begun(answers, number=0, page="one", stops=1)
    later = [asyncio.create_task(put(answers, "a", number=n, page="one")) for n in range(1, 20)]
    other = asyncio.create_task(put(answers, "a", number=30, page="other"))
    patient = asyncio.create_task(put(answers, "b", number=20))
    await asyncio.sleep(0)  # all of them wait now
    answers._process.send_signal(signal.SIGINT)
    found = await asyncio.gather(first, *later, patient, return_exceptions=True)
    assert [type(found[place]) for place in (0, 19, 20)] == [tuple] * 3
    assert found[0][0]["number"] == 0
    assert all(isinstance(each, module.Superseded) for each in found[1:19])
    assert (found[19][0]["number"], found[20][0]["number"]) == (19, 20)
    assert (await other)[0]["number"] == 30
    assert len({process for _, process in (found[0], found[19], found[20])}) == 1


async def check_fifty_pages(answers: Any, operations: int = 2_000) -> None:
    """Fifty pages add numbers at random moments: each reads its own sum, and none is lost."""
    chance = random.Random(13)

    async def add(owner: str) -> None:
        total = 0
        for _ in range(operations // 50):
            number = chance.randrange(1_000)
            found: dict[str, Any] | None = None
            while found is None:
                await asyncio.sleep(chance.random() / 1_000)
                with suppress(module.Busy):
                    found, _ = await put(answers, "add", number=number, owner=owner, page=owner)
            total += number
            assert (found["owner"], found["total"]) == (owner, total)

    pages = (add(f"page {number}") for number in range(50))
    wrong = await asyncio.gather(*pages, return_exceptions=True)
    assert [each for each in wrong if each is not None] == []


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
    for number in range(6):
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
    leaving = await begun(answers, number=1, stops=1)
    leaving.cancel()
    assert (await put(answers, "a", number=2))[0]["number"] == 2
    seconds, module.SECONDS = module.SECONDS, 0.5
    try:
        with pytest.raises(module.Crashed):
            await put(answers, "hang")
    finally:
        module.SECONDS = seconds
    assert (await put(answers, "a", number=3))[0]["number"] == 3
    assert answers._waiting == 0
