"""Populations in blocks: the same members as together, whole or said not to be, resumed, read by
column."""

import dataclasses
import pickle
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from ray_cluster import Cluster

import attnlab
from attnlab.cli import main
from attnlab.core.row_files import pack_columns, read_columns
from attnlab.core.store import pack, read_tensors
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.experiments import executors
from attnlab.experiments.executors import UnitFailure
from attnlab.experiments.population import (
    block_training,
    blocks,
    fit,
    is_member,
    open_population,
    population_heads,
    training,
)
from attnlab.experiments.population.block_training import estimate_population
from attnlab.experiments.population.fit import plan_population
from attnlab.experiments.population.seed_maps import seed_maps
from attnlab.experiments.resumption import resume
from tests.train.tiny import Watcher

pyarrow = pytest.importorskip("pyarrow", reason="blocks need it; pip install 'attnlab[text]'")

SEEDS = range(5, 15)  # in blocks of four: two whole ones, and one of two
QUICK = {"recipe": "fast", "steps": 20, "evaluate_every": 10, "layout": "vmap"}


def make_small(monkeypatch):
    monkeypatch.setattr(training, "BLOCK", 4)
    monkeypatch.setattr(training, "MOST_TOGETHER", 8)
    monkeypatch.setattr(fit, "MOST_TOGETHER", 8)
    # Drawing takes longer than all else; test_populations.py looks at the figures.
    monkeypatch.setattr("attnlab.draw.figures.section_figures", lambda content: {})


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    make_small(monkeypatch)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Ten sorters in blocks of four, and what was told meanwhile."""
    folder, watching = tmp_path_factory.mktemp("runs") / "blocks", Watcher()
    with pytest.MonkeyPatch.context() as monkeypatch:
        make_small(monkeypatch)
        attnlab.train_population("sorting", SEEDS, out=folder, observer=watching, **QUICK)
    return folder, watching


@pytest.fixture
def stored(made):
    return open_population(made[0])


@pytest.fixture
def copied(made, tmp_path):
    return shutil.copytree(made[0], tmp_path / "copy")


@pytest.fixture(scope="module")
def together():
    """The same ten sorters, trained as one."""
    return attnlab.train_population("sorting", SEEDS, **QUICK)


def contents(folder):
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def unfinished(folder):
    (folder / "claims.json").unlink()
    return folder


def resumed(folder):
    watching = Watcher()
    resume(folder, observer=watching)
    return contents(folder), watching.told


def test_a_block_is_two_files_and_a_seed_has_none(made):
    folder, watching = made
    names = {f"{number:05}.{kind}" for number in range(3) for kind in ("parquet", "safetensors")}
    assert {path.name for path in (folder / "blocks").iterdir()} == names
    assert not {"population.safetensors", "table.csv", "5"} & {
        each.name for each in folder.iterdir()
    }
    assert list((folder / "checkpoints").iterdir()) == []
    assert [step for step in watching.steps if step[1] == 10][-1] == (10, 10)
    config = attnlab.open(folder).description["population"]
    assert (config["seeds"], config["block"]) == ({"first": 5, "count": 10}, 4)


def test_members_in_blocks_are_those_trained_together_but_for_rounding(stored, together):
    assert (list(stored.seeds), len(stored), len(stored.blocks)) == (list(SEEDS), 10, 3)
    for name in ("loss", *together.figures):
        for (step, found), (same, expected) in zip(
            stored.by_step(name), together.by_step(name), strict=True
        ):
            assert step == same
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    assert stored.solved_at == together.solved_at
    for index in range(10):
        for name, value in stored.weights_of(index).items():
            torch.testing.assert_close(
                value, together.weights_of(index)[name], rtol=1e-3, atol=1e-4
            )
    facts = [population.report.content.facts for population in (stored, together)]
    assert [name for name, _ in facts[0]] == [name for name, _ in facts[1]]
    for one, other in zip(*(each.report.metrics for each in (stored, together)), strict=True):
        assert one == pytest.approx(other, rel=1e-4)


def test_a_block_is_read_as_it_was_trained(stored):
    work = dataclasses.replace(_work(stored), number=2, seeds=SEEDS[8:])
    with block_training.computing_as({"threads": 1, "matrix_path": work.matrix_path}):
        trained = work.train()
    opened = stored.blocks[2]
    for member in range(2):
        assert opened.history.lines(member) == trained.history.lines(member)
        assert opened.history.best(member) == trained.history.best(member)
    assert {*opened.columns} == {*trained.columns}
    for name, value in trained.columns.items():
        same = opened.columns[name]
        assert same == value if isinstance(value, list) else torch.equal(same, value), name
    for name, value in trained.weights.items():
        assert torch.equal(opened.weights[name], value)


def _work(stored):
    plan = plan_population("sorting", SEEDS, **QUICK)
    return block_training._work_of(plan, stored.description, stored.blocks, 0)


def test_a_seed_opens_by_its_number_and_by_its_block_and_row(made, stored):
    folder = made[0]
    prompt = torch.tensor([[3, 1, 2, 0]])
    for block, row, seed in ((0, 0, 5), (1, 3, 12), (2, 1, 14)):
        address = folder / str(block) / str(row)
        assert is_member(folder / str(seed))
        assert is_member(address)
        expected = stored.model(seed)(prompt)
        for path in (folder / str(seed), address):
            assert torch.equal(attnlab.load(path)(prompt), expected)
            assert attnlab.open(path).config["seed"] == seed
        assert stored.index(f"{block}/{row}") == stored.index(seed) == seed - 5
    for wrong in ("0/4", "2/2", "3/0", "4", "15", "1/x"):
        with pytest.raises(WrongUsage, match=r"no member '.*'; it has the seeds 5 to 14"):
            stored.model(wrong)
    for wrong in ("0/4", "2/2"):
        with pytest.raises(WrongUsage, match=f"no member {wrong}; its blocks of 4 end with 2/1"):
            attnlab.load(folder / wrong)


def test_the_table_of_a_block_has_a_row_for_each_seed_and_the_steps_as_lists(made, stored):
    rows = pyarrow.parquet.read_table(made[0] / "blocks" / "00001.parquet").to_pylist()
    assert [row["seed"] for row in rows] == [9, 10, 11, 12]
    best = stored.trained(stored.index(10))
    assert rows[1]["best_step"] == best.best_step
    assert rows[1]["accuracy"] == best.evaluation.figures["accuracy"]
    assert rows[1]["accuracy_by_step"] == stored.table("accuracy")[5].tolist()
    assert rows[1]["loss_by_step"] == [float(losses[5]) for _, losses in stored.by_step("loss")]


def test_steps_are_read_some_at_a_time(stored, monkeypatch):
    whole = list(stored.by_step("loss"))
    monkeypatch.setattr("attnlab.experiments.population.population._MOST_NUMBERS", 10)
    for (step, some), (same, values) in zip(stored.by_step("loss"), whole, strict=True):
        assert step == same
        assert torch.equal(some, values)
    with pytest.raises(WrongUsage, match="did you mean 'loss'"):
        list(stored.by_step("los"))


# ---- what is torn, swapped or missing


def test_torn_and_missing_blocks_are_said_and_trained_again_to_the_same_bytes(copied):
    before = contents(copied)
    first, second = (copied / "blocks" / f"0000{number}.parquet" for number in (0, 1))
    second.write_bytes(second.read_bytes()[:-40])
    with pytest.raises(CouldNotRun, match=r"block 1 .* damaged, the seeds 9 to 12: .*alone"):
        str(open_population(copied))
    first.unlink()
    population = open_population(copied)
    for read in (str, population.make_report, lambda each: list(each.by_step("loss"))):
        with pytest.raises(CouldNotRun, match=r"block 0 .* is missing, the seeds 5 to 8: .*alone"):
            read(population)
    after, told = resumed(unfinished(copied))
    assert told == ["Block 1 is damaged: it is trained again."]
    check_same(after, before)


def check_same(found, expected):
    """The same files, but for the folder's own name, which its report tells."""
    assert found.keys() == expected.keys()
    different = {name for name in found if found[name] != expected[name]}
    assert different <= {"report.json", "report.html"}


