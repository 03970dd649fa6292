"""A pretrained model looked into by attnlab, TransformerLens, nnsight and transformers itself, side
by side.

    pip install transformer-lens==4.3.0 nnsight==0.8.1 transformers==5.23.0     # torch stays pinned
    python benchmarks/pretrained.py [--quick] [--parts looking,ablations,processes]
    [--lengths 128 512 2048]

A model of GPT-2-small's shape with random weights is saved to a scratch folder, and everybody loads
it from there. One thread. Looking is timed against transformers' own plain forward pass (its fused
attention, no cache), in interleaved rounds ; ablations against 144 of these. A weight that is kept
as queries and keys has still to be made: "made and read" makes every one, and reads them all,
whoever kept them. Loading and memory are measured in processes of their own. Ratios are of
processor time, wall time stands in the JSON.
"""

import argparse
import ctypes
import gc
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from timing import ratio

os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["TQDM_DISABLE"] = os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

LAYERS, HEADS, WIDTH, ONE = 12, 12, 64, 5
TILES, TOP = 256, 8
GPT2 = ("transformers.models.auto.modeling_auto", "transformers.models.gpt2.modeling_gpt2")
ROUNDS = {128: 9, 512: 5, 2048: 3}


class Clock(NamedTuple):
    """Seconds."""

    wall: float
    processor: float

    @classmethod
    def now(cls) -> "Clock":
        """Read both clocks."""
        return cls(time.perf_counter(), time.process_time())

    def __sub__(self, other: "Clock") -> "Clock":
        return Clock(self.wall - other.wall, self.processor - other.processor)

    def __add__(self, other: "Clock") -> "Clock":  # type: ignore[override]
        return Clock(self.wall + other.wall, self.processor + other.processor)


class Transformers:
    """transformers as it comes: fused attention, nothing to be seen."""

    name, attention, needs = "transformers", "sdpa", GPT2

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForCausalLM

        self.model = AutoModelForCausalLM.from_pretrained(
            folder, attn_implementation=self.attention
        ).eval()

    def plain(self, ids: Tensor) -> Tensor:
        """One forward pass: the logits."""
        return self.model(ids, use_cache=False).logits

    def hooked(self, ids: Tensor, layer: int, heads: list[int], **options: Any) -> Tensor:
        """Knock out one head in each row, by a hook before the output projection: the last
        position's logits."""

        def silence(_: object, given: tuple[Tensor]) -> tuple[Tensor]:
            gathered = given[0].clone()
            for row, head in enumerate(heads):
                gathered[row, :, head * WIDTH : (head + 1) * WIDTH] = 0.0
            return (gathered,)

        hook = self.model.transformer.h[layer].attn.c_proj.register_forward_pre_hook(silence)
        try:
            return self.model(ids.expand(len(heads), -1), use_cache=False, **options).logits[:, -1]
        finally:
            hook.remove()

    def ablate(self, ids: Tensor, layer: int, heads: list[int]) -> Tensor:
        """One pass for each head, and all of its logits."""
        return torch.cat([self.hooked(ids, layer, [head]) for head in heads])


class Batched(Transformers):
    """transformers with a hook, twelve heads in a batch, the last position's logits alone."""

    name = "transformers, batches, last logits"

    def ablate(self, ids: Tensor, layer: int, heads: list[int]) -> Tensor:
        """All these heads in one pass."""
        return self.hooked(ids, layer, heads, logits_to_keep=1)


class OutputAttentions(Transformers):
    """transformers with `output_attentions=True`, which open attention alone gives."""

    name, attention = "transformers, output_attentions", "eager"

    def record_all(self, ids: Tensor) -> list[Tensor]:
        """Return every layer's weights."""
        return list(self.model(ids, use_cache=False, output_attentions=True).attentions)

    def record_one(self, ids: Tensor) -> list[Tensor]:
        """One layer cannot be asked for alone: take it from all."""
        return [self.model(ids, use_cache=False, output_attentions=True).attentions[ONE]]


