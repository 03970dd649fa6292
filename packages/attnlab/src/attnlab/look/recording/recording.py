"""A recording: the values at chosen sites of a model, with the tokens, the edits and the model.

with record(model, "layers.*.attention.weights") as recording:
    model(tokens)
recording["layers.0.attention.weights"]          # (batch, head, query, key)
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from attnlab.core.store import JsonObject
from attnlab.display import Card, count_words, displayed
from attnlab.errors import WrongUsage, not_none, type_words
from attnlab.look.indices import check_index, check_slice
from attnlab.look.recording.archive import read_store, write_store
from attnlab.look.recording.budget import Budget, to_bytes
from attnlab.look.recording.contents import BY_HEAD, HAS_KEYS, NOTHING_YET, Passed, Store
from attnlab.look.recording.difference import RecordingComparison, compared
from attnlab.look.recording.join import joined, joined_store
from attnlab.look.recording.kept_call import ALL, KeptCall, KeptMask, working_bytes
from attnlab.look.recording.selection import (
    SiteSelection,
    check_all,
    numbers_of,
    rows_read,
    selected_sites,
)
from attnlab.look.recording.tokens import (
    TokenPositions,
    TokenSides,
    TokenSpan,
    all_positions,
    first_key,
    unknown_positions,
)
from attnlab.parts.heads import share_heads
from attnlab.shapes import shape_text
from attnlab.sites import part_of, site_suffix

_WITNESSES = ("weights", "value", "heads")


_SHOWN_ROWS = 11  # that a prompt has room for


@displayed
class Recording(Mapping[str, Any]):
    """The values of sites, `recording[site]`; after several forward passes it is the last value,
    `all` returns every one.

    Weights and scores are computed whenever they are read; `tile` computes a part of them.
    """

    def __init__(self, store: Store, session: AbstractContextManager[None] | None = None) -> None:
        self._store, self._session = store, session

    def __enter__(self) -> Self:
        """Record what the model does within the `with`."""
        if self._session is None:
            raise WrongUsage(
                "this recording is complete: read it without `with`, as recording[site]; `with` "
                'takes names of sites, attnlab.record(model, "*.weights").'
            )
        self._session.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.__exit__(*error)

    def __getitem__(self, site: str) -> Any:
        return self._last(site).value(site, self._store.budget)

    def __iter__(self) -> Iterator[str]:
        return iter(self._store.passed)

    def __len__(self) -> int:
        return len(self._store.passed)

    def __contains__(self, site: object) -> bool:
        return site in self._store.passed

    def get(self, site: str, default: Any = None) -> Any:
        """Return the last value at a site, or the default if there is none."""
        return self[site] if site in self._store.passed else default

    def _card(self) -> Card:
        model = name_and_kind(self.model) or "a model"
        if not self._store.passed:
            return Card(f"Recording of {model}", lines=NOTHING_YET.split("; "))
        layers: dict[tuple[str, str, int], list[str]] = {}
        for site, passed in self._store.passed.items():
            words, shape = "reduced", passed[-1].shape()
            if shape is not None:
                words = shape_text(shape)
            plain = re.sub(r"(^|\.)layers\.\d+\.", r"\1layers.*.", site)
            layers.setdefault((plain, words, len(passed)), []).append(site)
        columns, rows = _parts_with_shapes(layers)
        if len(rows) > _SHOWN_ROWS:
            columns, rows = _parts(layers)
        title = f"Recording of {model}: {count_words(len(self), 'site')}, {self.nbytes:,} bytes"
        return Card(title, [], columns, rows)

    def all(self, site: str) -> list[Any]:
        """Return every value at a site, in order."""
        return [passed.value(site, self._store.budget) for passed in self._store.of(site)]

    def shape(self, site: str) -> tuple[int, ...]:
        """Return the shape of the last value at a site, without computing it."""
        shape = self._last(site).shape()
        if shape is None:
            raise WrongUsage(f"{site} was reduced, so its value has no shape.")
        return shape

    def tokens(self, site: str, row: int = 0) -> TokenSides:
        """Return the names of the queries and of the keys of a site's last value.

        Ids are named by the vocabulary, without one by their numbers; a position with an unknown id
        is `[3]`.
        """
        vocabulary = self._store.vocabulary
        queries, keys = self._positions(site, row)
        return TokenSides(queries.names(vocabulary), keys.names(vocabulary))

    def named(self, words: Mapping[str, Sequence[str]]) -> "Recording":
        """Return the recording of one input with these names of its tokens: `{"encoder": ["a",
        "b"]}`.

        The name of a model that is one stack is "". Names are ignored if their number is not that
        of the positions.
        """
        names = {part: tuple(part_words) for part, part_words in words.items()}
        reads = [replace(read, names=names.get(read.part)) for read in self._store.reads]
        return Recording(replace(self._store, reads=reads))

    def real(self, site: str, row: int = 0) -> tuple[list[bool], list[bool]]:
        """Return which queries and keys are not padding, if known."""
        queries, keys = self._positions(site, row)
        return queries.real(), keys.real()

    def blocked(self, site: str, row: int = 0, head: int | None = None) -> Tensor | None:
        """Return which keys are masked, boolean (query, key), for one head or for all; None without
        a mask."""
        passed = self._at_row(site, row)
        if passed.mask is None:
            raise WrongUsage(f"weights, scores and masks have blocked keys; {site} has none.")
        self._check_head(site, head)
        self._store.budget.allow(f"what is blocked at {site}", passed.mask.working_bytes(head))
        blocked = passed.mask.blocked(row, head)
        return None if blocked is None else blocked[0].all(0)

    def tile(
        self,
        site: str,
        *,
        head: int | None = None,
        queries: slice = ALL,
        keys: slice = ALL,
        row: int = 0,
    ) -> Tensor:
        """Compute a part of one input's weights, scores or mask, exactly.

        Shapes: (query, key) of one head, (head, query, key) of all.

        Raises:
            WrongUsage: there is no such head, row, query or key.
        """
        passed = self._at_row(site, row)
        held, shape, budget = passed.held, passed.shape(), self._store.budget
        if site_suffix(site) not in HAS_KEYS or shape is None:
            raise WrongUsage(f"kept weights, scores and masks have tiles; {site} has none.")
        num_queries, num_keys = passed.lengths(site_suffix(site))
        queries = check_slice("queries", queries, num_queries)
        keys = check_slice("keys", keys, num_keys)
        self._check_head(site, head)
        height = queries.stop - queries.start
        if isinstance(held, KeptMask):
            budget.allow(f"a tile of {site}", held.working_bytes(head, height))
            made = not_none(held.part(row, head, queries))[0, ..., keys]
        elif isinstance(held, KeptCall):
            num_heads = shape[1] if head is None else 1
            size = (num_heads, height, num_keys)
            budget.allow(f"a tile of {site}", working_bytes(size, held.query.dtype))
            made = held.make(row, head, queries, keys)[0]
        elif head is None:
            made = held[row, :, queries, keys]
        else:
            made = held[row, head : head + 1, queries, keys]
        return made if head is None else made[0]

    def joined(self, site: str | None = None) -> Any:
        """Put the steps of the last generation together, at one site or (without one) as a
        recording of one pass.

        With a key/value cache every step has only its own queries. Weights and scores of
        self-attention become one triangle, those of cross-attention a panel of all queries over the
        same keys; other values are concatenated.
        """
        if site is None:
            return Recording(joined_store(self._store))
        return joined(self._store, site).value(site, self._store.budget)

    def witness(self) -> dict[str, float]:
        """Return the largest difference of weights times values from the heads' outputs, for every
        attention with all three recorded; zero but for rounding if the recorded weights are those
        that the model used.

        An edit of the heads changes it, and so does dropout in training.

        Raises:
            WrongUsage: no attention has all three.
        """
        differences = {}
        for site in self:
            part, _, name = site.rpartition(".")
            if name == "weights" and all(f"{part}.{site_name}" in self for site_name in _WITNESSES):
                weights, value, heads = (self[f"{part}.{witness}"] for witness in _WITNESSES)
                made = weights.double() @ share_heads(value, weights.shape[1]).double()
                # NaN on both sides is no difference
                both = made.isnan() & heads.isnan()
                difference = (made - heads.double()).abs().masked_fill(both, 0.0)
                differences[part] = float(difference.max()) if difference.numel() else 0.0
        if not differences:
            raise WrongUsage(
                "a witness needs weights, values and heads of one attention: "
                'record(model, ("*.weights", "*.value", "*.heads")).'
            )
        return differences

    def gradient(self, site: str) -> Tensor:
        """Return the gradient of the last value at a site, summed over `backward` calls.

        It has the shape of the value: at `weights`, (batch, head, query, key).

        Raises:
            WrongUsage: it was not recorded, or has not arrived.
        """
        passed = self._last(site)
        if passed.gradient is not None:
            return passed.gradient
        why = f"the gradient of {site} was not recorded; use record(…, gradients=True)."
        if passed.awaits:
            why = (
                f"no gradient has arrived at {site}: backward() has not run yet, or ran on a value "
                "that does not depend on the last one recorded there."
            )
        elif site in self._store.gradients:
            why = (
                f"{site} was computed without gradients: under torch.no_grad(), or no parameter "
                "and no input before it requires one; run the model with gradients enabled."
            )
        raise WrongUsage(why)

    @property
    def edits(self) -> list[JsonObject]:
        """The edits that were installed during the last forward pass, as plain values for JSON."""
        last = self._store.reads[-1] if self._store.reads else self._store
        return list(map(dict, last.edits))

    @property
    def model(self) -> JsonObject:
        """The type of the recorded model; for models of attnlab its config and dtype, and the name
        of its run."""
        return self._store.model

    @property
    def nbytes(self) -> int:
        """The bytes of all values; shared ones count once."""
        return self._store.nbytes()

    def select(
        self,
        patterns: str | Sequence[str] | None = None,
        *,
        layers: Iterable[int] | int | None = None,
        heads: Iterable[int] | int | None = None,
        rows: Iterable[int] | int | None = None,
    ) -> "Recording":
        """Return a part: matching sites, some layers, some heads (at sites that have heads), some
        inputs.

        Keys and values that heads share are repeated for each selected head. A part that was not
        recorded is an error.
        """
        self._store.check_recorded()
        sites = selected_sites(self._store, patterns, numbers_of(layers))
        chosen, chosen_rows = numbers_of(heads), numbers_of(rows)
        if chosen is not None:
            sites = [site for site in sites if site_suffix(site) in BY_HEAD]
            if not sites:
                raise WrongUsage("none of the selected sites has heads; leave heads= out.")
        passed, counts, reads = {}, dict(self._store.heads), self._store.reads
        for site in sites:
            part, budget = part_of(site), self._store.budget
            if chosen is not None:
                check_all("head", chosen, self._store.heads[part], site)
                counts[part] = len(chosen)
            pick = SiteSelection(site, chosen, self._store.heads.get(part), chosen_rows, budget)
            passed[site] = list(map(pick.passed, self._store.passed[site]))
        if chosen_rows is not None:
            reads = [rows_read(read, chosen_rows) for read in reads]
        narrowed = replace(
            self._store, sites=tuple(sites), passed=passed, reads=reads, heads=counts
        )
        return Recording(narrowed)

    def compare(self, other: "Recording") -> RecordingComparison:
        """Return the differences from another recording at the sites of both."""
        if not isinstance(other, Recording):
            raise WrongUsage(f"compare takes another recording; got {type_words(other)}.")
        return compared(self, other)

    def save(self, folder: Path | str) -> Path:
        """Write `recording.json` and `recording.safetensors` into a folder, created if needed;
        return it."""
        write_store(self._store, Path(folder))
        return Path(folder)

    @classmethod
    def load(cls, folder: Path | str, *, budget: int | str | None = None) -> Self:
        """Read a recording back.

        Raises:
            CouldNotRun: a file is missing, damaged or foreign, or too large for the budget.
        """
        return cls(read_store(Path(folder), Budget(to_bytes(budget))))

    def _positions(self, site: str, row: int) -> tuple[TokenPositions, TokenPositions]:
        """Return the positions of a site's queries and of its keys, if known."""
        passed, reads = self._at_row(site, row), self._store.reads
        num_queries, num_keys = passed.lengths(site_suffix(site))
        queries = unknown_positions(num_queries)
        if passed.query is not None:
            read = reads[passed.query]
            # A model may put positions of its own before its input.
            if num_queries in (0, read.shape[1]):
                queries = TokenPositions([TokenSpan(read, row, read.shape[1])])
        if site_suffix(site) not in BY_HEAD:
            return queries, queries
        unknown = unknown_positions(num_keys)
        if passed.key is None:
            return queries, unknown
        read, first = reads[passed.key], 0
        length = read.offset + read.shape[1]
        if passed.key == passed.query:
            first = first_key(length, num_keys, read.offset)
        if num_keys and length != num_keys + first:
            return queries, unknown
        return queries, all_positions(reads, read, row, first)

    def _last(self, site: str) -> Passed:
        return self._store.of(site)[-1]

    def _check_head(self, site: str, head: int | None) -> None:
        if head is not None:
            check_index("head", head, self._store.heads[part_of(site)])

    def _at_row(self, site: str, row: int) -> Passed:
        passed = self._last(site)
        shape = passed.shape()
        if passed.query is not None:
            check_index("row", row, self._store.reads[passed.query].shape[0])
        elif shape is not None and len(shape) > 2 and not isinstance(passed.held, KeptMask):
            check_index("row", row, shape[0])
        return passed