def test_a_flipped_bit_changes_no_number_unnoticed(made, tmp_path):
    whole, file = made[0] / "blocks" / "00001.parquet", tmp_path / "flipped.parquet"
    expected, noticed = str(read_columns(whole)), 0
    places = range(7, whole.stat().st_size, 97)
    for place in places:
        file.write_bytes(flipped(whole, place))
        try:
            assert str(read_columns(file)) == expected, place
        except CouldNotRun:
            noticed += 1
    assert noticed > len(places) / 2  # the others are in what nothing reads, such as statistics


def flipped(file, place):
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    return bytes(content)


def test_torn_weights_are_said(copied):
    file = copied / "blocks" / "00002.safetensors"
    file.write_bytes(flipped(file, -3))
    population = open_population(copied)
    assert len(population.solved_at) == 10  # no weights were read
    with pytest.raises(CouldNotRun, match=r"block 2 .* damaged, the seeds 13 to 14"):
        population.model(13)
    assert population.model(12) is not None


def test_swapped_blocks_and_rows_of_two_blocks_are_said(copied):
    first, second = (copied / "blocks" / f"0000{number}.parquet" for number in (0, 1))
    swap_rows(first, second)
    with pytest.raises(CouldNotRun, match=r"block 0 .*its rows are those of other seeds"):
        str(open_population(copied))
    swap_rows(first, second)
    assert "of 10 solved" in str(open_population(copied))
    swap_files(first, second)
    with pytest.raises(CouldNotRun, match=r"block 0 .*its rows are those of other seeds"):
        str(open_population(copied))
    swap_files(first, second)
    swap_files(first.with_suffix(".safetensors"), second.with_suffix(".safetensors"))
    with pytest.raises(CouldNotRun, match=r"block 1 .*not the one that was written"):
        open_population(copied).model(9)
    file = copied / "blocks" / "00002.safetensors"
    file.write_bytes(pack({name: value.roll(1, 0) for name, value in read_tensors(file).items()}))
    with pytest.raises(CouldNotRun, match=r"block 2 .*not the one that was written"):
        open_population(copied).model(14)