class TransformerLens:
    """TransformerLens 4: the bridge over transformers' model."""

    name, needs = "TransformerLens", (*GPT2, "transformer_lens.model_bridge")

    def __init__(self, folder: Path) -> None:
        from transformer_lens.model_bridge import TransformerBridge

        self.model = TransformerBridge.boot_transformers(str(folder)).eval()

    def plain(self, ids: Tensor) -> Tensor:
        """One forward pass: the logits."""
        return self.model(ids)

    def record_all(self, ids: Tensor) -> list[Tensor]:
        """Return every layer's weights."""
        _, cache = self.model.run_with_cache(
            ids, names_filter=lambda name: name.endswith("attn.hook_pattern")
        )
        return [cache[f"blocks.{layer}.attn.hook_pattern"] for layer in range(LAYERS)]

    def record_one(self, ids: Tensor) -> list[Tensor]:
        """Return one layer's weights."""
        name = f"blocks.{ONE}.attn.hook_pattern"
        return [self.model.run_with_cache(ids, names_filter=name)[1][name]]

    def ablate(self, ids: Tensor, layer: int, heads: list[int]) -> Tensor:
        """One pass for each head."""
        found = []
        for head in heads:

            def silence(gathered: Tensor, hook: object, head: int = head) -> Tensor:
                gathered[:, :, head] = 0.0
                return gathered

            found.append(
                self.model.run_with_hooks(
                    ids, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", silence)]
                )[:, -1]
            )
        return torch.cat(found)


class FromLayer(TransformerLens):
    """TransformerLens, going on from the residual stream before the layer, twelve heads in a
    batch."""

    name = "TransformerLens, start_at_layer, batches"

    def ablate(self, ids: Tensor, layer: int, heads: list[int]) -> Tensor:
        """All these heads in one pass."""
        enters = f"blocks.{layer}.hook_in"
        if getattr(self, "_of", None) is not ids:
            _, cache = self.model.run_with_cache(
                ids, names_filter=lambda name: name.endswith("hook_in")
            )
            self._of, self._before = ids, dict(cache.items())

        def silence(gathered: Tensor, hook: object) -> Tensor:
            for row, head in enumerate(heads):
                gathered[row, :, head] = 0.0
            return gathered

        hooks = [(f"blocks.{layer}.attn.hook_z", silence)]
        rows = self._before[enters].repeat(len(heads), 1, 1)
        return self.model.run_with_hooks(rows, fwd_hooks=hooks, start_at_layer=layer)[:, -1]


class Nnsight:
    """nnsight over transformers' model with open attention: the fused one gives no weights."""

    name, needs = "nnsight", (*GPT2, "nnsight")

    def __init__(self, folder: Path) -> None:
        from nnsight import NNsight
        from transformers import AutoModelForCausalLM

        self.model = NNsight(
            AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
        )

    def plain(self, ids: Tensor) -> Tensor:
        """One forward pass: the logits."""
        return self.model(ids, use_cache=False).logits

    def record_all(self, ids: Tensor) -> list[Tensor]:
        """Return every layer's weights."""
        model = self.model
        with model.trace(ids, use_cache=False):
            found = [block.attn.output[1] for block in model.transformer.h].save()
        return list(found)

    def record_one(self, ids: Tensor) -> list[Tensor]:
        """Return one layer's weights."""
        model = self.model
        with model.trace(ids, use_cache=False):
            found = model.transformer.h[ONE].attn.output[1].save()
        return [found]

    def ablate(self, ids: Tensor, layer: int, heads: list[int]) -> Tensor:
        """One trace for each head; rows of one batch are for prompts, which a plain wrapper cannot
        join."""
        model, found = self.model, []
        for head in heads:
            with model.trace(ids, use_cache=False):
                model.transformer.h[layer].attn.c_proj.input[
                    :, :, head * WIDTH : (head + 1) * WIDTH
                ] = 0.0
                last = model.lm_head.output[:, -1].save()
            found.append(last)
        return torch.cat(found)


