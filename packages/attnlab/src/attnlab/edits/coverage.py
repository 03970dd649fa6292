"""Coverage: did a forward pass reach every target of an edit? A missed target is an error."""

import difflib
import operator
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

import torch
from torch import Tensor, nn

from attnlab.edits.certificate import Change
from attnlab.edits.edit import Edit
from attnlab.edits.edit_context import SitePositions, StackText
from attnlab.edits.targets import Atom, Span, atoms_of, number_words
from attnlab.errors import WrongUsage
from attnlab.look.recording.tokens import Vocabulary, name_of
from attnlab.models.decoder import Decoder
from attnlab.models.encoder import Encoder
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.models.single_head import SingleHead
from attnlab.pretrained.model import Pretrained
from attnlab.pretrained.text import TokenNames

_LISTED = 24  # names of tokens in a message


class Coverage:
    """The targets of one edit that were reached, forward pass by forward pass.

    rule: the edit with its recording read · sites: the edit's · change: for the certificate ·
    unknown: names that were looked up in a text of which some tokens are unknown.
    """

    def __init__(self, edit: Edit, vocabulary: Vocabulary | None) -> None:
        self.edit = edit
        self.rule = edit.with_recording_read()
        self.sites: list[str] = []
        self.change = Change(repr(edit))
        self.unknown: set[str] = set()
        self._was_applied = self._has_changed = False
        self._vocabulary = vocabulary
        self._ids: dict[str, list[int]] = {}
        self._atoms: dict[str, list[Atom]] = {}
        self._met: dict[str, set[Atom]] = {}
        self._most: dict[str, int] = {}  # the most positions, rows or steps of a pass, by axis
        for axis in ("step", "row", "query", "key"):
            atoms = atoms_of(axis, getattr(edit, axis))
            if atoms:
                self._atoms[axis], self._met[axis], self._most[axis] = atoms, set(), 0
        for axis, atom in self._each_atom():
            if isinstance(atom, str):
                self._ids |= self._ids_of(axis, atom)

    @property
    def looks_back(self) -> bool:
        """Does this edit depend on the tokens of earlier forward passes?"""
        return "step" in self._atoms or self.counts_from_end("query") or self.counts_from_end("key")

    @property
    def reads(self) -> bool:
        """Does this edit depend on the tokens at all?"""
        return self.looks_back or self.edit.names_tokens

    def counts_from_end(self, axis: str) -> bool:
        """Are some targets along an axis counted from the end?"""
        spans = (atom for atom in self._atoms.get(axis, ()) if isinstance(atom, Span))
        return any(min(span.ends) < 0 for span in spans)

    def rows(self, batch: int) -> list[int] | None:
        """Return the target rows, or None for all of them."""
        if "row" not in self._atoms:
            return None
        chosen = self._at_positions("row", torch.arange(batch), batch)
        return list(map(int, chosen.flatten().nonzero()))

    def chosen(self, at: SitePositions) -> Tensor | None:
        """Return which values are targets by position and step, broadcasting; None for all."""
        if "classes" in at.axes:
            return self._chosen_pass(at)
        chosen = []
        if "query" in self._atoms and at.has_queries:
            chosen.append(self._chosen_queries(at))
        if "step" in self._atoms and at.has_queries:
            chosen.append(self._chosen_steps(at))
        if "key" in self._atoms:
            chosen.append(self._chosen_keys(at))
        return reduce(operator.and_, chosen) if chosen else None

    def _chosen_pass(self, at: SitePositions) -> Tensor | None:
        if self.edit.query is not None:
            raise WrongUsage(f"{self.edit!r}: {at.site} has no positions here; leave query= out.")
        if "step" not in self._atoms or at.stack_text is None:
            return None
        step = torch.tensor([at.stack_text.number + 1], device=at.queries.device)
        return self._at_positions("step", step, 0)[0]

    def _chosen_queries(self, at: SitePositions) -> Tensor:
        if not at.is_placed and not self.counts_from_end("query"):
            raise WrongUsage(
                f"{self.edit!r}: {at.site} has {len(at.queries)} queries and {len(at.keys)} keys, "
                "and which positions of the input the queries are is unknown; leave query= out, or "
                "edit the heads, whose positions are counted in their order."
            )
        ends, text = at.queries[-1:] + 1, at.query_text
        if text is not None:
            ends = text.ends_at(at.queries)
        return at.along_queries(self._at_positions("query", at.queries, ends, text, at.site))

    def _chosen_steps(self, at: SitePositions) -> Tensor:
        steps = self._known(at.query_text, at.site, "leave step= out").steps
        read = torch.tensor(steps, device=at.queries.device).index_select(0, at.queries)
        return at.along_queries(self._at_positions("step", torch.where(read < 0, -1, read + 1), 0))

    def _chosen_keys(self, at: SitePositions) -> Tensor:
        keys, text = at.keys, at.key_text
        if at.num_read is not None and self.counts_from_end("key"):
            raise WrongUsage(
                f"{self.edit!r}: {at.site} holds {len(keys)} keys for {at.num_read} positions, "
                "so the end of the text is unknown; count keys from the beginning, or generate "
                "with a cache that grows."
            )
        ends = keys[-1:] + 1
        if text is not None and text is at.stack_text:
            ends = text.ends_at(at.queries if at.has_queries else keys)
        if at.has_queries:
            return self._at_positions("key", keys, ends[:, None], text, at.site)[:, None]
        return self._at_positions("key", keys, ends, text, at.site).transpose(1, 2)[:, None]

    def _at_positions(
        self,
        axis: str,
        positions: Tensor,
        ends: Tensor | int,
        text: StackText | None = None,
        site: str = "",
    ) -> Tensor:
        """Mark the target positions, rows or steps: (rows or 1, queries or 1, positions).

        Args:
            axis: "query", "key", "row" or "step".
            positions: their numbers, (positions,); steps count from 1, -1 is before the edit.
            ends: where the text ended when the query was read first, (queries or 1, 1) for keys,
                (positions,) for queries; negative numbers count from there.
            text: the tokens that were read, for names.
            site: for messages.
        """
        chosen = torch.zeros((1, 1, len(positions)), dtype=torch.bool, device=positions.device)
        for atom in self._atoms[axis]:
            if isinstance(atom, str):
                here = self._named(atom, text, site)[:, None].index_select(-1, positions)
            else:
                here = _within(atom, positions, ends)
            if bool(here.any()):
                self._met[axis].add(atom)
            chosen = chosen | here
        if len(positions):
            self._most[axis] = max(self._most[axis], int(positions.max()) + 1)
        return chosen

    def check_names(self, texts: Sequence[Tensor]) -> None:
        """Raise where a target names a token that none of the texts has, ids (row, length)."""
        for _, atom in self._each_atom():
            if isinstance(atom, str) and not any(self._occurs(atom, text) for text in texts):
                raise WrongUsage(
                    f"{self.edit!r} would land nowhere: the token {atom!r} is not in the input; "
                    f"its tokens are {self._names_in(texts)}."
                )

    def _names_in(self, texts: Sequence[Tensor]) -> str:
        """List the names of the tokens of some texts, each once."""
        ids = dict.fromkeys(token for text in texts for token in text.flatten().tolist())
        names = [repr(name_of(token, self._vocabulary)) for token in ids]
        more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        return ", ".join(names[:_LISTED]) + more

    def _occurs(self, name: str, text: Tensor) -> bool:
        ids = self._ids.get(name)
        if ids is None:
            return any(
                name_of(token, self._vocabulary) == name for token in text.flatten().tolist()
            )
        return bool(torch.isin(text, torch.tensor(ids, dtype=text.dtype)).any())

    def note_change(self, before: Tensor, after: Tensor, chosen: Tensor | None) -> None:
        """Note that the edit was applied, and whether it changed a value."""
        self._was_applied = True
        if self.edit.NOTHING and not self._has_changed:
            self._has_changed = self.edit.has_changed(before, after, chosen)

    def failure(self) -> str | None:
        """Return the reason why the edit missed a target, or None."""
        lost, in_part = f"{self.edit!r} landed nowhere:", f"{self.edit!r} landed only in part:"
        missed = [site for site in self.sites if site not in self.change.calls]
        if missed:
            start = in_part if self.change.calls else lost
            return f"{start} no forward pass ran {' or '.join(missed)}."
        for axis, atom in self._each_atom():
            if self._is_beyond(axis, atom):
                return f"{in_part} {self._missing(axis, atom)}"
            if atom not in self._met[axis]:
                return f"{lost} {self._missing(axis, atom)}"
        if not self._was_applied:
            return f"{lost} its targets never occurred together in one forward pass."
        if self.edit.NOTHING and not self._has_changed:
            return f"{self.edit!r} changed nothing: {self.edit.NOTHING}"
        return None

    def _each_atom(self) -> Iterator[tuple[str, Atom]]:
        for axis, atoms in self._atoms.items():
            for atom in atoms:
                yield axis, atom

    def _is_beyond(self, axis: str, atom: Atom) -> bool:
        """Does a span of rows or positions reach beyond every input? (Steps may be fewer.)"""
        if axis == "step" or isinstance(atom, str) or atom not in self._met[axis]:
            return False
        return not _is_within(atom, self._most[axis])

    def _missing(self, axis: str, atom: Atom) -> str:
        if isinstance(atom, str):
            side = "queries" if axis == "query" else "keys"
            return f"the token {atom!r} was never among the {side}."
        last = self._most[axis] - 1
        there = f"the longest input had {last + 1} positions (0 to {last})"
        if axis == "step":
            there = f"there were {last} forward passes (steps 1 to {last})"
        elif axis == "row":
            there = f"the largest batch had {last + 1} rows (0 to {last})"
        return f"{axis}={atom!r} was never reached; {there}."

    def _known(self, text: StackText | None, site: str, advice: str) -> StackText:
        if text is None:
            raise WrongUsage(f"{self.edit!r}: the tokens read at {site} are unknown; {advice}.")
        return text

    def _named(self, name: str, text: StackText | None, site: str) -> Tensor:
        """Find a token by name: (rows, positions), True at its positions."""
        tokens = self._known(text, site, "give positions").tokens
        if tokens.is_floating_point():
            raise WrongUsage(f"{self.edit!r}: vectors have no names; give positions.")
        if bool((tokens < 0).any()):
            self.unknown.add(name)
        if tokens.dim() == 2:
            return self._is_named(tokens, name)
        # a token of several parts goes by all their names, or by any
        parts = name.split("+")
        if len(parts) > 1 and len(parts) == tokens.shape[-1]:
            return torch.stack(list(map(self._is_named, tokens.unbind(-1), parts))).all(0)
        return self._is_named(tokens, name).any(-1)

    def _is_named(self, tokens: Tensor, name: str) -> Tensor:
        ids = self._ids.get(name)
        if ids is None:
            # a vocabulary that is a function can only be asked about the tokens that were read
            here = {token for token in tokens.flatten().tolist() if token >= 0}
            ids = [token for token in here if name_of(token, self._vocabulary) == name]
        if isinstance(self._vocabulary, TokenNames):  # whose names several ids may go by
            self._check_one_is_there(tokens, name, ids)
        return torch.isin(tokens, torch.tensor(ids, dtype=tokens.dtype, device=tokens.device))

    def _check_one_is_there(self, tokens: Tensor, name: str, ids: list[int]) -> None:
        there = [token for token in ids if bool((tokens == token).any())]
        if len(there) > 1:
            names = " or ".join(repr(name_of(token, self._vocabulary)) for token in there)
            raise WrongUsage(
                f"{self.edit!r}: {name!r} may be {names} here; write the leading blank, or give "
                "positions."
            )

    def _ids_of(self, axis: str, name: str) -> dict[str, list[int]]:
        """Look up a name and its parts in the vocabulary; a function cannot be searched."""
        vocabulary = self._vocabulary
        if vocabulary is None:
            raise WrongUsage(
                f"{self.edit!r}: {axis}={name!r} is a token's name; pass the names as vocabulary=."
            )
        if isinstance(vocabulary, TokenNames):  # a tokenizer's names
            ids = vocabulary.ids_of(name)
            if not ids:
                raise WrongUsage(f"{self.edit!r}: {vocabulary.missing(name)}.")
            return {name: ids}
        if callable(vocabulary):
            return {}
        known: dict[str, list[int]] = {}
        if not isinstance(vocabulary, Mapping):
            vocabulary = dict(enumerate(vocabulary))
        for token, text in vocabulary.items():
            known.setdefault(str(text), []).append(token)
        parts = name.split("+")
        if name not in known and not known.keys() >= set(parts):
            raise WrongUsage(
                f"{self.edit!r}: no token is called {name!r}; {_guess(name, list(known))}"
            )
        return {word: known.get(word, []) for word in (name, *parts)}