def swap_rows(one, other):
    """Swap the first rows of two blocks, as a person could who writes good files."""
    (columns, facts), (others, other_facts) = read_columns(one), read_columns(other)
    for name, values in columns.items():
        first = values[0].clone() if isinstance(values, torch.Tensor) else values[0]
        values[0], others[name][0] = others[name][0], first
    one.write_bytes(pack_columns(columns, facts))
    other.write_bytes(pack_columns(others, other_facts))


def swap_files(one, other):
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(kept)


# ---- stopped, and computed elsewhere


def test_a_population_that_is_killed_goes_on_at_its_block_to_the_same_bytes(
    made, tmp_path, monkeypatch
):
    folder, write = tmp_path / "run", blocks.StoredBlocks.write

    def write_half(self, files):
        if "00001.parquet" not in files:
            return write(self, files)
        write(self, {name: files[name] for name in files if name.endswith("safetensors")})
        raise KeyboardInterrupt

    monkeypatch.setattr(blocks.StoredBlocks, "write", write_half)
    with pytest.raises(KeyboardInterrupt):
        attnlab.train_population("sorting", SEEDS, out=folder, **QUICK)
    with pytest.raises(CouldNotRun, match="unfinished"):
        attnlab.open(folder)
    monkeypatch.setattr(blocks.StoredBlocks, "write", write)
    after, _ = resumed(folder)
    check_same(after | {"config.json": b""}, contents(made[0]) | {"config.json": b""})


