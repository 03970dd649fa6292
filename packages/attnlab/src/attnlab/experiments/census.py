"""census: what every head of a model does over a corpus, and whether it matters.

result = census(model, "reviews.csv", out="census")
result.table()                  # every head: measures with intervals, effects
result.deciles("3.5")           # examples, drawn by lot from each tenth of the texts
"""

import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn

from attnlab import seeds
from attnlab.core.store import LOCK, JsonObject, locked, make_folder, write_bytes, write_json
from attnlab.edits.effects.census_effects import head_effects
from attnlab.edits.effects.sweep import USUAL, SweepOptions
from attnlab.errors import AttnlabError, WrongUsage, is_integer
from attnlab.experiments.executors import ExecutorOptions, UnitFailure, make_engine
from attnlab.experiments.model_loader import load_pretrained
from attnlab.look.census import Census, count_heads, merge_censuses, open_census
from attnlab.look.census.count import Shard
from attnlab.look.census.result import CENSUS_FILE, census_folder
from attnlab.look.collector import run_collector
from attnlab.look.corpus.corpus import Corpus, CorpusProgress, encoder_of, longest_of
from attnlab.look.corpus.measures import Measurer, measure_of
from attnlab.look.corpus.text_rows import rows_of
from attnlab.look.heads import chosen_heads
from attnlab.look.long_text.inputs import arguments_for, reading_attentions
from attnlab.memory import give_back_large_blocks
from attnlab.pretrained.text import device_of
from attnlab.train.observer import Observer, SilentObserver

_EFFECT_TEXTS = 32
_SAMPLE = 1000  # tokens
_REPEATS, _REPEATED = 16, 24  # sequences, and their tokens that come twice


def census(
    model: nn.Module,
    corpus: Corpus | Path | str | Iterable[str],
    *,
    heads: list[str] | None = None,
    effects: int = _EFFECT_TEXTS,
    shard: Shard = (1, 1),
    out: Path | str | None = None,
    seed: int = 0,
    progress: Callable[[CorpusProgress], None] | None = None,
    how: SweepOptions = USUAL,
) -> Census:
    """Count what every head does over a corpus, and measure whether it matters.

    Args:
        model: any model with sites; in an encoder–decoder, the encoder.
        corpus: a file, or the texts one after another; a `Corpus` to say how they are read.
        heads: such as ["3.5", "4"]; None for all.
        effects: how many texts, drawn by lot, the effects are measured on; 0 for none. A share of a
            corpus has none: they are measured after the shares are added up, by `add_effects`.
        shard: (2, 7) reads the second of seven shares of the corpus; see `merge_censuses`.
        out: a folder to create or to resume from; None to write nothing.
        seed: of intervals, examples and effects.
        progress: called after each batch of texts; None for a bar in a notebook.
        how: memory, threads and progress of the effects.

    Returns:
        the `Census`: every head with its measures, effects and examples; printed, a table.

    Raises:
        WrongUsage: invalid arguments, a corpus without any text, or a folder with another census.
        CouldNotRun: the corpus or the folder cannot be read or written.

    >>> import attnlab, torch
    >>> model = attnlab.Decoder(attnlab.DecoderConfig()).eval()
    >>> letters = {"a": 1, "b": 2}
    >>> corpus = attnlab.Corpus(["aba", "bb"], encode=lambda text: [letters[c] for c in text])
    >>> list(census(model, corpus, effects=0).heads)
    ['0.0', '0.1', '0.2', '0.3']
    """
    if not (is_integer(effects) and (effects == 0 or 2 <= effects <= 64)):
        raise WrongUsage(f"effects= is 0, or from 2 to 64 texts; got {effects!r}.")
    result = count_heads(
        model, corpus, heads=heads, shard=shard, out=out, seed=seed, progress=progress
    )
    if effects and shard[1] == 1:
        add_effects(model, result, texts=effects, out=out, seed=seed, how=how)
    return result


def add_effects(
    model: nn.Module,
    result: Census,
    *,
    texts: int = _EFFECT_TEXTS,
    out: Path | str | None = None,
    seed: int = 0,
    how: SweepOptions = USUAL,
) -> None:
    """Add the effects of its heads to a census, and what they do on controlled repeats.

    On repeats, random tokens of the corpus come twice: a head that looks at what followed the same
    token then does so by position in the repeat alone, not because texts repeat themselves.

    Args:
        model: the model of the census.
        result: the census, to which `effects` and `repeats` are added.
        texts: how many of its texts, drawn by lot, at most 64.
        out: the folder of the census; None to write nothing.
        seed: see `head_effects`.
        how: see `head_effects`.

    Raises:
        WrongUsage: heads or texts that the model does not have.
        CouldNotRun: the folder cannot be written.
    """
    give_back_large_blocks()  # thousands of passes in threads
    chosen = chosen_heads(model, reading_attentions(model), list(result.heads))
    rows, result.caution = head_effects(model, result.sample(texts), chosen, seed=seed, how=how)
    result.effects = [row for row in rows if row["head"] in result.heads]
    result.repeats = dict(zip(result.heads, _on_repeats(model, chosen, result, seed), strict=True))
    if out is not None:
        content = {"rows": result.effects, "repeats": result.repeats, "caution": result.caution}
        with locked(Path(out)):
            write_json(Path(out) / "effects.json", content)