def check_reach(edit: Edit, model: nn.Module, positions: int, rows: int) -> None:
    """Raise, before any pass, where a target lies beyond all inputs.

    Where a foreign model may pad its inputs, pool them or add positions, only rows are checked.

    Args:
        edit: whose targets are checked.
        model: that reads the inputs.
        positions: the most tokens that an input can have, its answer included.
        rows: the number of inputs.
    """
    axes = ("row", "query", "key") if _has_a_position_a_token(model) else ("row",)
    for axis in axes:
        size = rows if axis == "row" else positions
        for atom in atoms_of(axis, getattr(edit, axis)):
            if isinstance(atom, Span) and not _is_within(atom, size):
                there = f"the longest input has {number_words('position', size)}"
                if axis == "row":
                    there = f"the batch has {number_words('row', size)}"
                raise WrongUsage(
                    f"{edit!r} would land nowhere: {axis}={atom!r} is out of range; {there}."
                )


def _has_a_position_a_token(model: nn.Module) -> bool:
    """Are the positions of every attention those of the tokens, as in attnlab's own models and in
    language models that generate?"""
    if isinstance(model, Decoder | Encoder | EncoderDecoder | SingleHead):
        return True
    if not isinstance(model, Pretrained) or model.structure.names != ("",):
        return False
    can_generate = getattr(model.foreign, "can_generate", None)
    return callable(can_generate) and bool(can_generate())


def _is_within(span: Span, size: int) -> bool:
    return -size <= min(span.ends) <= max(span.ends) < size


def _within(span: Span, positions: Tensor, ends: Tensor | int) -> Tensor:
    """Mark the positions in a span, whose negative numbers count from the ends."""
    low, high = (end if end is None or end >= 0 else ends + end for end in (span.low, span.high))
    here = positions >= 0
    if low is not None:
        here = here & (positions >= low)
    if high is not None:
        here = here & (positions <= high)
    return here


def _guess(name: str, known: list[str]) -> str:
    close = [word for word in known if word.casefold() == name.casefold()]
    close = close or difflib.get_close_matches(name, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"the vocabulary begins {', '.join(known[:10])}."