def test_a_block_that_cannot_be_trained_is_said_and_the_others_are_kept(tmp_path, monkeypatch):
    def failing(self, units, observer=None):
        for unit in units:
            failure = UnitFailure(unit.number, CouldNotRun("too little memory."))
            yield failure if unit.number == 1 else unit.compute(observer)

    folder, even = tmp_path / "run", [*range(0, 20, 2)]  # a list, as they are not in a row
    with monkeypatch.context() as patch:
        patch.setattr(executors.Executor, "compute", failing)
        with pytest.raises(CouldNotRun, match="1 of 3 blocks could not be trained: too little mem"):
            attnlab.train_population("sorting", even, out=folder, **QUICK)
    kept = {path: path.stat().st_mtime_ns for path in (folder / "blocks").iterdir()}
    assert len(kept) == 4
    assert resume(folder).description["population"]["seeds"] == even
    assert attnlab.open(folder / "2" / "1").config["seed"] == 18
    assert kept.items() < {p: p.stat().st_mtime_ns for p in (folder / "blocks").iterdir()}.items()


def test_a_machine_with_another_torch_trains_nothing(stored):
    work = dataclasses.replace(_work(stored), versions={"attnlab": "0.1.0", "torch": "1.0"})
    failure = work.compute()
    assert isinstance(failure, UnitFailure)
    assert "the machine that asks 1.0: the numbers would not be the same" in str(failure.error)


def test_blocks_from_another_machine_in_another_order_have_the_same_bytes(
    made, tmp_path, monkeypatch
):
    def sent(self, units, observer=None):
        for unit in reversed(units):
            answer = executors.compute(pickle.loads(pickle.dumps(unit)))
            yield pickle.loads(pickle.dumps(answer))

    monkeypatch.setattr(executors.Executor, "compute", sent)
    monkeypatch.setattr(executors.Executor, "is_elsewhere", True)
    attnlab.train_population("sorting", SEEDS, out=tmp_path / "run", **QUICK)
    assert contents(tmp_path / "run" / "blocks") == contents(made[0] / "blocks")


def run_elsewhere(folder, where, monkeypatch):
    """Train the ten sorters by the command, which asks for more, and return their blocks."""
    monkeypatch.setattr("attnlab.cli.runs._check_blocks", lambda *_: None)
    command = f"run sorting --seeds 10 --seed 5 --layout vmap --out {folder} {where}"
    settings = [f"{name}={value}" for name, value in QUICK.items() if name != "layout"]
    assert main([*command.split(), "--set", *settings]) == 1  # none sorts after 20 steps
    return contents(folder / "blocks")


@pytest.mark.slow
@pytest.mark.parametrize("where", ["--workers 2", "--engine slurm --address here"])
def test_blocks_have_the_same_bytes_wherever_they_are_trained(where, made, tmp_path, monkeypatch):
    if "slurm" in where:
        pytest.importorskip("submitit", reason="jobs need it; pip install 'attnlab[slurm]'")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert run_elsewhere(tmp_path / "run", where, monkeypatch) == contents(made[0] / "blocks")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_blocks_trained_on_a_ray_cluster_have_the_same_bytes(made, tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="a cluster needs it; pip install 'attnlab[ray]'")
    monkeypatch.setattr(executors, "_PATIENCE", 240.0)  # on a busy machine
    with Cluster(1) as cluster:
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        where = f"--engine ray --address {cluster.address}"
        assert run_elsewhere(tmp_path / "run", where, monkeypatch) == contents(made[0] / "blocks")


# ---- members that diverge or end early


