import json
from dataclasses import replace

import pytest
import torch

import attnlab
from attnlab import seeds
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.experiments.sorting import SortingConfig, sorting_claims
from attnlab.experiments.sorting import sorter as sorting
from attnlab.models.embedding import Embedding
from attnlab.parts.heads import MultiHeadAttention
from attnlab.train.checkpoint import latest_checkpoint
from attnlab.train.observer import SilentObserver
from tests.sampling import sampled

QUICK = {"steps": 1_200, "learning_rate": 1e-2, "evaluate_every": 200}  # as of `sorter`
TINY = {"steps": 20, "evaluate_every": 10}


@pytest.fixture(scope="module")
def learned(sorter):
    return attnlab.open(sorter)


@pytest.fixture(scope="module")
def begun():
    return attnlab.run("sorting", **TINY)


def claim(report, name):
    return next(each for each in report.claims if each.name == name)


def test_it_learns_to_sort_all_27_inputs(learned):
    assert str(learned).startswith("sorting: 3 of 3 claims hold, self-checks: 1 of 1")
    assert claim(learned, "all_inputs_right").measured == "27/27"


def test_an_untrained_model_fails_its_claims(begun):
    assert not begun.passed
    assert not claim(begun, "all_inputs_right").passed
    assert not claim(begun, "loss_near_floor").passed
    assert claim(begun, "causal").passed


def test_a_model_that_sees_the_future_is_caught(monkeypatch):
    whole = MultiHeadAttention.forward
    monkeypatch.setattr(
        MultiHeadAttention, "forward", lambda self, x, *_, mask=None, **more: whole(self, x, **more)
    )
    report = attnlab.run("sorting", **{**QUICK, "steps": 300})
    assert not claim(report, "causal").passed
    assert not claim(report, "loss_not_below_floor").passed


def test_a_model_that_peeks_before_its_embedding_is_caught(monkeypatch):
    whole = Embedding.forward

    def peeking(self, tokens, offset=0):
        following = torch.cat((tokens[:, 1:], tokens[:, -1:]), 1)
        return whole(self, tokens, offset) + 1e-3 * self.tokens(following)

    monkeypatch.setattr(Embedding, "forward", peeking)
    assert not claim(attnlab.run("sorting", **TINY), "causal").passed


def test_the_loss_on_counted_rows_is_the_loss_on_the_drawn_batch():
    config = SortingConfig()
    task, model = config.sequence_task(), sorting.build_model(config, 0).double()
    (counts,) = sorting.make_sampler(task, 128, seed=0)(50, 3)
    drawn = torch.randint(27, (3, 128), generator=seeds.generator(0, "sorting", "data", 50))
    for step in range(3):
        plain = sorting_claims.exact_loss(model, task.rows(task.all_prompts())[drawn[step]])
        counted = sorting.make_loss(task, 128)(model, counts[step])
        torch.testing.assert_close(counted, plain, atol=1e-14, rtol=0)


def test_a_batch_smaller_than_the_domain_is_drawn_from_it():
    config = SortingConfig()
    task, model = config.sequence_task(), sorting.build_model(config, 0)
    (rows,) = sorting.make_sampler(task, 26, seed=0)(0, 2)
    assert rows.shape == (2, 26, 7)
    assert all(
        tuple(row) in set(map(tuple, task.rows(task.all_prompts()).tolist()))
        for row in rows[0].tolist()
    )
    torch.testing.assert_close(
        sorting.make_loss(task, 26)(model, rows[1]), sorting_claims.exact_loss(model, rows[1])
    )


def test_the_separator_is_never_an_answer():
    config = SortingConfig()
    task, model = config.sequence_task(), sorting.build_model(config, 0).eval()
    with torch.no_grad():
        model.final_norm.bias.copy_(
            100 * model.embedding.tokens.weight[0]
        )  # the model would love to say SEP
    assert int(model(task.rows(task.all_prompts())).argmax(-1).max()) == 0
    assert int(sorting_claims.answers(model, task, task.all_prompts())[0].min()) > 0


def test_a_long_row_does_not_make_the_page_huge(monkeypatch):
    monkeypatch.setattr("attnlab.experiments.sorting.report._MOST_WEIGHTS", 100_000)
    report = attnlab.run("sorting", length=40, letters=20, steps=2, most_judged=20)
    assert len(json.dumps(report.content.to_json())) < 2_400_000
    assert len(report.content.sections[0].traces) < 20
    assert len(report.content.sections[1].items) == 20


