"""A long document: the summaries of every head of a pretrained model, their time and memory beside
the plain forward.

    python benchmarks/long_document.py [--model FILE.gguf] [--texts FILE.csv] [--tokens 16384]
    [--quick] [--json FILE]

Without a model a random Llama of SmolLM2-135M's shape is taken, without texts random ids. Each
figure comes from a process of its own, one after another, one thread: `plain` is the model's own
forward (only the last logits), `summaries` the same forward by `summarize_document` into a folder
on disk, `eager` what `output_attentions` takes at shorter lengths, from which its time at the full
length is reckoned as bn + cn². Peak memory is VmHWM, the opened model included.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attnlab.pretrained.model import Pretrained

_EAGER = (512, 1024, 1536)
_SHAPE: dict[str, Any] = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "tie_word_embeddings": True,
    "max_position_embeddings": 8192,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
}


def opened(name: str | None) -> Pretrained:
    """Open the model, or make a random one of the same shape."""
    if name is not None:
        from attnlab.experiments.model_loader import load_pretrained

        return load_pretrained(name)  # type: ignore[return-value]
    from transformers import LlamaConfig, LlamaForCausalLM

    from attnlab.pretrained.attach import attach

    torch.manual_seed(0)
    return attach(LlamaForCausalLM(LlamaConfig(**_SHAPE)).eval())


def document(model: Pretrained, texts: str | None, tokens: int) -> torch.Tensor:
    """Return ids (1, tokens): texts of a corpus one after another, or random ones."""
    if texts is None or model.tokenizer is None:
        return torch.randint(5, 49152, (1, tokens), generator=torch.Generator().manual_seed(0))
    from attnlab.look.corpus.text_rows import rows_of

    ids: list[int] = []
    for row in rows_of(texts):
        ids += model.tokenizer(f"{row.text}\n\n")["input_ids"] if row.text else []
        if len(ids) >= tokens:
            return torch.tensor([ids[:tokens]])
    raise SystemExit(f"{texts} has only {len(ids):,} tokens")


def peak() -> int:
    """Return the most memory that this process has had, in bytes."""
    line = next(
        each
        for each in Path("/proc/self/status").read_text().splitlines()
        if each.startswith("VmHWM")
    )
    return 1024 * int(line.split()[1])


def run_part(part: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one contestant in this process."""
    torch.set_num_threads(1)
    model = opened(options.model)
    ids = document(model, options.texts, options.tokens)
    found: dict[str, Any] = {"part": part, "tokens": ids.shape[1], "opened_bytes": peak()}
    began, wall = time.process_time(), time.monotonic()
    if part == "plain":
        with torch.inference_mode():
            model.foreign(input_ids=ids, use_cache=False, logits_to_keep=1)
    elif part == "eager":
        model.foreign.set_attn_implementation("eager")
        with torch.inference_mode():
            model.foreign(input_ids=ids, use_cache=False, logits_to_keep=1, output_attentions=True)
    else:
        from attnlab.look.long_text import summarize_document
        from attnlab.look.summaries import Summarize

        with tempfile.TemporaryDirectory() as folder:
            out = Path(options.out or folder)
            heads = summarize_document(
                model,
                ids,
                out=out,
                reduce=Summarize(tiles=options.tiles),
                beyond=True,
                progress=told,
            )
            found |= {
                "heads": len(heads.table()),
                "disk_bytes": sum(each.stat().st_size for each in out.rglob("*.*")),
            }
    return found | {
        "processor": time.process_time() - began,
        "wall": time.monotonic() - wall,
        "peak_bytes": peak(),
    }


def told(progress: Any) -> None:
    """Say how far it is."""
    print(
        f"{progress.done}/{progress.total} {progress.seconds:.0f} s, {progress.left:.0f} s left",
        file=sys.stderr,
    )


def in_process(part: str, tokens: int) -> dict[str, Any]:
    """Measure one contestant in a process of its own."""
    arguments = [each for each in sys.argv[1:] if each != "--quick"]
    command = [sys.executable, __file__, *arguments, "--part", part, "--tokens", str(tokens)]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, Any] = json.loads(answer.splitlines()[-1])
    print(
        f"{part:10} {found['tokens']:7,} tokens  processor {found['processor']:8.1f} s  wall "
        f"{found['wall']:8.1f} s  peak {found['peak_bytes'] / 2**30:5.2f} GiB (opened "
        f"{found['opened_bytes'] / 2**30:.2f})",
        flush=True,
    )
    return found


def main() -> None:
    """Measure all, or one part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model")
    parser.add_argument("--texts")
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--tiles", type=int, default=256)
    parser.add_argument("--out")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--part", choices=("plain", "summaries", "eager"))
    options = parser.parse_args()
    if options.part:
        print(json.dumps(run_part(options.part, options)))
        return
    tokens = 1024 if options.quick else options.tokens
    found = [in_process("summaries", tokens), in_process("plain", tokens)]
    found += [in_process("eager", length) for length in _EAGER]
    print(f"summaries / plain: {found[0]['processor'] / found[1]['processor']:.3f} (processor)")
    lengths = np.array([each["tokens"] for each in found[2:]], dtype=float)
    taken = np.array([each["processor"] for each in found[2:]])
    linear, square = np.linalg.lstsq(np.stack([lengths, lengths**2], 1), taken, rcond=None)[0]
    layers, heads = _SHAPE["num_hidden_layers"], _SHAPE["num_attention_heads"]
    print(
        f"eager at {tokens:,}, reckoned: {linear * tokens + square * tokens**2:,.0f} s of "
        f"processor; all weights take {layers * heads * tokens**2 * 4 / 2**30:,.0f} GiB, those of "
        f"a layer {heads * tokens**2 * 4 / 2**30:,.1f} GiB"
    )
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
