"""Coverage: was every target of an edit found? A target that was never found is an error."""

import difflib
from collections.abc import Mapping

import torch
from torch import Tensor

from attnlab.edits.edit import Edit
from attnlab.edits.targets import Atom, atoms_of, bounds, ends_of, is_all
from attnlab.edits.token_history import Text
from attnlab.errors import WrongUsage
from attnlab.look.recording.tokens import Vocabulary, name_of
from attnlab.pretrained.token_names import TokenNames

__all__ = ["Coverage"]


class Coverage:
    """Which of one edit's targets were found, forward pass by forward pass.

    rule: the edit with its recording open · sites: where it is for · calls: how often each of them
    passed · unknown: names that were looked for in a text only partly known.
    """

    def __init__(self, edit: Edit, vocabulary: Vocabulary | None) -> None:
        self.edit = edit
        self.rule = edit.opened()
        self.sites: list[str] = []
        self.calls: dict[str, int] = {}
        self.unknown: set[str] = set()
        self.was_for_some = self.has_changed = False
        self._vocabulary = vocabulary
        self._ids: dict[str, list[int]] = {}
        self._is_loose: set[str] = set()  # names that several ids may go by
        self._atoms = {
            axis: atoms_of(axis, target, may_be_named=axis in ("query", "key"))
            for axis in ("query", "key", "row", "step")
            if not is_all(target := getattr(edit, axis))
        }
        self._met: dict[str, set[Atom]] = {axis: set() for axis in self._atoms}
        self._most: dict[str, int] = {}
        for axis in ("query", "key"):
            for atom in self._atoms.get(axis, ()):
                if isinstance(atom, str):
                    self._learn_name(axis, atom)

    @property
    def looks_back(self) -> bool:
        """Does this edit depend on the tokens of earlier forward passes?"""
        ends = (
            end
            for axis in ("query", "key")
            for atom in self._atoms.get(axis, ())
            for end in ends_of(atom)
        )
        return "step" in self._atoms or any(end < 0 for end in ends)

    @property
    def reads(self) -> bool:
        """Does this edit depend on the tokens at all?"""
        return self.looks_back or any(
            isinstance(atom, str) for atoms in self._atoms.values() for atom in atoms
        )

    def atoms(self, axis: str) -> list[Atom]:
        """List the targets along an axis; an empty list means all of it."""
        return list(self._atoms.get(axis, ()))

    def rows(self, batch: int) -> list[int] | None:
        """Return the rows meant, or None for all of them."""
        if "row" not in self._atoms:
            return None
        found: list[int] = []
        for atom in self._atoms["row"]:
            low, high = bounds(atom, batch)
            rows = range(max(low, 0), min(high, batch - 1) + 1)
            if rows:
                self._met["row"].add(atom)
            found += rows
        self._most["row"] = max(batch, self._most.get("row", 0))
        return list(dict.fromkeys(found))

    def positions(
        self, axis: str, positions: Tensor, ends: Tensor, text: Text | None, what: str
    ) -> Tensor | None:
        """Say which positions are meant: (rows or 1, queries or 1, positions), or None for all.

        Args:
            axis: "query" or "key".
            positions: their numbers, (positions,).
            ends: where the text ended when the query was read first, (queries or 1, 1) for keys,
                (positions,) for queries; negative numbers count from there.
            text: what was read, for names.
            what: the site, for messages.
        """
        if axis not in self._atoms:
            return None
        chosen = torch.zeros((1, 1, len(positions)), dtype=torch.bool, device=positions.device)
        for atom in self._atoms[axis]:
            if isinstance(atom, str):
                here = self._named(axis, atom, text, what)[:, None].index_select(-1, positions)
            else:
                low, high = (
                    end if end is None or end >= 0 else ends + end
                    for end in ((atom, atom) if isinstance(atom, int) else atom)
                )
                here = torch.ones_like(chosen)
                here = here if low is None else here & (positions >= low)
                here = here if high is None else here & (positions <= high)
            if bool(here.any()):
                self._met[axis].add(atom)
            chosen = chosen | here
        self._most[axis] = max(
            int(positions[-1]) + 1 if len(positions) else 0, self._most.get(axis, 0)
        )
        return chosen

    def steps(self, positions: Tensor, text: Text | None, what: str) -> Tensor | None:
        """Say which positions belong to the steps meant, (1, 1, positions), or None for all."""
        if "step" not in self._atoms:
            return None
        if text is None:
            raise WrongUsage(
                f"{self.edit!r}: {what} belongs to no stack that says what it reads; leave "
                "step= out."
            )
        steps = torch.tensor(text.steps, device=positions.device).index_select(0, positions)
        return self.passes(steps, text)[None, None]

    def passes(self, steps: Tensor, text: Text) -> Tensor:
        """Which of these forward passes, numbered from 0, are targets? -1 came before the edit."""
        chosen = torch.zeros_like(steps, dtype=torch.bool)
        for atom in self._atoms["step"]:
            low, high = bounds(atom, text.number + 2)
            here = (steps + 1 >= max(low, 1)) & (steps + 1 <= high)
            if bool(here.any()):
                self._met["step"].add(atom)
            chosen = chosen | here
        self._most["step"] = max(text.number + 1, self._most.get("step", 0))
        return chosen

    def was_applied(self, before: Tensor, after: Tensor, chosen: Tensor | None) -> None:
        """Note that the edit was applied, and whether it changed a value."""
        self.was_for_some = True
        if self.edit.NOTHING and not self.has_changed:
            self.has_changed = self.edit.has_changed(before, after, chosen)

    def failure(self) -> str | None:
        """Say what has not landed, or None where all has."""
        if not self.calls:
            return (
                f"{self.edit!r} landed nowhere: no forward pass came by {' or '.join(self.sites)}."
            )
        missed = [site for site in self.sites if site not in self.calls]
        if missed:
            return (
                f"{self.edit!r} landed only in part: no forward pass came by {' or '.join(missed)}."
            )
        for axis in ("step", "row", "query", "key"):
            for atom in self._atoms.get(axis, ()):
                if self._is_beyond(axis, atom):
                    return f"{self.edit!r} landed only in part: {self._missing(axis, atom)}"
                if atom not in self._met[axis]:
                    return f"{self.edit!r} landed nowhere: {self._missing(axis, atom)}"
        if not self.was_for_some:
            return (
                f"{self.edit!r} landed nowhere: its targets never came together in one forward "
                "pass."
            )
        if self.edit.NOTHING and not self.has_changed:
            return f"{self.edit!r} changed nothing: {self.edit.NOTHING}"
        return None

    def _is_beyond(self, axis: str, atom: Atom) -> bool:
        """Does a span of rows or positions reach beyond every input? (Steps may be fewer.)"""
        most = self._most.get(axis, 0)
        if axis == "step" or isinstance(atom, str) or atom not in self._met[axis]:
            return False
        return any(not -most <= end < most for end in ends_of(atom))

    def _missing(self, axis: str, atom: Atom) -> str:
        most = self._most.get(axis, 0)
        if isinstance(atom, str):
            return (
                f"the token {atom!r} was never among the "
                f"{'queries' if axis == 'query' else 'keys'}."
            )
        shown = f"{axis}={atom!r}" if isinstance(atom, int) else f"{axis}='{atom}'"
        there = {
            "step": f"there were {most} forward passes (steps 1 to {most})",
            "row": f"the largest batch had {most} rows (0 to {most - 1})",
        }.get(axis, f"the longest input had {most} positions (0 to {most - 1})")
        return f"{shown} was never reached; {there}."

    def _named(self, axis: str, name: str, text: Text | None, what: str) -> Tensor:
        """Find a token by name: (rows, positions), True where it is."""
        if text is None:
            raise WrongUsage(
                f"{self.edit!r}: {what} belongs to no stack that says what it reads; give "
                "positions."
            )
        if text.tokens.is_floating_point():
            raise WrongUsage(
                f"{self.edit!r}: this model reads vectors, which have no names; give positions."
            )
        if bool((text.tokens < 0).any()):
            self.unknown.add(name)
        # a token of several parts goes by all their names, or by any
        if text.tokens.dim() == 3 and "+" in name:
            parts = name.split("+")
            if len(parts) == text.tokens.shape[-1]:
                each = [
                    self._is_named(text.tokens[..., place], part)
                    for place, part in enumerate(parts)
                ]
                return torch.stack(each).all(0)
        here = self._is_named(text.tokens, name)
        return here.any(-1) if here.dim() == 3 else here

    def _is_named(self, tokens: Tensor, name: str) -> Tensor:
        ids = self._ids.get(name)
        # of a vocabulary that is a function only the names of what was read are known
        if ids is None:
            here = {token for token in tokens.flatten().tolist() if token >= 0}
            ids = [token for token in here if name_of(token, self._vocabulary) == name]
        if name in self._is_loose:
            there = [token for token in ids if bool((tokens == token).any())]
            if len(there) > 1:
                names = [name_of(token, self._vocabulary) for token in there]
                raise WrongUsage(
                    f"{self.edit!r}: {name!r} may be {' or '.join(map(repr, names))} here; write "
                    "what begins with a blank as it stands, or give positions."
                )
        return torch.isin(tokens, torch.tensor(ids, dtype=tokens.dtype, device=tokens.device))

    def _learn_name(self, axis: str, name: str) -> None:
        """Look a name up in the vocabulary."""
        if self._vocabulary is None:
            raise WrongUsage(
                f"{self.edit!r}: {axis}={name!r} is a token's name; say the names with "
                "edit(..., vocabulary=names)."
            )
        if callable(self._vocabulary):
            return
        if isinstance(self._vocabulary, TokenNames):  # which knows what may be meant
            self._ids[name] = self._vocabulary.ids_of(name)
            self._is_loose.add(name)
            if not self._ids[name]:
                raise WrongUsage(f"{self.edit!r}: {self._vocabulary.missing(name)}.")
            return
        pairs = (
            self._vocabulary.items()
            if isinstance(self._vocabulary, Mapping)
            else enumerate(self._vocabulary)
        )
        names: dict[str, list[int]] = {}
        for token, each in pairs:
            names.setdefault(str(each), []).append(token)
        for each in (name, *name.split("+")):
            self._ids[each] = names.get(each, [])
        if not self._ids[name] and not all(self._ids[each] for each in name.split("+")):
            close = [each for each in names if each.casefold() == name.casefold()]
            close = close or difflib.get_close_matches(name, names, n=1)
            guess = (
                f"did you mean {close[0]!r}?"
                if close
                else f"the vocabulary begins {', '.join([*names][:10])}."
            )
            raise WrongUsage(f"{self.edit!r}: no token is called {name!r}; {guess}")