def test_a_run_folder_holds_everything_and_opens_again(learned):
    folder = learned.folder
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert names >= {
        "config.json", "claims.json", "metrics.jsonl", "model.safetensors", "report.html",
        "report.json", "figures/loss.png", "figures/loss.svg", "figures/attention.png",
        "figures/attention.svg",
    }  # fmt: skip
    assert latest_checkpoint(folder / "checkpoints" / "sorting").facts["step"] == QUICK["steps"]
    assert learned.config["seed"] == 0
    assert learned.config["settings"]["projections"] == "gated"
    assert learned.config["versions"]["torch"] == torch.__version__
    assert [line["step"] for line in learned.metrics if "accuracy" in line][-1] == QUICK["steps"]
    assert learned.html() == (folder / "report.html").read_text()
    assert isinstance(attnlab.load(folder), attnlab.Decoder)


def test_a_report_in_memory_is_saved_like_one_from_disk_and_seeds_differ(begun, tmp_path):
    made = attnlab.run("sorting", out=tmp_path / "made", **TINY)
    saved = attnlab.open(begun.save(tmp_path / "saved"))
    assert saved.claims == made.claims
    for name in ("model.safetensors", "metrics.jsonl", "report.json"):
        assert (saved.folder / name).read_bytes() == (made.folder / name).read_bytes()
    assert set(saved.figures) == set(made.figures)
    other = attnlab.run("sorting", seed=4, **TINY)
    assert other.metrics[0]["loss"] != made.metrics[0]["loss"]


def test_the_saved_model_answers_as_the_run_said(learned):
    found = attnlab.ask(learned, "cab").trace()
    assert "".join(step.choice for step in found.steps) == "abc"
    shown = next(each for each in learned.content.sections[0].traces if each.input == list("cab"))
    assert [step.choice for step in shown.steps] == list("abc")


def test_the_report_traces_all_27_inputs_with_both_heads(learned):
    traces = learned.content.sections[0].traces
    assert len({"".join(each.input) for each in traces}) == 27
    assert all(len(each.attention) == 2 for each in traces)
    assert all(len(each.steps) == 3 for each in traces)


def test_inputs_kept_out_are_in_no_batch_and_in_no_judgement_of_the_training():
    for batch_size in (128, 8):  # counts of all rows, and rows
        config = SortingConfig(holdout=0.25, batch_size=batch_size)
        trained, held_out = ({tuple(row) for row in part.tolist()} for part in config.split())
        assert (len(trained), len(held_out), len(trained | held_out)) == (20, 7, 27)
        (drawn,) = sorting.problem([config], [0]).members[0].sample(0, 50)
        if batch_size == 128:
            assert drawn.shape == (50, 20)
        else:
            assert {tuple(row[:3]) for row in drawn.flatten(0, 1).tolist()} == trained
    watched = sorting_claims.evaluation_prompts(config, 2_000, torch.Generator())[0]
    assert {tuple(row) for row in watched.tolist()} == trained


def test_inputs_kept_out_are_claimed_by_themselves_with_their_interval():
    report = attnlab.run("sorting", holdout=0.25, **TINY)
    assert claim(report, "all_inputs_right").statement.startswith(
        "every one of the 20 inputs among those trained on"
    )
    assert claim(report, "all_inputs_right").bound == "20/20"
    held_out = claim(report, "most_held_out_right")
    assert held_out.measured.startswith("0/7, 0% (0% to 35%)")
    assert held_out.passed is False
    assert (
        "of 20 inputs trained on are answered right; held out of training, 0 of 7"
        in report.content.subtitle
    )
    titles = [each.title for each in report.content.sections]
    assert titles[1:3] == ["All 20 inputs trained on", "All 7 inputs held out of training"]
    assert "<html" in report.html()


@pytest.mark.parametrize(("right", "passed"), [(7, True), (5, None), (0, False)])
def test_few_inputs_kept_out_can_leave_it_open(right, passed):
    config = SortingConfig(holdout=0.25)
    prompts = config.split().held_out
    expected = config.sequence_task().answer(prompts)
    answers = expected.clone()
    answers[right:] = 0
    evaluated = sorting_claims.EvaluatedInputs(prompts, answers, expected, torch.ones(7, 3), True)
    model = sorting.build_model(config, 0).eval()
    result = replace(sorting_claims.evaluate(model, config, 0), held_out=evaluated)
    claims = sorting_claims.evaluate_claims(result)
    assert {each.name: each.passed for each in claims}["most_held_out_right"] is passed


