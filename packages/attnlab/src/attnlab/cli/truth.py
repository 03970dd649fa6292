"""attnlab truth: circuits in which the role of each head is known, and methods scored on them."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from attnlab.cli.options import AsJson
from attnlab.cli.output_folder import check_new_folder
from attnlab.cli.progress import counting
from attnlab.cli.terminal import note, print_json, print_rows, say, show_table
from attnlab.errors import CouldNotRun

if TYPE_CHECKING:
    from attnlab.core.stats import Interval
    from attnlab.truth import Suite
    from attnlab.truth.score import MethodSummary

truth = App(name="truth", help="Circuits of known ground truth, and methods scored against them.")

_YES = {True: "yes", False: "no"}


@truth.command(name="list")
def list_circuits(*, ladder: str | None = None, as_json: AsJson = False) -> int:
    """List the circuits: their ladder, inputs, heads and decoys.

    Parameters
    ----------
    ladder
        One ladder alone: content, position, counting, composition or encoder-decoder.
    as_json
        Print the list as JSON.
    """
    from attnlab.truth import build_circuit, circuit_names

    rows = []
    for circuit in map(build_circuit, circuit_names(ladder)):
        decoys = [circuit.kinds[head] for head in circuit.heads]
        named = ", ".join(kind for kind in decoys if kind != "program")
        facts = (circuit.name, circuit.ladder, circuit.num_inputs, len(circuit.heads), named)
        rows.append(facts)
    columns = ("circuit", "ladder", "inputs", "heads", "decoys")
    if as_json:
        print_rows(columns, rows)
        return 0
    show_table(columns, [list(map(str, row)) for row in rows])
    return 0


@truth.command
def show(circuit: str, /, *, dial: str | None = None, as_json: AsJson = False) -> int:
    """Show the labels of a circuit, as ablation over its whole domain proves them.

    Parameters
    ----------
    circuit
        Its name; attnlab truth list has them.
    dial
        A change before the proof: rotate, compress, noise or norm.
    as_json
        Print the labels as JSON.
    """
    from attnlab.truth import build_circuit, label, turned

    built = build_circuit(circuit)
    labels = label(built)
    if dial is not None:
        built, labels = turned(built, dial, labels)
    shares = labels.by_input.sum(0).tolist()
    rows = []
    for unit, used, needed, inputs in zip(
        labels.units, labels.used, labels.needed, shares, strict=True
    ):
        kind = built.kinds.get(unit, "feed-forward")
        rows.append([unit, kind, _YES[used], _YES[needed], f"{inputs:,}"])
    edges = labels.needed_edges
    columns = ("unit", "kind", "used", "needed", "inputs it changes alone")
    if as_json:
        units = [dict(zip(columns, row, strict=True)) for row in rows]
        print_json({"circuit": circuit, "dial": dial, "units": units, "edges": edges})
        return 0
    words = f"{built.num_inputs} inputs, {labels.sets:,} sets of cuts"
    say(f"{circuit} ({built.ladder}): {words}")
    show_table(columns, rows)
    say(f"{len(edges)} of {len(labels.edges)} edges are needed")
    for sender, receiver in edges:
        say(f"  {sender} → {receiver}", is_quiet=True)
    return 0


@truth.command
def write(
    folder: Path, /, *, ladder: str | None = None, dial: str | None = None, as_json: AsJson = False
) -> int:
    """Write the circuits and their labels: safetensors, JSON, and two scripts for NumPy alone.

    Parameters
    ----------
    folder
        The folder to create.
    ladder
        One ladder alone.
    dial
        A change before the proof: rotate, compress, noise or norm.
    as_json
        Print how many circuits were written, their size and what was left out as JSON.
    """
    from attnlab.truth import write_suite

    check_new_folder(folder)
    suite = _suite(ladder, dial, is_quiet=as_json)
    size = write_suite(folder, suite.circuits)
    if as_json:
        print_json({"circuits": len(suite.circuits), "bytes": size, "refused": suite.refused})
        return 0
    say(f"{len(suite.circuits)} circuits, {size:,} bytes   {folder}")
    say(f"check   python {folder / 'relabel.py'}", is_quiet=True)
    return 0


@truth.command
def score(
    method: str,
    /,
    *,
    ladder: str | None = None,
    dial: str | None = None,
    out: Path | None = None,
    as_json: AsJson = False,
) -> int:
    """Score a method: how well it separates used heads from unused ones.

    Parameters
    ----------
    method
        A shipped method; all of them (all); or your own function (model, inputs, answers) ->
        {head: number}, as file.py:function or package.module:function. Baselines that look at no
        model are shown beside it.
    ladder
        One ladder alone: content, position, counting, composition or encoder-decoder.
    dial
        A change of every circuit before the proof: rotate, compress, noise or norm.
    out
        A folder to create, for the table as JSON and the figure.
    as_json
        Print the table as JSON.
    """
    from attnlab.truth.methods import BASELINES, METHODS, find_method
    from attnlab.truth.score import score as score_heads
    from attnlab.truth.score import summarize_scores

    check_new_folder(out)
    names = list(METHODS) if method == "all" else [method]
    names = list(dict.fromkeys([*names, *BASELINES]))
    methods = list(map(find_method, names))
    suite = _suite(ladder, dial, is_quiet=as_json)
    rows = []
    with counting("methods", is_quiet=as_json) as tell:
        for name, function in zip(names, methods, strict=True):
            scored = score_heads(name, function, suite.circuits)
            rows.append(summarize_scores(name, scored, ladder or "all"))
            tell(len(rows), len(methods))
    table = _table(rows, suite, is_all=method == "all")
    if out is not None:
        _write(rows, table, out)
    if as_json:
        print_json({"dial": dial, **table})
        return 0
    _show(rows)
    if out is not None:
        say(f"table and figure   {out}")
    return 0


@truth.command
def estimates(*, ladder: str | None = None, as_json: AsJson = False) -> int:
    """Score estimates of patching: how far off they are, and whether their intervals hold.

    Parameters
    ----------
    ladder
        One ladder alone: content, position, counting, composition or encoder-decoder.
    as_json
        Print the table as JSON.
    """
    from attnlab.truth.estimates import ESTIMATES, INPUTS, score_estimates

    suite = _suite(ladder, None, is_quiet=as_json)
    results = []
    with counting("methods", is_quiet=as_json) as tell:
        for name in ESTIMATES:
            results.append(score_estimates(name, suite.circuits))
            tell(len(results), len(ESTIMATES))
    if as_json:
        print_json([result.to_mapping() for result in results])
        return 0
    rows = []
    for figure in ("bias", "error", "coverage", "power", "false", "insertion", "deletion"):
        rows.append([figure, *(_interval(getattr(result, figure)) for result in results)])
    rows.append(["seconds", *(f"{result.seconds:.1f}" for result in results)])
    show_table(["", *ESTIMATES], rows)
    say(
        "Effects of patching a head: 0 nothing, 1 all that the runs differ by. Bias and error: "
        "estimate less truth over the whole domain, signed and absolute. Of the 95 % intervals "
        f"from {INPUTS} inputs: coverage, how many hold a true effect that is not 0; power, how "
        "many of used heads leave out 0; false, how many of heads without effect do. Insertion "
        "and deletion: the areas under the curves of heads patched together, best first.",
        is_quiet=True,
    )
    return 0


def _suite(ladder: str | None, dial: str | None, *, is_quiet: bool) -> "Suite":
    """Make the suite with its progress, and name the circuits that a dial leaves out."""
    from attnlab.truth import make_suite

    with counting("circuits", is_quiet=is_quiet) as tell:
        suite = make_suite(ladder, dial, tell)
    for reason in suite.refused:
        note(f"left out: {reason}")
    if not suite.circuits:
        raise CouldNotRun(f"no circuit bears {dial}.")
    return suite


def _table(rows: "list[MethodSummary]", suite: "Suite", *, is_all: bool) -> dict[str, object]:
    """Return the scores for JSON; baselines are methods too where all are scored."""
    from attnlab.truth.methods import BASELINES

    methods, baselines = [], []
    for row in rows:
        is_baseline = row.method in BASELINES
        if is_all or not is_baseline:
            methods.append(row.to_mapping())
        if is_baseline:
            baselines.append(row.to_mapping())
    return {"refused": suite.refused, "methods": methods, "baselines": baselines}


def _show(rows: "list[MethodSummary]") -> None:
    """Print the table in two parts, which a narrow terminal shows too."""
    from attnlab.truth.methods import BASELINES
    from attnlab.truth.score import DECOYS

    whole = [["method", "AUROC", "precision", "unused 0", "used 0", "seconds"]]
    decoys = [["method", *DECOYS]]
    for row in rows:
        figures = [_interval(row.auroc), _interval(row.precision, has_ends=False)]
        figures += [_share(row.unused_at_zero), _share(row.used_at_zero), f"{row.seconds:.1f}"]
        whole.append([row.method, *figures])
        against = [_interval(row.decoys.get(kind), has_ends=False) for kind in DECOYS]
        decoys.append([row.method, *against])
    show_table(whole[0], whole[1:])
    show_table(decoys[0], decoys[1:])
    say(
        f"{rows[0].circuits} of {rows[0].all} circuits have used and unused heads in one "
        "attention: AUROC and average precision are means over these, of heads of the same "
        f"attention. The last {len(BASELINES)} methods look at no model. Sharp, random, "
        "suppressor: AUROC against these decoys alone; twin, backup: AUROC of these heads alone, "
        "which are used. 0: the share of heads whose score is below a thousandth of the circuit's "
        "largest.",
        is_quiet=True,
    )


def _interval(interval: "Interval | None", *, has_ends: bool = True) -> str:
    if interval is None or math.isnan(interval.value):
        return "-"
    if not has_ends:
        return f"{interval.value:.2f}"
    return f"{interval.value:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def _share(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.0%}"


def _write(rows: "list[MethodSummary]", table: Mapping[str, object], out: Path) -> None:
    """Write the table as JSON and the figure as PNG and SVG."""
    from attnlab.core.store import make_folder, write_bytes, write_json
    from attnlab.truth.score import figure_files

    make_folder(out)
    write_json(out / "scores.json", table)
    for name, content in figure_files(rows).items():
        write_bytes(out / name, content)
