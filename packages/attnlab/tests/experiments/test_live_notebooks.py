"""JupyterLab and marimo: a page is shown, edited and answered; saved, it needs no kernel."""

import importlib.util
import json
import os
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager

import pytest
from ray_cluster import free_port

pytestmark = pytest.mark.slow


def needs(*packages):
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


OFFLINE = [  # JupyterLab itself looks for news and newer versions
    "--LabApp.news_url=",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
]
NO_KERNEL = ["--KernelSpecManager.allowed_kernelspecs=none"]


def notebook_of(cells):
    cell = {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": []}
    made = [{**cell, "id": f"cell-{i}", "source": source} for i, source in enumerate(cells)]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    metadata = {"kernelspec": kernel}
    return {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


@contextmanager
def serve(folder, *options):
    """Run JupyterLab in a folder with settings of its own; yield its address."""
    port = free_port()
    own = {
        f"JUPYTER_{name}_DIR": str(folder / ".jupyter" / name.lower())
        for name in ("CONFIG", "DATA", "RUNTIME")
    }
    own |= {"IPYTHONDIR": str(folder / ".jupyter" / "ipython")}
    words = ["--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}"]
    words += ["--IdentityProvider.token=", *OFFLINE, *options]
    with started(["jupyterlab", *words], folder, own, f"http://127.0.0.1:{port}/api/status"):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def started(words, folder, environment, address):
    """Run a module as a server while the `with` lasts, from when an address of it answers."""
    with open(folder / "server.log", "ab") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=folder,
            env={**os.environ, **environment},
            stdout=log,
            stderr=log,
        )
        try:
            wait_for(address, server)
            yield
        finally:
            server.kill()  # JupyterLab without a kernel may not end when it is asked to
            server.wait()


def wait_for(address, server):
    for _ in range(600):
        assert server.poll() is None, "the server ended"
        try:
            urllib.request.urlopen(address).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise AssertionError("the server did not start")


@contextmanager
def at(browser, address):
    """Open an address; at the end no request went anywhere else."""
    asked = []
    context = browser.new_context(viewport={"width": 1300, "height": 1400})
    try:
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        yield page
    finally:
        context.close()
    assert [url for url in asked if not url.startswith(("data:", "blob:", origin(address)))] == []


def origin(address):
    return "/".join(address.split("/")[:3])


def run_cell(page, number):
    page.locator(".jp-Notebook-ExecutionIndicator[data-status='idle']").wait_for()
    prompt = page.locator(".jp-Notebook .jp-InputArea-prompt").nth(number)
    for _ in range(20):  # what is pressed while JupyterLab still loads is lost
        page.locator(".jp-Notebook .cm-content").nth(number).click()
        page.keyboard.press("Shift+Enter")
        page.wait_for_timeout(1000)
        if prompt.inner_text().strip() != "[ ]:":
            return
    raise AssertionError(f"cell {number} was never run")


def check_saved(path, number=0):
    """The notebook holds the page as HTML, and no widget that would be gone."""
    (output, *_) = json.loads(path.read_text())["cells"][number]["outputs"]
    assert sorted(output["data"]) == ["text/html", "text/plain"]
    assert "srcdoc=" in "".join(output["data"]["text/html"])


LIVE_CELLS = [
    "import attnlab\nshown = attnlab.show(RUN)\nshown",
    "print('asked', shown.input, shown.edits)",
    "shown.input = 'bbc'",
    "fields = {'recipe': 'fast', 'steps': 20, 'evaluate_every': 10, 'most_judged': 5}\n"
    "seeds = attnlab.show(attnlab.train_population('sorting', range(6), **fields))\nseeds",
    "print('chosen', seeds.seed)",
    "seeds.seed = 4",
]


def report_in(page, number):
    """Wait for the sections of a report in a notebook."""
    frame = page.frame_locator("iframe[sandbox='allow-scripts']").nth(number)
    frame.locator(".stage canvas, .stage svg").first.wait_for()
    return frame


def ask(frame, text):
    field = frame.get_by_label("Input", exact=True)
    field.fill(text)
    field.press("Enter")


@needs("jupyterlab", "anywidget", "nbconvert")
def test_in_jupyterlab_runs_answer_and_outlive_their_kernel(browser, sorter, tmp_path):
    path = tmp_path / "live.ipynb"
    cells = [LIVE_CELLS[0].replace("RUN", repr(str(sorter))), *LIVE_CELLS[1:]]
    path.write_text(json.dumps(notebook_of(cells)))
    with serve(tmp_path) as address, at(browser, f"{address}/lab/tree/{path.name}") as page:
        run_cell(page, 0)
        frame = report_in(page, 0)
        frame.get_by_role("button", name="Ask", exact=True).wait_for()
        ask(frame, "cabb")
        frame.get_by_text("expected 3 letters from a to c").wait_for()
        ask(frame, "cab")
        frame.get_by_text("Look closer, and edit the model").click()
        frame.get_by_role("button", name="Knock out head 0.0").click()
        frame.get_by_text("Answer: a b c → ").wait_for()
        run_cell(page, 1)
        said = page.locator(".jp-OutputArea pre", has_text="asked cab [ZeroHead(layer=0, head=0)]")
        said.wait_for()
        run_cell(page, 2)
        frame.get_by_text("Answer: b b c").wait_for()
        run_cell(page, 3)
        frame = report_in(page, 1)
        frame.locator(".seed[data-name='2']").click()
        ask(frame, "cab")
        frame.get_by_text("Step 1 of 3: after").wait_for()
        run_cell(page, 4)
        page.locator(".jp-OutputArea pre", has_text="chosen 2").wait_for()
        run_cell(page, 5)
        frame.locator(".seed[data-name='4'][aria-checked='true']").wait_for()
        page.keyboard.press("Control+s")
        page.locator(".jp-mod-dirty").wait_for(state="detached")
    check_saved(path, 0)
    check_saved(path, 3)
    with (
        serve(tmp_path, *NO_KERNEL) as address,
        at(browser, f"{address}/lab/tree/{path.name}") as page,
    ):
        for number, title in enumerate(("sorting", "sorting, 6 members")):
            frame = report_in(page, number)
            assert frame.locator("h1").inner_text() == title
            assert frame.get_by_role("button", name="Ask", exact=True).count() == 0
        assert page.get_by_text("Error displaying widget").count() == 0


MARIMO = """import marimo
app = marimo.App()

@app.cell
def _():
    import attnlab, marimo as mo
    get, put = mo.state("nothing yet")
    fields = {"recipe": "fast", "steps": 20, "evaluate_every": 10, "most_judged": 5}
    shown = attnlab.show(attnlab.train_population("sorting", range(6), **fields))
    shown.widget.observe(lambda _: put(f"chosen {shown.seed}"), "seed")
    shown
    return get, mo

@app.cell
def _(get, mo):
    mo.md(get())
    return
"""


@contextmanager
def marimo_page(browser, program, folder):
    """Run a notebook of marimo, and open its page."""
    (folder / "shown.py").write_text(program)
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    own = {f"XDG_{name}_HOME": str(folder / name) for name in ("CONFIG", "STATE", "CACHE")}
    words = ["marimo", "-y", "run", "shown.py", "--headless", "--no-token", f"--port={port}"]
    with (
        started([*words, "--no-sandbox"], folder, own, f"{address}/health"),
        at(browser, address) as page,
    ):
        yield page


@needs("marimo", "anywidget")
def test_a_seed_is_chosen_in_marimo(browser, tmp_path):
    with marimo_page(browser, MARIMO, tmp_path) as page:
        frame = report_in(page, 0)
        frame.locator(".seed[data-name='2'] canvas").wait_for()
        frame.locator(".seed[data-name='2']").click()
        page.get_by_text("chosen 2").wait_for()
        ask(frame, "bba")
        frame.get_by_text("after b b a SEP").wait_for()
