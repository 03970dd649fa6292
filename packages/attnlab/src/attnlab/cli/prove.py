"""attnlab prove: a trained model, or each of a population, is run on every input of its task."""

from pathlib import Path
from typing import TYPE_CHECKING

from attnlab.cli.compile import check_out, folder_of_proof, show_certificate
from attnlab.cli.options import AsJson, Switch
from attnlab.cli.progress import counting
from attnlab.cli.resolve_run import find_run
from attnlab.cli.terminal import print_json, say, say_lines, show_table
from attnlab.errors import WrongUsage, typed

if TYPE_CHECKING:
    import torch

    from attnlab.experiments.proofs import PopulationProof
    from attnlab.experiments.report import Report
    from attnlab.programs import ModelProof


def prove(
    run: str,
    /,
    *,
    float64: Switch = False,
    out: Path | None = None,
    resume: Switch = False,
    as_json: AsJson = False,
) -> int:
    """Prove a trained sorter on every input, or show the first that fails.

    An answer counts only if it is right by more than rounding can change, in any order of
    summation. Exit status 0 if all is proved, 1 if an input fails or rounding may change an answer.

    Parameters
    ----------
    run
        A run folder, or the name of one in runs/: of one model, or of many seeds.
    float64
        Compute in 64 bits, with the same weights.
    out
        A folder to create: the model (of many seeds, a folder for each), its certificate, and
        check.py, which checks it again with NumPy alone. The same command goes on with a folder
        that is unfinished.
    resume
        Go on with the proof of one model that was interrupted in --out; refused where there is
        none.
    as_json
        Print the proof as JSON.
    """
    import torch

    from attnlab.experiments.folder import read_config, run_kind
    from attnlab.experiments.population import open_population, open_run_or_member
    from attnlab.experiments.proofs import prove_population

    folder = find_run(run)
    if (folder / "check.py").is_file():
        raise WrongUsage(f"{run} has its certificate; check it with: python {folder / 'check.py'}")
    check_out(out, resume=resume)
    dtype = torch.float64 if float64 else None
    config = read_config(folder)
    if config is None or run_kind(config) != "population":
        return _prove_one(run, open_run_or_member(folder), dtype, out, as_json=as_json)
    if resume:
        raise WrongUsage("--resume is for the proof of one model; this run has many.")
    with folder_of_proof(out):
        proof = prove_population(open_population(folder), dtype=dtype, out=out)
    if as_json:
        print_json(proof.to_mapping())
    else:
        _show(proof, out)
        _suggest_float64(run, list(proof.proofs.values()), out)
    return int(len(proof.proved) < len(proof.proofs))


def _prove_one(
    run: str, report: "Report", dtype: "torch.dtype | None", out: Path | None, *, as_json: bool
) -> int:
    """Prove the model of a run."""
    from attnlab.experiments.proofs import certify_run, prove_run

    with folder_of_proof(out) as state:
        with counting("inputs tried", is_quiet=as_json) as tell:
            proof = prove_run(report, dtype=dtype, progress=tell, state=state)
        if out is not None and proof.is_sure:
            certify_run(report, proof, out)
    if as_json:
        print_json(proof.to_mapping())
    else:
        say_lines(str(proof))
        show_certificate(out, is_sure=proof.is_sure)
        _suggest_float64(run, [proof], out)
    return int(not proof.is_sure)


def _suggest_float64(run: str, proofs: "list[ModelProof]", out: Path | None) -> None:
    """Print the command that decides in 64 bits what 32 bits left open."""
    if not any(proof.holds and not proof.is_sure and proof.dtype == "float32" for proof in proofs):
        return
    again = f"attnlab prove {typed(run)} --float64"
    if out is not None and not out.exists():  # nothing was proved, so nothing was written
        again += f" --out {typed(out)}"
    say(f"rounding is less in float64, so type: {again}", is_quiet=True)


def _show(population: "PopulationProof", out: Path | None) -> None:
    """Print failures, then proofs that are not sure, and the total."""
    rows = []
    for name, proof in population.proofs.items():
        if not proof.is_sure:
            words = str(
                proof.counterexample or "right, but not certified: rounding may exceed the margin"
            )
            rows.append([name, f"{proof.failures}", f"{proof.margin:.3g}", words])
    if rows:
        show_table(["seed", "failures", "margin", ""], rows)
    say(str(population))
    first = next(iter(population.proved), "")
    show_certificate(out and out / first, is_sure=bool(population.proved))