def open_recording(folder: Path | str, *, budget: int | str | None = None) -> Recording:
    """Read a saved recording, also from the folder that `attnlab look --out` wrote; see
    `Recording.load`."""
    place = Path(folder)
    within = place / "recording"
    if within.is_dir() and not (place / "recording.json").exists():
        place = within
    return Recording.load(place, budget=budget)


def name_and_kind(model: Mapping[str, Any]) -> str:
    """Return what a recording says of its model: the name, if it has one, and the kind; else ""."""
    return ", ".join(str(model[key]) for key in ("name", "kind") if key in model)


_SitesByKind = Mapping[tuple[str, str, int], Sequence[str]]
"""Sites by their name without the number of the layer, the shape, and the number of passes."""


def _parts_with_shapes(sites_by_kind: _SitesByKind) -> tuple[tuple[str, ...], list[list[Any]]]:
    """Return a table in which the sites of one part and shape stand together."""
    rows: dict[tuple[str, int, str, int], list[str]] = {}
    for (plain, shape, passes), sites in sites_by_kind.items():
        part, _, kind = (plain if len(sites) > 1 else sites[0]).rpartition(".")
        rows.setdefault((part, len(sites), shape, passes), []).append(kind)
    columns = ("layers", "shape of the last value", "passes", "site")
    return columns, [[*facts, _together(part, kinds)] for (part, *facts), kinds in rows.items()]


def _parts(sites_by_kind: _SitesByKind) -> tuple[tuple[str, ...], list[list[Any]]]:
    """Return a shorter table, without shapes, in which the sites of one part stand together."""
    rows: dict[tuple[str, int, int], list[str]] = {}
    for (plain, _, passes), sites in sites_by_kind.items():
        part, _, kind = (plain if len(sites) > 1 else sites[0]).rpartition(".")
        rows.setdefault((part, len(sites), passes), []).append(kind)
    columns = ("layers", "passes", "site")
    return columns, [[*facts, _together(part, kinds)] for (part, *facts), kinds in rows.items()]


def _together(part: str, kinds: Sequence[str]) -> str:
    """Write sites of one part: `layers.0.attention.query, key`."""
    return f"{part}.{', '.join(kinds)}".lstrip(".")