@dataclass(frozen=True)
class _Share:
    """A share of a corpus, to be counted on any machine that has the model and the corpus."""

    number: int
    model: str
    corpus: Corpus
    heads: list[str] | None
    shard: Shard
    seed: int

    def compute(self, observer: Observer | None = None) -> dict[str, bytes] | UnitFailure:
        """Count the share; return the files of its folder, or why it could not be counted."""
        try:
            with TemporaryDirectory() as folder:
                model = load_pretrained(self.model)
                options: JsonObject = {"heads": self.heads, "shard": self.shard, "seed": self.seed}
                count_heads(model, self.corpus, out=folder, **options)
                files = [path for path in Path(folder).iterdir() if path.name != LOCK]
                return {path.name: path.read_bytes() for path in files}
        except AttnlabError as error:
            return UnitFailure(self.number, error)


def census_in_shares(
    model: str,
    corpus: Corpus,
    shares: int,
    where: ExecutorOptions,
    *,
    out: Path,
    heads: list[str] | None = None,
    effects: int = _EFFECT_TEXTS,
    seed: int = 0,
    observer: Observer | None = None,
    how: SweepOptions = USUAL,
) -> Census:
    """Count shares of a corpus in several processes, on a Ray cluster or in jobs of SLURM, and add
    them up.

    Shares that are done are kept in `out`/shares; the same call counts the missing ones.

    Args:
        model: a folder or hub id that every worker can open.
        corpus: a file that every worker can read.
        shares: how many; a worker counts one at a time.
        where: the engine.
        out: the folder to create or to resume.
        heads, effects, seed, how: see `census`.
        observer: told of every share.

    Returns:
        the `Census` of all shares together, effects included.

    Raises:
        WrongUsage, CouldNotRun: see `census`, and what an engine raises.
    """
    observer = observer or SilentObserver()
    folders = [out / "shares" / f"{number}-of-{shares}" for number in range(1, shares + 1)]
    missing = [
        _Share(number, model, corpus, heads, (number, shares), seed)
        for number, folder in enumerate(folders, 1)
        if not census_folder(folder).is_there
    ]
    if missing:
        with make_engine(where) as engine:
            observer.stage(engine.words)
            for answer in engine.compute(missing):
                if isinstance(answer, UnitFailure):
                    raise answer.error
                number, texts = _write_share(answer, folders)
                observer.tell(f"share {number} of {shares}: {texts:,} texts")
    is_merged = census_folder(out).is_there
    result = open_census(out) if is_merged else merge_censuses(folders, out=out)
    if effects and not result.effects:
        add_effects(load_pretrained(model), result, texts=effects, out=out, seed=seed, how=how)
    return result


def _write_share(files: dict[str, bytes], folders: Sequence[Path]) -> tuple[int, int]:
    """Write the files of a share into its folder, the state last; return its number, and how many
    texts it has."""
    state = json.loads(files[CENSUS_FILE])
    number, _ = state["shards"][0]
    folder = folders[number - 1]
    make_folder(folder)
    for name in sorted(files, key=lambda name: name == CENSUS_FILE):
        write_bytes(folder / name, files[name])
    return number, state["counts"]["texts read"]


@dataclass(frozen=True)
class CensusRate:
    """How fast a census is on this machine: the tokens of a sample, the seconds that they took, and
    the seconds that effects would take once, 0.0 without."""

    tokens: int
    seconds: float
    effects: float

    @property
    def per_second(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds


def estimate_census(
    model: nn.Module,
    corpus: Corpus,
    *,
    heads: list[str] | None = None,
    effects: int = _EFFECT_TEXTS,
) -> CensusRate:
    """Count the first thousand tokens of a corpus, and measure how fast.

    The seconds of the effects are those of one attention on two texts, times the number of
    attentions and pairs of texts.

    Raises:
        WrongUsage, CouldNotRun: see `census`.
    """
    encode = encoder_of(model, corpus.encode, longest_of(model, corpus.max_length))
    texts, tokens = [], 0
    for row in rows_of(corpus.source, corpus.column):
        if tokens >= _SAMPLE:
            break
        if row.text is not None:
            texts.append(row.text)
            tokens += len(encode(row.text))
    sample = dataclasses.replace(corpus, source=texts, limit=None)
    count_heads(model, dataclasses.replace(sample, source=texts[:1]), heads=heads)
    began = time.perf_counter()  # the first call has taken longer
    result = count_heads(model, sample, heads=heads)
    seconds, of_effects = time.perf_counter() - began, 0.0
    if effects:
        parts = list(chosen_heads(model, reading_attentions(model), heads))
        began = time.perf_counter()
        head_effects(model, result.sample(2), parts[len(parts) // 2 :][:1])
        of_effects = (time.perf_counter() - began) * len(parts) * effects / 2
    return CensusRate(result.counts["tokens read"], seconds, of_effects)


def _on_repeats(
    model: nn.Module, chosen: dict[str, list[int]], result: Census, seed: int
) -> list[float]:
    """Measure the weight on what followed the same token, in sequences that come twice: (head,)."""
    tokens = torch.tensor(result.plain_tokens(getattr(model, "tokenizer", None)))
    generator, length = seeds.generator(seed, "census", "repeats"), longest_of(model, None) // 2
    orders = [torch.randperm(len(tokens), generator=generator) for _ in range(_REPEATS)]
    once = tokens[torch.stack(orders)[:, : min(length, _REPEATED)]]
    ids = torch.cat((once, once), 1).to(device_of(model))
    real = torch.ones_like(ids, dtype=torch.bool)
    measurer = Measurer(measure_of("induction")[1], chosen, ids, real, str)
    run_collector(model, measurer, *arguments_for(model, ids))
    values: Tensor = measurer.values[..., once.shape[1] :].nanmean((0, 2))
    return values.nan_to_num(0.0).tolist()