def test_a_model_too_small_for_its_letters_is_told_what_to_set():
    for settings, least in (
        ({"length": 5}, None),
        ({"length": 6}, 10),
        ({"letters": 8}, 12),
        ({"length": 6, "d_model": 12}, None),
        ({"length": 6, "task": "copy"}, None),
        ({"length": 6, "num_heads": 3}, 9),
    ):
        config = SortingConfig(**settings)
        sentence = config.too_small() or ""
        assert bool(sentence) is (least is not None)
        if sentence:
            letters = f"{config.length} of {config.letters} letters"
            assert sentence.startswith(f"d_model=6 may be too small to sort {letters}")
            assert sentence.endswith(f"set d_model={least} or more.")
            assert SortingConfig(**{**settings, "d_model": least}).too_small() is None


def test_a_model_too_small_is_told_of_before_its_training():
    told = []

    class Listening(SilentObserver):
        def step(self, step, steps, figures):
            told.append("step")

        def tell(self, sentence):
            told.append(sentence)

    attnlab.run("sorting", length=6, steps=2, most_judged=10, observer=Listening())
    assert told[0].startswith("d_model=6 may be too small")
    assert told[1:].count(told[0]) == 0


def test_the_least_loss_of_some_inputs_is_below_that_of_all():
    task = SortingConfig().sequence_task()
    assert sorting_claims.least_loss(task, task.all_prompts()) == pytest.approx(task.loss_floor)
    # two inputs that share their first letter: only which of the two it is cannot be known, ln 2
    # over 6 tokens
    assert sorting_claims.least_loss(task, torch.tensor([[1, 1, 2], [1, 2, 1]])) == pytest.approx(
        0.6931471805599453 / 6
    )


def test_a_holdout_that_keeps_nothing_out_or_cannot_be_listed_is_refused():
    with pytest.raises(WrongUsage, match=r"keep out one of the 27 inputs at least, .*; got 0\.01"):
        SortingConfig(holdout=0.01)
    with pytest.raises(WrongUsage, match="holdout needs inputs that can be listed"):
        SortingConfig(letters=26, length=12, holdout=0.1)


@pytest.mark.parametrize(
    "settings",
    sampled(
        [
            {"projections": "strict", "positions": "rotary", "batch_size": "5"},
            {"holdout": "0.5", "letters": "6", "length": "4", "most_judged": "50"},
            {"task": "add", "length": "2", "norm_place": "post", "norm": "rms", "dropout": "0.1"},
            {"positions": "alibi", "d_model": "12", "num_heads": "4", "d_ff": "24"},
            {"projections": "dense", "task": "reverse"},
            {"positions": "none", "task": "copy"},
            {"positions": "concatenated", "task": "induction", "length": "4"},
            {"positions": "sinusoidal"},
            {"letters": "26", "length": "12", "most_judged": "20"},
            {"letters": "1", "length": "1"},
            {"rank": "1", "temperature": "0.3"},
            {"norm_place": "none", "activation": "swiglu", "bias": "true", "num_layers": "2"},
        ],
        4,
    ),
    ids=lambda settings: " ".join(f"{name}={value}" for name, value in settings.items()),
)
def test_every_option_works(settings, tmp_path):
    report = attnlab.run("sorting", settings={"steps": "4", **settings}, out=tmp_path / "run")
    assert claim(report, "causal").passed
    assert attnlab.ask(report, report.reader.config.sequence_task().example).trace().steps


def test_too_little_room_is_said_before_the_training(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000, "total": 9999})()
    )
    with pytest.raises(CouldNotRun, match="only 1,000 bytes are free"):
        attnlab.run("sorting", out=tmp_path / "deep" / "run", **TINY)
    assert list(tmp_path.iterdir()) == []


def test_figures_are_left_out_where_matplotlib_is_missing(monkeypatch):
    monkeypatch.setattr("attnlab.draw.figures.is_available", lambda: False)
    report = attnlab.run("sorting", **TINY)
    assert report.figures == {}
    assert "<html" in report.html()


@pytest.mark.slow
@pytest.mark.parametrize("projections", ["gated", "strict", "dense"])
def test_most_seeds_learn_to_sort(projections):
    passed = [
        attnlab.run("sorting", seed=seed, projections=projections).passed for seed in range(10)
    ]
    assert sum(passed) >= 8
