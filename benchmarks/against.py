"""This source tree beside that of another commit: time and memory, row by row, in turns.

    git worktree add ../before COMMIT
    python benchmarks/against.py ../before [--rounds 9] [--rows record load_live ...]

Each row has a process for each tree; they take turns, so that what slows the machine slows both.
Processor time, one thread; below 1 this tree is faster. Memory is the most that a process has had.
Public names that have changed are looked up by either name.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from timing import ratio

SOURCE = Path("packages", "attnlab", "src")
HERE = Path(__file__).parents[1]
CSV = "text,label\n" + "".join(
    f"the {i % 7} cats of {i % 5} rivers slept,{i % 2}\n" for i in range(200)
)


def either(attnlab: Any, *names: str) -> Any:
    """Return a public name by the one of its names that this tree knows."""
    warnings.simplefilter("ignore")
    for name in names:
        if hasattr(attnlab, name):
            return getattr(attnlab, name)
    raise AttributeError(names)


def decoder(attnlab: Any, d_model: int, layers: int, heads: int, length: int) -> tuple[Any, Any]:
    """Make a decoder with random weights, and a batch of four inputs."""
    torch.manual_seed(0)
    config = attnlab.DecoderConfig(
        vocab_size=64, max_length=length, d_model=d_model, num_layers=layers, num_heads=heads
    )
    return attnlab.Decoder(config).eval(), torch.randint(64, (4, length))


def t5() -> Any:
    """Make a T5 of two layers with random weights."""
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    settings = {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2}
    config = T5Config(num_heads=4, decoder_start_token_id=0, **settings)
    return T5ForConditionalGeneration(config).eval()


def gpt2() -> Any:
    """Make a GPT-2 of four layers with random weights."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    settings = {"vocab_size": 99, "n_embd": 64, "n_layer": 4, "n_head": 4}
    return GPT2LMHeadModel(GPT2Config(bos_token_id=1, eos_token_id=1, **settings)).eval()


def forward(attnlab: Any) -> Callable[[], object]:
    """The fused forward pass of a decoder of the middle size."""
    model, tokens = decoder(attnlab, 256, 4, 8, 256)
    return torch.no_grad()(lambda: model(tokens))


def train_step(attnlab: Any) -> Callable[[], object]:
    """A forward and backward pass."""
    model, tokens = decoder(attnlab, 128, 4, 4, 128)
    return lambda: model(tokens).logsumexp(-1).mean().backward()


def record(attnlab: Any) -> Callable[[], object]:
    """All weights of 12 layers of 12 heads, recorded and one layer read."""
    model, tokens = decoder(attnlab, 192, 12, 12, 128)

    def work() -> object:
        with attnlab.record(model, "layers.*.attention.weights") as recording, torch.no_grad():
            model(tokens)
        return recording["layers.5.attention.weights"].sum()

    return work


def edit(attnlab: Any) -> Callable[[], object]:
    """A pass with one head set to zero, certified."""
    model, tokens = decoder(attnlab, 128, 4, 4, 128)

    def work() -> object:
        with attnlab.edit(model, attnlab.ZeroHead(layer=1, head=2)), torch.no_grad():
            return model(tokens)

    return work


def generate(attnlab: Any) -> Callable[[], object]:
    """60 tokens with a cache."""
    model, tokens = decoder(attnlab, 128, 4, 4, 128)
    return torch.no_grad()(lambda: attnlab.generate(model, tokens[:, :4], 60))


def run(attnlab: Any) -> Callable[[], object]:
    """A run of sorting with 300 steps."""
    return lambda: attnlab.run("sorting", recipe="fast", steps=300)


def population(attnlab: Any) -> Callable[[], object]:
    """16 sorters at once, 300 steps."""
    return lambda: attnlab.train_population("sorting", seeds=range(16), recipe="fast", steps=300)


def summarize(attnlab: Any) -> Callable[[], object]:
    """Four heads over 4,096 tokens, without the matrix."""
    torch.manual_seed(0)
    query, key = torch.randn(2, 1, 4, 4096, 64).unbind()
    made = either(attnlab, "summarize", "summarise")
    return lambda: made(query, key, mask="causal", tiles=64)


def ablate(attnlab: Any) -> Callable[[], object]:
    """Every head of a decoder, one by one."""
    model, tokens = decoder(attnlab, 128, 6, 8, 64)
    made = either(attnlab, "ablate", "knock_out")
    return lambda: made(model, tokens, metric="logit")


def lens(attnlab: Any) -> Callable[[], object]:
    """The logit lens of a decoder."""
    model, tokens = decoder(attnlab, 128, 6, 8, 64)
    return lambda: attnlab.logit_lens(model, tokens)