class Attnlab:
    """attnlab."""

    name = "attnlab"
    needs = (
        *GPT2,
        "attnlab.experiments",
        "attnlab.look.summaries",
        "attnlab.edits.effects",
        "attnlab.pretrained.attach",
        "attnlab.pretrained.open.hub",
    )

    def __init__(self, folder: Path) -> None:
        import attnlab

        self.model = attnlab.load(folder)

    def plain(self, ids: Tensor) -> Tensor:
        """One forward pass: the logits."""
        return self.model(ids)

    def _recorded(self, ids: Tensor, sites: str, reduce: Any = None) -> Any:
        from attnlab import record

        with record(self.model, sites, reduce=reduce) as recording:
            self.model(ids)
        return recording

    def record_all(self, ids: Tensor) -> Any:
        """Record every layer's weights."""
        return self._recorded(ids, "layers.*.attention.weights")

    def record_one(self, ids: Tensor) -> Any:
        """Record one layer's weights."""
        return self._recorded(ids, f"layers.{ONE}.attention.weights")

    def summaries(self, ids: Tensor) -> Any:
        """Record summaries of all heads."""
        from attnlab import Summarize

        return self._recorded(ids, "layers.*.attention.weights", Summarize(TILES, TOP))

    def ablations(self, ids: Tensor) -> Tensor:
        """Knock out every head: the logit of the answer, (head,)."""
        from attnlab import ablate

        return ablate(self.model, ids).after[:, 0]


class Faster(Attnlab):
    """attnlab with the faster of torch's two matrix paths, which it takes when told to: equal but
    for rounding."""

    name = "attnlab, faster_products"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from attnlab.pretrained.backends.registry import faster_products

        self._asked = ExitStack()
        self._asked.enter_context(faster_products(self.model))


PEERS = (OutputAttentions, TransformerLens, Nnsight)
LOOKERS = (*PEERS, Attnlab, Faster)
BY_NAME = {each.name: each for each in (Transformers, Batched, *LOOKERS, FromLayer)}


def read(kept: Any) -> float:
    """Make all weights that were only kept, one layer at a time, and read every number."""
    found = kept if isinstance(kept, list) else (kept[site] for site in kept)
    return sum(float(weights.sum()) for weights in found)


