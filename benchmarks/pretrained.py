"""A pretrained model looked into and edited by attnlab, TransformerLens, nnsight, interp-engine and
transformers itself, side by side.

    python benchmarks/pretrained.py [--parts weights looking head ablations load memory]
    [--lengths 128 512 2048] [--quick]

A model of GPT-2-small's shape with random weights is saved to a scratch folder, and everybody loads
it from there, all in one process. One thread, processor time over that of transformers' own plain
forward pass (its fused attention, no cache), in interleaved rounds; ablations against 144 of these.
A weight that is kept as queries and keys has still to be made: "made and read" makes every one, and
reads them all, whoever kept them. Loading and memory are measured in processes of their own.
"""

import argparse
import ctypes
import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from results import Table, leave_without, measured
from timing import seconds, timed

os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["TQDM_DISABLE"] = os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

LAYERS, HEADS, WIDTH, ONE = 12, 12, 64, 5
TILES, TOP = 256, 8
GPT2 = ("transformers.models.auto.modeling_auto", "transformers.models.gpt2.modeling_gpt2")
ROUNDS = {128: 9, 512: 5, 2048: 3}


class Transformers:
    """transformers as it comes: fused attention, nothing to be seen."""

    name, attention, needs = "plain pass", "sdpa", GPT2

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

    name = "transformers, batched hooks"

    def ablate(self, ids: Tensor, layer: int, heads: list[int]) -> Tensor:
        """All these heads in one pass."""
        return self.hooked(ids, layer, heads, logits_to_keep=1)


class OutputAttentions(Transformers):
    """transformers with `output_attentions=True`, which open attention alone gives."""

    name, attention = "transformers", "eager"

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

    name = "TransformerLens, start_at_layer"

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


class InterpEngine:
    """interp-engine's eager backend; it steers along directions, and takes no head out."""

    name, needs = "interp-engine", (*GPT2, "interp_engine")

    def __init__(self, folder: Path) -> None:
        from interp_engine import load_model

        self.model = load_model(str(folder), backend="eager")

    def plain(self, ids: Tensor) -> Tensor:
        """One forward pass: the logits."""
        return self.model.hf_model(ids, use_cache=False).logits

    def _captured(self, ids: Tensor, layers: list[int]) -> list[Tensor]:
        from interp_engine import capture

        points = [f"attn_probs.{layer}" for layer in layers]
        cache = capture(self.model, ids, points)
        return [cache[point] for point in points]

    def record_all(self, ids: Tensor) -> list[Tensor]:
        """Return every layer's weights."""
        return self._captured(ids, list(range(LAYERS)))

    def record_one(self, ids: Tensor) -> list[Tensor]:
        """Return one layer's weights."""
        return self._captured(ids, [ONE])