def load_live(attnlab: Any) -> Callable[[], object]:
    """A T5 loaded as a live module, with all checks."""
    model = t5()
    return lambda: attnlab.load(model)


def load_folder(attnlab: Any) -> Callable[[], object]:
    """A T5 loaded from its folder, with all checks."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    folder = tempfile.mkdtemp()
    t5().save_pretrained(folder)
    return lambda: attnlab.load(folder)


def record_foreign(attnlab: Any) -> Callable[[], object]:
    """All weights of a GPT-2, recorded and one layer read."""
    model, tokens = attnlab.load(gpt2()), torch.randint(99, (2, 128))

    def work() -> object:
        with attnlab.record(model, "layers.*.attention.weights") as recording, torch.no_grad():
            model(tokens)
        return recording["layers.2.attention.weights"].sum()

    return work


def edit_foreign(attnlab: Any) -> Callable[[], object]:
    """A pass of a GPT-2 with one head set to zero, certified."""
    model, tokens = attnlab.load(gpt2()), torch.randint(99, (2, 128))

    def work() -> object:
        with attnlab.edit(model, attnlab.ZeroHead(layer=1, head=2)), torch.no_grad():
            return model(tokens)

    return work


def long_document(attnlab: Any) -> Callable[[], object]:
    """All heads of a GPT-2 over 1,024 tokens, summarized."""
    model, tokens = attnlab.load(gpt2()), torch.randint(99, (1, 1024))
    made = either(attnlab, "summarize_document", "summarise_document")
    return lambda: made(model, tokens, out=Path(tempfile.mkdtemp()) / "long")


def view(attnlab: Any) -> Callable[[], object]:
    """The interactive page of 16 heads over 128 tokens."""
    from attnlab.draw.view import view_page

    model, tokens = decoder(attnlab, 128, 4, 4, 128)
    with attnlab.record(model, "layers.*.attention.weights") as recording, torch.no_grad():
        model(tokens[:1])
    return lambda: view_page(recording)


ROWS: dict[str, Callable[[Any], Callable[[], object]]] = {
    made.__name__: made
    for made in (
        forward,
        train_step,
        record,
        edit,
        generate,
        run,
        population,
        summarize,
        ablate,
        lens,
        load_live,
        load_folder,
        record_foreign,
        edit_foreign,
        long_document,
        view,
    )
}


def work_when_told(row: str) -> None:
    """Do a row's work at each line of standard input, and print its seconds of processor time."""
    began = time.process_time()
    import attnlab

    work = ROWS[row](attnlab)
    work()
    print(time.process_time() - began, flush=True)
    repeats = 1
    for line in sys.stdin:
        repeats = int(line)
        began = time.process_time()
        for _ in range(repeats):
            work()
        print((time.process_time() - began) / repeats, flush=True)
    lines = Path("/proc/self/status").read_text().splitlines()
    print(next(each for each in lines if each.startswith("VmHWM")).split()[1])


def started(tree: Path, row: str) -> Any:
    """Start the process of a row with the attnlab of a source tree."""
    environment = {**os.environ, "PYTHONPATH": str(tree / SOURCE), "HF_HUB_OFFLINE": "1"}
    command, pipe = [sys.executable, __file__, "--worker", row], subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)


def told(worker: Any, repeats: int) -> float:
    """Let a process work once, and return its seconds."""
    print(repeats, file=worker.stdin, flush=True)
    return float(worker.stdout.readline())


def compare(row: str, before: Path, rounds: int) -> str:
    """Measure a row in both trees, and return its line of the table."""
    workers = [started(tree, row) for tree in (before, HERE)]
    first = [float(worker.stdout.readline()) for worker in workers]
    repeats = max(1, round(0.2 / max(told(workers[1], 1), 1e-4)))
    times: list[list[float]] = [[], []]
    for number in range(rounds):
        for index in (0, 1) if number % 2 else (1, 0):
            times[index].append(told(workers[index], repeats))
    memory = []
    for worker in workers:
        worker.stdin.close()
        memory.append(int(worker.stdout.readline()) / 1024)
        worker.wait()
    usual = sorted(times[1])[rounds // 2]
    return (
        f"| {row} | {usual:.4f} s | {ratio(times[1], times[0])} | {first[1] / first[0]:.2f} "
        f"| {memory[1]:,.0f} MiB | {memory[1] / memory[0]:.2f} |"
    )


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("before", type=Path, nargs="?", help="the other tree")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--worker", choices=list(ROWS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if options.worker:
        work_when_told(options.worker)
        return
    print("| row | now | now / before | first time | memory | now / before |")
    print("| --- | --- | --- | --- | --- | --- |")
    for row in options.rows:
        print(compare(row, options.before, options.rounds), flush=True)


if __name__ == "__main__":
    main()