def test_a_block_in_which_every_member_diverges_takes_nothing_from_the_others(
    stored, tmp_path, break_seeds
):
    break_seeds((6, 13, 14), 12)
    folder = tmp_path / "run"
    population = attnlab.train_population("sorting", SEEDS, out=folder, **QUICK)
    assert list(population.faults) == ["6", "13", "14"]
    assert "step 13" in population.faults["6"]
    losses, expected = (dict(each.by_step("loss"))[20] for each in (population, stored))
    known = torch.isfinite(losses)
    assert known.tolist() == [seed not in (6, 13, 14) for seed in SEEDS]
    torch.testing.assert_close(losses[known], expected[known], rtol=1e-4, atol=1e-6)
    assert population.solved.shape == (10, 2)
    with pytest.raises(CouldNotRun, match="seed 13 was no longer finite"):
        population.member(13)
    assert population.blocks[0].history.faults[1] == population.faults["6"]
    break_seeds(SEEDS, 5)
    with pytest.raises(CouldNotRun, match="no training is finite"):
        attnlab.train_population("sorting", SEEDS, out=tmp_path / "none", **QUICK)


def test_a_block_that_ended_early_is_lengthened():
    flags = torch.tensor([[False, True], [False, False]])
    assert blocks.padded(flags, 4).tolist() == [[False, True, True, True], [False] * 4]
    assert blocks.padded(torch.empty(2, 0), 2).isnan().all()
    numbers = blocks.padded(torch.tensor([[1.0]]), 2)
    assert (numbers[0, 0], bool(numbers[0, 1].isnan())) == (1.0, True)


# ---- what is asked for, and shown


def test_what_blocks_cannot_do_is_refused(stored, tmp_path):
    with pytest.raises(WrongUsage, match="kept in a folder, in blocks of"):
        attnlab.train_population("sorting", SEEDS, **QUICK)
    for where in ({"workers": 2}, {"engine": "ray", "address": "auto"}):
        with pytest.raises(WrongUsage, match="share the blocks of more than 8 seeds; got 4"):
            attnlab.train_population("sorting", range(4), out=tmp_path / "run", **where, **QUICK)
    with pytest.raises(WrongUsage, match="copy that folder"):
        stored.save(tmp_path / "again")
    with pytest.raises(WrongUsage, match="kept in 3 blocks"):
        _ = stored.history
    assert list(tmp_path.iterdir()) == []


def test_only_the_first_members_are_compared_and_that_is_said(stored, monkeypatch):
    monkeypatch.setattr(population_heads, "MOST_COMPARED", 6)
    monkeypatch.setattr("attnlab.experiments.population.seed_maps.MOST_COMPARED", 6)
    report = stored.make_report(stored)
    assert ["heads compared", "the first 6"] in [list(fact) for fact in report.content.facts]
    caption = report.content.section("Where heads look, over all seeds").caption
    assert caption.startswith("Mean weights of the first 6 members' heads")
    maps = seed_maps(stored)
    assert (len(maps["members"]), maps["number"]) == (6, 10)


def test_an_estimate_tells_seconds_and_bytes_of_a_block(made, monkeypatch):
    monkeypatch.setattr(block_training, "BLOCK", 4)
    monkeypatch.setattr(block_training, "_SAMPLE_SECONDS", 0)
    rate = estimate_population(plan_population("sorting", SEEDS, **QUICK))
    assert rate.seeds == 4
    assert rate.per_second == 4 / rate.seconds
    block = open_population(made[0]).blocks[0]
    numbers = [value for name, value in block.columns.items() if name.endswith("by_step")]
    numbers = [value for value in numbers if value.dtype == torch.float64]
    tensors = [*block.weights.values(), *numbers]
    rates = block.columns["learning_rate_by_step"]  # the same of all
    assert 4 * rate.num_bytes == sum(each.nbytes for each in tensors) - rates.nbytes
    clock = iter(range(100))
    fake = SimpleNamespace(perf_counter=lambda: next(clock))
    monkeypatch.setattr(block_training, "time", fake)
    plan = plan_population("sorting", SEEDS, **{**QUICK, "steps": 80, "evaluate_every": 40})
    # Told of step 40 once more after its evaluation, and of step 50: at 1, 2 and 3 seconds.
    assert estimate_population(plan).seconds == 3 + (3 - 1) / (50 - 40) * (80 - 50)