class Attnlab:
    """attnlab."""

    name = "attnlab"
    needs = (
        *GPT2,
        "attnlab.experiments",
        "attnlab.look.summaries",
        "attnlab.edits.effects",
        "attnlab.pretrained.attach",
        "attnlab.pretrained.model_files.hub",
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

    def ablate(self, ids: Tensor, layer: int, heads: list[int]) -> Tensor:
        """One pass for each head under an edit, its certificate included."""
        from attnlab import ZeroHead, edit

        found = []
        for head in heads:
            with edit(self.model, ZeroHead(layer=layer, head=head)):
                found.append(self.model(ids)[:, -1])
        return torch.cat(found)

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


PEERS = (OutputAttentions, TransformerLens, Nnsight, InterpEngine)
LOOKERS = (*PEERS, Attnlab, Faster)


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


LOOKING = {
    "record_all made": "made and read",
    "record_one": "one layer",
    "summaries": "summaries",
}


def one_round(contestant: Any, ids: Tensor, *, is_whole: bool) -> dict[str, float]:
    """Do the tasks of looking once, in seconds; what stands on weights that were just recorded is
    counted with their recording."""
    kept, taken = timed(contestant.record_all, ids)
    found = {"all weights": taken}
    if not is_whole:
        return found
    found["made and read"] = found["all weights"] + seconds(read, kept)
    if hasattr(contestant, "summaries"):
        found["summaries"] = seconds(contestant.summaries, ids)
    else:
        found["summaries"] = found["all weights"] + seconds(list, map(summaries_of, kept))
    del kept
    found["one layer"] = seconds(contestant.record_one, ids)
    return found


def in_turn(names: list[str], number: int) -> list[str]:
    """Order the contestants of a round: turned by one, and there and back."""
    first = number // 2 % len(names)
    order = [*names[first:], *names[:first]]
    return order[:: 1 if number % 2 == 0 else -1]


def compare_looking(
    folder: Path, lengths: list[int], rounds: int | None, table: Table, *, is_whole: bool
) -> None:
    """Time looking against the plain forward pass, and hold what is found to be the same."""
    plain, lookers = Transformers(folder), {kind.name: kind(folder) for kind in LOOKERS}
    for length in lengths:
        ids = _ids(length)
        if length <= 512:
            _check_same(list(lookers.values()), ids)
        reference = plain.plain(ids)
        apart = float((lookers[Attnlab.name].plain(ids) - reference).abs().max())
        times: dict[str, dict[str, list[float]]] = {}
        for number in range(rounds or ROUNDS[length]):
            for name in in_turn([plain.name, *lookers], number):
                if name == plain.name:
                    taken = dict.fromkeys(
                        ("all weights", *LOOKING.values()), seconds(plain.plain, ids)
                    )
                else:
                    taken = one_round(lookers[name], ids, is_whole=is_whole)
                for task, each in taken.items():
                    times.setdefault(task, {}).setdefault(name, []).append(each)
        for task in LOOKING.values() if is_whole else ["all weights"]:
            values = {name: times[task][name] for name in (plain.name, *lookers)}
            note = f"logits {apart:.0e} from the plain ones" if apart else "logits: every bit"
            table.add(f"{task}, {length:,} tokens", values, note=note)


def compare_head(folder: Path, lengths: list[int], rounds: int | None, table: Table) -> None:
    """Time a pass with one head taken out against the plain pass."""
    kinds = (Transformers, TransformerLens, Nnsight, Attnlab, Faster)
    models = {kind.name: kind(folder) for kind in kinds}
    hooked = models[Transformers.name]
    for length in lengths:
        ids = _ids(length)
        expected = hooked.hooked(ids, ONE, [3])
        calls: dict[str, Callable[[], Any]] = {
            name: partial(each.ablate, ids, ONE, [3]) for name, each in models.items()
        }
        calls["transformers, a hook"] = calls.pop(Transformers.name)
        for name, call in calls.items():
            assert torch.allclose(call(), expected, atol=2e-3), name
        calls = {hooked.name: partial(hooked.plain, ids), **calls}
        times: dict[str, list[float]] = {name: [] for name in calls}
        for number in range(rounds or ROUNDS[length]):
            for name in in_turn(list(calls), number):
                times[name].append(seconds(calls[name]))
        table.add(f"{length:,} tokens", times)


def compare_ablations(folder: Path, length: int, rounds: int, table: Table) -> None:
    """Time 144 ablations against 144 plain passes.

    Passes of one cost are counted by a sample: one head of each layer twelve times; batches of a
    layer's heads in every third layer, three times."""
    ids, ours = _ids(length), {kind.name: kind(folder) for kind in (Attnlab, Faster)}
    singles = {kind.name: kind(folder) for kind in (TransformerLens, Nnsight)}
    plain = Transformers(folder)
    singles["transformers, a hook"] = plain
    batches = {kind.name: kind(folder) for kind in (Batched, FromLayer)}
    answer = int(plain.plain(ids)[0, -1].argmax())

    def of_singles(model: Any) -> Tensor:
        return torch.cat([model.ablate(ids, n, [n % HEADS])[:, answer] for n in range(LAYERS)])

    def of_batches(model: Any, layers: range) -> Tensor:
        model._of = None
        return torch.cat([model.ablate(ids, n, list(range(HEADS)))[:, answer] for n in layers])

    calls: dict[str, tuple[int, Callable[[], object]]] = {
        plain.name: (HEADS, lambda: [plain.plain(ids) for _ in range(LAYERS)])
    }
    for name, model in singles.items():
        calls[name] = (HEADS, lambda model=model: of_singles(model))
    for name, model in batches.items():
        calls[name] = (3, lambda model=model: of_batches(model, range(1, LAYERS, 3)))
    for name, model in ours.items():
        calls[name] = (1, lambda model=model: model.ablations(ids))
    times: dict[str, list[float]] = {name: [] for name in calls}
    found: dict[str, Any] = {}
    for number in range(rounds):
        for name in in_turn(list(calls), number):
            count, call = calls[name]
            found[name], taken = timed(call)
            times[name].append(count * taken)
    apart = _distances(found, list(batches), list(singles), list(ours))
    assert max(apart.values()) < 2e-3, f"apart from a hook's: {apart}"
    largest = max(apart[name] for name in ours)
    table.add(f"144 heads, {length} tokens", times, note=f"within {largest:.0e} of a hook's")


def _distances(
    found: dict[str, Any], batches: list[str], singles: list[str], ours: list[str]
) -> dict[str, float]:
    """Hold everybody's ablations to those of batched hooks, in the layers that they share."""
    layers = torch.arange(1, LAYERS, 3)
    expected = found[Batched.name].reshape(-1, HEADS)
    rows = {name: found[name].reshape(-1, HEADS) for name in batches}
    rows |= {name: found[name].reshape(LAYERS, HEADS)[layers] for name in ours}
    apart = {name: float((each - expected).abs().max()) for name, each in rows.items()}
    picked = expected[torch.arange(len(layers)), layers % HEADS]
    apart |= {name: float((found[name][layers] - picked).abs().max()) for name in singles}
    return apart


PROCESSES = (Transformers, *PEERS, Attnlab)


def in_process(folder: Path, kind: Any, jobs: list[str]) -> dict[str, Any]:
    """Load in a fresh process, and do the tasks there."""
    command = [sys.executable, __file__, "--folder", str(folder), "--measure", kind.name, *jobs]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def compare_load(folder: Path, rounds: int, table: Table) -> None:
    """Load in fresh processes, imports left out."""
    times: dict[str, list[float]] = {kind.name: [] for kind in PROCESSES}
    kinds = {kind.name: kind for kind in PROCESSES}
    for number in range(rounds):
        for name in in_turn(list(kinds), number):
            times[name].append(in_process(folder, kinds[name], [])["load"]["processor"])
    table.add("load", times)


def compare_memory(folder: Path, lengths: list[int], table: Table) -> None:
    """Measure the most that each task held above the loaded model, each once."""
    tasks = {"record_all": "all weights", **LOOKING}
    jobs = [f"{job}:{length}" for length in lengths for job in tasks]
    found: dict[str, dict[str, float]] = {}
    for kind in PROCESSES:
        asked = [f"plain:{length}" for length in lengths] if kind is Transformers else jobs
        found[kind.name] = in_process(folder, kind, asked)["memory"]
    for job in jobs:
        task, _, length = job.partition(":")
        values = {Transformers.name: [found[Transformers.name][f"plain:{length}"]]}
        values |= {kind.name: [found[kind.name][job]] for kind in PROCESSES[1:]}
        table.add(f"{tasks[task]}, {int(length):,} tokens", values, unit="MiB")


def measure(folder: Path, name: str, jobs: list[str]) -> dict[str, Any]:
    """Load in this process, and do every task in a child of it: seconds, and the most memory above
    the loaded model."""
    kind = next(kind for kind in PROCESSES if kind.name == name)
    for module in kind.needs:
        importlib.import_module(module)
    start = time.process_time()
    contestant = kind(folder)
    load = {"processor": time.process_time() - start}
    memory = {job: _in_child(lambda job=job: _held_in(contestant, job)) for job in jobs}
    return {"load": load, "memory": memory}


def _held_in(contestant: Any, job: str) -> float:
    what, _, length = job.partition(":")
    ids, warm = _ids(int(length)), _ids(16)
    contestant.plain(warm)
    tasks: dict[str, Callable[[], object]] = {
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


PARTS = {
    "weights": "all weights recorded: time over the plain pass",
    "looking": "made and read, one layer, summaries: time over the plain pass",
    "head": "a pass with one head taken out: time over the plain pass",
    "ablations": "144 heads taken out one by one: times as fast as 144 plain passes",
    "load": "loading from a folder, without imports",
    "memory": "the most memory above the loaded model",
}
PACKAGES = ("transformers", "transformer-lens", "nnsight", "interp-engine")


def run_part(part: str, folder: Path, lengths: list[int], rounds: int | None, keep: bool) -> None:
    """Measure one table."""
    reference = None if part in ("load", "memory") else Transformers.name
    peers = [OutputAttentions.name, *(kind.name for kind in PEERS[1:])]
    with measured(
        "pretrained",
        part,
        PARTS[part],
        packages=PACKAGES,
        keep=keep,
        ours=[Attnlab.name, Faster.name],
        reference=reference,
        peers=[] if reference else peers,
        better="higher" if part == "ablations" else "lower",
        rounds=rounds or {"ablations": 3, "load": 3, "memory": 1}.get(part, ROUNDS[lengths[-1]]),
    ) as table:
        if part in ("weights", "looking"):
            compare_looking(folder, lengths, rounds, table, is_whole=part == "looking")
        elif part == "head":
            compare_head(folder, lengths, rounds, table)
        elif part == "ablations":
            compare_ablations(folder, 128, rounds or 3, table)
        elif part == "load":
            compare_load(folder, rounds or 3, table)
        else:
            compare_memory(folder, lengths, table)


def main() -> None:
    """Read the arguments, measure, write the results."""
    parser = argparse.ArgumentParser(
        description="A pretrained model looked into, by attnlab and by others."
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512, 2048])
    parser.add_argument("--rounds", type=int, help="rounds of every contest (default: by length)")
    parser.add_argument(
        "--quick", action="store_true", help="128 tokens, one round; nothing is written"
    )
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.measure:
        name, *jobs = options.measure
        with torch.no_grad():
            print(json.dumps(measure(options.folder, name, jobs)))
        return
    leave_without("transformer_lens", "nnsight", "interp_engine")
    lengths, rounds = ([128], 1) if options.quick else (options.lengths, options.rounds)
    with tempfile.TemporaryDirectory() as scratch, torch.no_grad():
        folder = Path(scratch) / "gpt2"
        _make(folder)
        for part in options.parts:
            run_part(part, folder, lengths, rounds, not options.quick)


if __name__ == "__main__":
    main()