def summaries_of(weights: Tensor) -> dict[str, Tensor]:
    """Say of weights (1, head, query, key) what attnlab's summary says, the way a reader of its
    docstring would."""
    length, weights = weights.shape[-1], weights[0]
    position = torch.arange(length)
    distance = position[:, None] - position
    mean = (weights * distance).sum(-1)
    best = weights.topk(min(TOP, length), -1)
    cell = -(-length // TILES)
    padded = F.pad(weights, (0, -length % cell, 0, -length % cell))
    entropy = torch.special.entr(weights).sum(-1)
    return {
        "entropy": entropy,
        "effective_keys": entropy.exp(),
        "largest": weights.amax(-1),
        "distance": mean,
        "spread": ((weights * distance.square()).sum(-1) - mean.square()).clamp(min=0).sqrt(),
        "first": weights[..., 0],
        "own": weights.diagonal(dim1=-2, dim2=-1),
        "previous": F.pad(weights.diagonal(-1, -2, -1), (1, 0)),
        "top_keys": best.indices,
        "top_weights": best.values,
        "map_mean": F.avg_pool2d(padded, cell),
        "map_max": F.max_pool2d(padded, cell),
    }


def summaries(contestant: Any, ids: Tensor) -> object:
    """Summarize all heads: peers from the weights that they record."""
    if hasattr(contestant, "summaries"):
        return contestant.summaries(ids)
    return [summaries_of(weights) for weights in contestant.record_all(ids)]


LOOKING = ("record_all", "record_all made", "record_one", "summaries")


def one_round(contestant: Any, ids: Tensor) -> dict[str, Clock]:
    """Do all tasks of looking once; what stands on weights that were just recorded is counted with
    their recording."""
    start = Clock.now()
    kept = contestant.record_all(ids)
    found = {"record_all": Clock.now() - start}
    start = Clock.now()
    read(kept)
    found["record_all made"] = found["record_all"] + (Clock.now() - start)
    start = Clock.now()
    if hasattr(contestant, "summaries"):
        contestant.summaries(ids)
        found["summaries"] = Clock.now() - start
    else:
        for weights in kept:
            summaries_of(weights)
        found["summaries"] = found["record_all"] + (Clock.now() - start)
    del kept
    start = Clock.now()
    contestant.record_one(ids)
    found["record_one"] = Clock.now() - start
    return found


def compare_looking(folder: Path, lengths: list[int], rounds: int | None) -> list[dict[str, Any]]:
    """Time looking against the plain forward pass, and hold what is found to be the same."""
    plain, lookers, rows = Transformers(folder), [kind(folder) for kind in LOOKERS], []
    for length in lengths:
        ids = _ids(length)
        if length <= 512:
            _check_same(lookers, ids)
        reference = plain.plain(ids)
        for each in lookers:
            apart = float((each.plain(ids) - reference).abs().max())
            rows.append(
                {"task": "logits apart", "tokens": length, "who": each.name, "apart": apart}
            )
            print(
                f"logits of {each.name}: {apart:.1e} from the plain ones, {length} tokens",
                flush=True,
            )
        times: dict[tuple[str, str], list[Clock]] = {}
        for number in range(rounds or ROUNDS[length]):
            order = [plain, *lookers]
            order = order[number % len(order) :] + order[: number % len(order)]
            for each in order[:: 1 if number % 2 == 0 else -1]:
                start = Clock.now()
                if each is plain:
                    plain.plain(ids)
                    times.setdefault((plain.name, "plain"), []).append(Clock.now() - start)
                    continue
                for what, taken in one_round(each, ids).items():
                    times.setdefault((each.name, what), []).append(taken)
        for what in LOOKING:
            for each in lookers:
                own = _figures(times[each.name, what], times[plain.name, "plain"])
                rows.append({"task": what, "tokens": length, "who": each.name} | own)
                _say(rows[-1])
        least, _, most = (
            sorted(one.processor for one in times[plain.name, "plain"])[at] for at in (0, 0, -1)
        )
        print(
            f"plain forward, {length} tokens: {least:.3f} to {most:.3f} s of processor time",
            flush=True,
        )
    return rows


def compare_knock_outs(folder: Path, length: int, rounds: int) -> list[dict[str, Any]]:
    """Time 144 ablations against 144 plain passes; peers' are of one head in each layer, counted
    twelve times."""
    ids, ours, faster_ours = _ids(length), Attnlab(folder), Faster(folder)
    names = [
        "plain",
        Transformers.name,
        Batched.name,
        TransformerLens.name,
        FromLayer.name,
        Nnsight.name,
    ]
    models = {name: BY_NAME.get(name, Transformers)(folder) for name in names}
    answer, places = int(models["plain"].plain(ids)[0, -1].argmax()), range(LAYERS)

    def peers(name: str) -> Tensor:
        own = models[name]
        if name in (Batched.name, FromLayer.name):
            return torch.cat(
                [own.ablate(ids, layer, list(range(HEADS)))[:, answer] for layer in places]
            )
        return torch.cat([own.ablate(ids, layer, [layer % HEADS])[:, answer] for layer in places])

    calls: dict[str, Callable[[], object]] = {
        name: lambda name=name: peers(name) for name in names[1:]
    }
    calls["plain"] = lambda: [models["plain"].plain(ids) for _ in places]
    calls[ours.name] = lambda: ours.ablations(ids)
    calls[faster_ours.name] = lambda: faster_ours.ablations(ids)
    expected, sample = peers(Batched.name), [layer * HEADS + layer % HEADS for layer in places]
    for name in names[1:]:
        found = peers(name)
        assert torch.allclose(
            found, expected if len(found) > LAYERS else expected[sample], atol=2e-3
        ), name
    apart = float((ours.ablations(ids) - expected).abs().max())
    assert apart < 2e-3, f"our ablations are {apart} from a hook's"
    whole, order = (Batched.name, FromLayer.name, ours.name, faster_ours.name), list(calls)
    times: dict[str, list[Clock]] = {name: [] for name in order}
    for number in range(rounds):
        for name in order[:: 1 if number % 2 == 0 else -1]:
            start = Clock.now()
            calls[name]()
            taken = Clock.now() - start
            times[name].append(
                taken if name in whole else Clock(*(HEADS * seconds for seconds in taken))
            )
    rows = []
    for name in calls:
        faster = ratio(*([one.processor for one in times[each]] for each in ("plain", name)))
        rows.append(
            {
                "task": "144 ablations",
                "tokens": length,
                "who": name,
                "apart": apart if name == ours.name else None,
            }
            | _figures(times[name], times["plain"])
            | {"times_faster": faster._asdict()}
        )
        _say(rows[-1])
        print(f"{'':64}times faster {faster}", flush=True)
    return rows


def compare_processes(folder: Path, lengths: list[int], rounds: int) -> list[dict[str, Any]]:
    """Load in fresh processes, imports apart, and measure the most that each task held above the
    loaded model."""
    found: dict[str, list[dict[str, Any]]] = {}
    kinds = (Transformers, *PEERS, Attnlab, FromLayer, Batched)
    for number in range(rounds):
        for kind in kinds[:5] if number else kinds:
            jobs = (
                []
                if number
                else [f"{what}:{length}" for length in lengths for what in _jobs(kind, length)]
            )
            command = [
                sys.executable,
                __file__,
                "--folder",
                str(folder),
                "--measure",
                kind.name,
                *jobs,
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{kind.name}:\n{done.stderr[-2000:]}")
            found.setdefault(kind.name, []).append(json.loads(done.stdout.splitlines()[-1]))
            print(f"{kind.name:38} {found[kind.name][-1]}", flush=True)
    rows: list[dict[str, Any]] = []
    for name, each in found.items():
        loads = [one["load"] for one in each]
        middle = {what: sorted(load[what] for load in loads)[len(loads) // 2] for what in loads[0]}
        rows.append({"task": "load", "who": name, "rounds": loads} | middle)
        for job, mib in each[0]["memory"].items():
            what, _, length = job.partition(":")
            rows.append({"task": what, "tokens": int(length), "who": name, "mib": mib})
    return rows


def _jobs(kind: type, length: int) -> list[str]:
    if kind is Transformers:
        return ["plain"] + ["ablate"] * (length == 128)
    if kind in (FromLayer, Batched):
        return ["ablate"] * (length == 128)
    return [*LOOKING] + [("ablations" if kind is Attnlab else "ablate")] * (length == 128)


def measure(folder: Path, name: str, jobs: list[str]) -> dict[str, Any]:
    """Load in this process, and do every task in a child of it: seconds, and the most memory above
    the loaded model."""
    start = time.process_time()
    for module in BY_NAME[name].needs:
        importlib.import_module(module)
    load = {"imports": time.process_time() - start}
    before, clock = _forgotten(), Clock.now()
    contestant = BY_NAME[name](folder)
    taken = Clock.now() - clock
    # transformers maps the file: weights come in, and count, when they are first read.
    load |= {"processor": taken.processor, "wall": taken.wall, "mib": _resident("VmHWM") - before}
    return {
        "load": load,
        "memory": {job: _in_child(lambda job=job: _held_in(contestant, job)) for job in jobs},
    }


def _held_in(contestant: Any, job: str) -> float:
    what, _, length = job.partition(":")
    ids, warm = _ids(int(length)), _ids(16)
    heads = list(range(HEADS)) if type(contestant) in (FromLayer, Batched) else [0]
    contestant.plain(warm)
    tasks: dict[str, Callable[[], object]] = {
        "ablate": lambda: contestant.ablate(ids, 0, heads),  # one pass is as large as all
        "record_all made": lambda: read(contestant.record_all(ids)),
        "summaries": lambda: summaries(contestant, ids),
    }
    call = tasks[what] if what in tasks else partial(getattr(contestant, what), ids)
    before = _forgotten()
    kept = call()
    assert kept is not None
    return _resident("VmHWM") - before


def _in_child(call: Callable[[], float]) -> float:
    """Call in a copy of this process, which holds the model already."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, json.dumps(call()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return float(said)


def _check_same(lookers: list[Any], ids: Tensor) -> None:
    """Hold all weights and summaries to those of `output_attentions`."""
    expected = lookers[0].record_all(ids)
    for each in lookers[1:]:
        found = each.record_all(ids)
        found = found if isinstance(found, list) else [found[site] for site in found]
        apart = max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True))
        assert apart < 1e-4, f"{each.name}: weights are {apart} apart"
    told = lookers[-1].summaries(ids)
    for site, weights in zip(told, expected, strict=True):
        own = summaries_of(weights)
        for name in ("entropy", "distance", "largest", "map_mean", "map_max", "top_weights"):
            torch.testing.assert_close(
                getattr(told[site], name)[0], own[name], rtol=1e-3, atol=2e-3
            )


def _figures(times: list[Clock], plain: list[Clock]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind in ("processor", "wall"):
        own, reference = ([getattr(each, kind) for each in some] for some in (times, plain))
        found |= {
            kind: ratio(own, reference)._asdict(),
            f"{kind}_seconds": sorted(own)[len(own) // 2],
        }
    return found


def _say(row: dict[str, Any]) -> None:
    of = row["processor"]
    print(
        f"{row['task']:16} {row['tokens']:5} tokens  {row['who']:38} "
        f"{row['processor_seconds']:8.3f} s   {of['median']:.3f} [{of['low']:.3f}, "
        f"{of['high']:.3f}]   wall {row['wall']['median']:.3f}",
        flush=True,
    )


def _ids(length: int) -> Tensor:
    return torch.randint(50_257, (1, length), generator=torch.Generator().manual_seed(0))


def _forgotten() -> float:
    """Have the system forget the most memory this process ever held, and return what it holds, in
    MiB.

    What was freed is given back before, so that nobody's task finds room that its loading has left.
    """
    gc.collect()
    with suppress(OSError, AttributeError):  # not every libc has it
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _resident("VmRSS")


def _resident(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def _make(folder: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    with torch.random.fork_rng():
        torch.manual_seed(0)
        GPT2LMHeadModel(GPT2Config(n_positions=2048)).save_pretrained(folder)


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(
        description="A pretrained model looked into, by attnlab and by others."
    )
    parser.add_argument("--parts", default="looking,ablations,processes")
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512, 2048])
    parser.add_argument("--rounds", type=int, help="rounds of every contest (default: by length)")
    parser.add_argument("--quick", action="store_true", help="128 tokens, few rounds")
    parser.add_argument(
        "--folder",
        type=Path,
        help="where the model is, or is to be made (default: a scratch folder)",
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.measure:
        name, *jobs = options.measure
        with torch.no_grad():
            print(json.dumps(measure(options.folder, name, jobs)))
        return
    parts = options.parts.split(",")
    lengths, rounds = ([128], 3) if options.quick else (options.lengths, options.rounds)
    versions = {
        each: importlib.metadata.version(each)
        for each in ("transformers", "transformer-lens", "nnsight")
    }
    versions = {"torch": torch.__version__, **versions}
    print(platform.machine(), versions, "one thread", flush=True)
    with tempfile.TemporaryDirectory() as scratch, torch.no_grad():
        folder = options.folder or Path(scratch) / "gpt2"
        if not (folder / "config.json").exists():
            _make(folder)
        rows: list[dict[str, Any]] = []
        if "looking" in parts:
            rows += compare_looking(folder, lengths, rounds)
        if "ablations" in parts:
            rows += compare_knock_outs(folder, 128, rounds or 2)
        if "processes" in parts:
            rows += compare_processes(folder, lengths, 3)
    if options.json:
        options.json.write_text(json.dumps({"versions": versions, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
