import contextlib
import copy
import json
from dataclasses import replace

import pytest
import torch

import attnlab
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.experiments.experiment import RunContext
from attnlab.experiments.lookup import LookupConfig, fixed_table, lookup, lookup_claims, recall
from attnlab.look.heads import head_at
from attnlab.models.embedding import Embedding
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.tasks import lookup as task
from attnlab.tasks.recall import RecallTask
from attnlab.train import train_together
from attnlab.train.observer import SilentObserver
from tests.sampling import sampled

TINY = {
    "seeds": 2, "control_seeds": 1, "samples": 400, "epochs": 20, "patience": 1, "own_patience": 1,
    "learning_rate": 3e-3,
}  # fmt: skip
TABLE = {**TINY, "part": "fixed", "d_model": 16, "num_heads": 2, "d_ff": 32}
FACTS = {
    "part": "recall", "recall_seeds": 1, "recall_facts": 2, "recall_keys": 8, "recall_values": 8,
    "recall_held_out": 8, "recall_steps": 100, "recall_ramp": 5, "recall_learning_rate": 3e-3,
}  # fmt: skip
SMALL = {**FACTS, **TABLE, "part": "all"}


@pytest.fixture(scope="module")
def trainings():
    """The trainings of the whole run, by name: the weights at their end, and what was found."""
    return {}


@pytest.fixture(scope="module")
def learned(tmp_path_factory, trainings):
    train = RunContext.train

    def kept(self, name, members, *rest, **options):
        found = train(self, name, members, *rest, **options)
        trainings[name] = [copy.deepcopy(each.model.state_dict()) for each in members], found
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunContext, "train", kept)
        return attnlab.run("lookup", out=tmp_path_factory.mktemp("runs") / "lookup", **SMALL)


@pytest.fixture
def train_again(learned, trainings, monkeypatch):
    """Take the trained models of the whole run, but for the trainings that are named."""
    train = RunContext.train

    def choose(*names):
        def found(self, name, members, *rest, **options):
            if name in names:
                return train(self, name, members, *rest, **options)
            states, known = trainings[name]
            for member, state in zip(members, states, strict=True):
                member.model.load_state_dict(state)
            return known

        monkeypatch.setattr(RunContext, "train", found)

    choose()
    return choose


def claim(report, name):
    return next(each for each in report.claims if each.name == name)


def failed(report):
    """Name the experiment's own claims that failed."""
    return {each.name for each in report.claims if not each.passed}


def test_every_claim_holds_for_the_table_and_for_new_facts(learned):
    assert all(each.passed is not False for each in learned.claims)
    names = """
        decoded_right any_order_same_output any_order_same_logits control_sees_order
        loose_at_chance bound_reads_new_facts ordered_reads_new_facts
    """
    assert [each.name for each in learned.claims] == names.split()
    assert claim(learned, "decoded_right").measured == "80/80, perfect in 2 of 2 seeds"
    assert claim(learned, "any_order_same_output").measured == "0 of 17,280 differ"


def test_the_default_model_has_the_86414_parameters_of_one_layer_each():
    model = fixed_table.build_model(LookupConfig(), 0)
    assert sum(p.numel() for p in model.parameters()) == 86_414
    assert model.encoder.embedding.positions is None
    assert model.decoder.embedding.positions is not None


def test_an_untrained_model_is_not_said_to_be_right():
    report = attnlab.run("lookup", **{**TABLE, "epochs": 1, "learning_rate": 1e-6})
    assert failed(report) == {"decoded_right"}


@pytest.mark.usefixtures("train_again")
def test_an_output_that_depends_on_the_order_is_caught(monkeypatch):
    whole = EncoderDecoder.conditioned
    # The word that stands first is not read: in the test's sources that is NAME, which nobody
    # needs.
    monkeypatch.setattr(
        EncoderDecoder, "conditioned", lambda self, source, real=None: whole(self, source[:, 1:])
    )
    assert failed(attnlab.run("lookup", **TABLE)) == {"any_order_same_output"}


@pytest.mark.usefixtures("train_again")
def test_an_encoder_that_is_told_a_little_of_the_order_is_caught(monkeypatch):
    whole = Embedding.forward

    def hinting(self, tokens, offset=0):
        x = whole(self, tokens, offset)
        return (
            x
            if self.positions is not None
            else x + 1e-4 * torch.arange(x.shape[1], dtype=x.dtype).view(-1, 1)
        )

    monkeypatch.setattr(Embedding, "forward", hinting)
    assert failed(attnlab.run("lookup", **TABLE)) == {"any_order_same_logits"}


@pytest.mark.slow
def test_a_control_that_is_told_no_order_is_caught(train_again, monkeypatch):
    train_again("fixed-control")
    build = fixed_table.build_model

    def built(config, seed, index=0, **positions):
        return build(config, seed, index)

    monkeypatch.setattr(fixed_table, "build_model", built)
    assert failed(attnlab.run("lookup", **TABLE)) == {"control_sees_order"}


@pytest.mark.slow
def test_loose_words_that_are_told_an_order_are_caught(monkeypatch):
    whole = LookupConfig.recall_model_config

    def told(self):
        return replace(whole(self), encoder_positions="learned")

    monkeypatch.setattr(LookupConfig, "recall_model_config", told)
    assert failed(attnlab.run("lookup", **FACTS, variant="loose")) == {"loose_at_chance"}


@pytest.mark.slow
def test_facts_bound_to_each_others_values_are_caught(monkeypatch):
    whole = RecallTask.source

    def wrong(self, facts):
        # Another value altogether: with two facts, those exchanged could be learned.
        return whole(
            self, facts._replace(values=(facts.values + facts.values.flip(0)) % self.num_values)
        )

    monkeypatch.setattr(RecallTask, "source", wrong)
    found = attnlab.run("lookup", **FACTS, variant="bound")
    assert failed(found) == {"bound_reads_new_facts"}


@pytest.mark.slow
def test_ordered_words_without_positions_are_caught():
    assert failed(attnlab.run("lookup", **FACTS, variant="ordered")) == set()
    report = attnlab.run("lookup", **FACTS, variant="ordered", recall_positions="none")
    assert failed(report) == {"ordered_reads_new_facts"}


@pytest.mark.slow
def test_loose_words_that_never_name_a_value_shown_are_caught(monkeypatch):
    monkeypatch.setattr(recall, "named", lambda model, task, facts: 0.98)
    assert failed(attnlab.run("lookup", **FACTS, variant="loose")) == {"loose_at_chance"}


@pytest.mark.usefixtures("train_again")
def test_a_seed_that_does_not_learn_is_counted(monkeypatch):
    monkeypatch.setattr(
        lookup_claims, "is_right", lambda model, sources: torch.arange(len(sources)) > 0
    )
    report = attnlab.run("lookup", **TABLE)
    assert failed(report) == {"decoded_right"}
    assert claim(report, "decoded_right").measured == "78/80, perfect in 0 of 2 seeds"


def test_scrambling_compares_each_source_with_all_its_120_orders():
    class Counting(EncoderDecoder):
        """Says the id of the word that stands first: as order-dependent as can be."""

        def conditioned(self, source, *, real=None):
            first = torch.nn.functional.one_hot(source[:, 0], 14).double()
            return lambda tokens, cache=None: first.unsqueeze(1).expand(-1, tokens.shape[1], -1)

    model = Counting(LookupConfig().model_config())
    found = fixed_table.scramble(model)
    # Of the 120 orders of a source 24 begin with NAME, as it does itself; the other 96 begin with
    # another word.
    assert (found.outputs_changed, found.num_orders) == (72 * 96, 72 * 120)


def test_masses_are_those_of_the_formula_by_hand():
    model = fixed_table.build_model(LookupConfig(num_layers=2), 0).eval()
    with torch.no_grad():
        for layer in model.decoder.layers:
            layer.cross_attention.query.weight.zero_()
            layer.cross_attention.query.bias.zero_()
    masses = fixed_table.measure_masses(model, task.all_sources())
    assert masses.shape == (8, 2, 4)
    even = torch.tensor([0.2, 0.2, 0.6, 0.0], dtype=torch.float64).expand(8, 2, 4)
    torch.testing.assert_close(masses, even, atol=1e-6, rtol=0)
    assert not masses[..., 3].any()


def test_masses_tell_the_key_from_the_value_and_the_rows_apart(monkeypatch):
    sources = task.all_sources()
    padded = task.make_batch(sources, length=10).source

    @contextlib.contextmanager
    def forged(model, pattern):
        # From [SOS] all weight on the value, from the value all on the key.
        rows = [
            (padded == word.unsqueeze(-1)).double()
            for word in (task.right_answer(sources), task.key_of(sources))
        ]
        yield {"weights": torch.stack(rows, 1).unsqueeze(1)}

    monkeypatch.setattr(fixed_table, "record", forged)
    mean = fixed_table.measure_masses(fixed_table.build_model(LookupConfig(), 0), sources)
    assert fixed_table.KINDS[:2] == ("key", "value")
    assert mean.tolist() == [[[0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]]


def gradient_of(model, loss, batch):
    model.zero_grad()
    loss(model, *batch).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def test_three_sets_and_their_numbers_are_any_batch_with_the_same_gradient():
    config = LookupConfig(samples=400)
    model = fixed_table.build_model(config, 0).double()
    # who is told the order is given the rows
    told = fixed_table.build_model(config, 0, encoder_positions="sinusoidal")
    gradients = []
    for reader in (model, told):
        learner, reads_sets = fixed_table.learner(reader, config, 0), reader is model
        batch = [part[0] for part in learner.sample(0, 1)]
        assert batch[0].shape == ((3,) if reads_sets else (32, 10))
        loss = fixed_table.make_loss(config, reads_sets=reads_sets)
        gradients.append(gradient_of(model, loss, batch))
    assert int(learner.sample(0, 1)[0][0].count_nonzero()) == 32 * 5
    assert float(gradients[0].abs().max()) > 1e-3
    torch.testing.assert_close(*gradients, atol=1e-12, rtol=0)


def test_each_epoch_shows_every_training_sample_once_and_no_two_in_one_order():
    config = LookupConfig(samples=400, batch_size=30)  # 320 samples: epochs end within a batch
    told = fixed_table.build_model(config, 0, encoder_positions="sinusoidal")
    sample, train = (
        fixed_table.learner(told, config, 0).sample,
        fixed_table.split_of(config, 0).train,
    )
    passed = sample(0, 32)[0][..., :5].reshape(-1, 5).tolist()  # 960 samples
    epochs = [passed[start : start + 320] for start in (0, 320, 640)]
    assert all(sorted(epoch) == sorted(train.tolist()) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


@pytest.mark.parametrize("variant", ["loose", "bound", "ordered"])
def test_what_a_step_is_given_does_not_depend_on_where_drawing_begins(variant):
    config = LookupConfig()
    readers = (
        fixed_table.build_model(config, 0),
        fixed_table.build_model(config, 0, encoder_positions="learned"),
    )
    samplers = [fixed_table.learner(model, config, 0).sample for model in readers]
    # New facts are drawn in blocks of 50 steps, which no training crosses in one span.
    for sample, begin in (
        (recall.make_sampler(replace(config, variant=variant), 0), 50),
        *((each, 0) for each in samplers),
    ):
        whole, part = sample(begin, 100 - begin), sample(75, 20)
        for one, other in zip(whole, part, strict=True):
            assert torch.equal(one[75 - begin : 95 - begin], other)


@pytest.mark.slow
def test_a_run_goes_on_from_each_of_its_checkpoints_to_the_same_bytes(tmp_path):
    class Stopping(SilentObserver):
        """Stops the run at the first step of its third training."""

        stages = 0

        def stage(self, name):
            self.stages += 1

        def step(self, step, steps, figures):
            if self.stages == 3:
                raise KeyboardInterrupt

    settings = {**SMALL, "epochs": 2, "recall_steps": 5, "seeds": 3, "variant": "bound"}
    with pytest.raises(KeyboardInterrupt):
        attnlab.run("lookup", out=tmp_path / "stopped", observer=Stopping(), **settings)
    begun = {path.name for path in (tmp_path / "stopped" / "checkpoints").iterdir()}
    assert begun == {"fixed", "fixed-others", "fixed-control"}
    attnlab.run("lookup", out=tmp_path / "stopped", resume=True, **settings)
    attnlab.run("lookup", out=tmp_path / "whole", **settings)
    for file in ("model", "models/bound/model"):
        one, other = (tmp_path / name / f"{file}.safetensors" for name in ("stopped", "whole"))
        assert one.read_bytes() == other.read_bytes()
    for file in ("claims.json", "metrics.jsonl"):
        one, other = (tmp_path / name / file for name in ("stopped", "whole"))
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(TABLE, id="fixed"),
        pytest.param({**FACTS, "variant": "bound"}, id="recall", marks=pytest.mark.slow),
    ],
)
def test_a_member_of_a_population_is_the_model_of_the_run_with_its_seed(settings):
    config = LookupConfig(**settings)
    learned = lookup.problem([config], [5])
    (trained,) = train_together(
        learned.members, learned.loss, stop=learned.stop, num_threads=1
    ).members
    model = learned.members[0].model
    report = attnlab.run("lookup", seed=5, **settings)
    for name, value in report.model.state_dict().items():
        assert torch.equal(model.state_dict()[name], value)
    assert learned.is_solved(trained.evaluation)
    found = lookup.conclude(model, trained, config, RunContext(5))
    by_name = {each.name: each for each in report.claims}
    assert {each.name for each in found.claims} == by_name.keys() - {"control_sees_order"}
    assert all(each.passed for each in found.claims)
    assert found.content.facts[0] == ("seed", "5")


def test_mismatched_pairs_are_counted_by_what_is_said(monkeypatch):
    said = {"BLUE": "BLUE", "GREEN": "RED", "RED": "GREEN"}  # by the value shown

    def forged(model, source):
        return task.parse(said[task.id_names(source[0])[-1]]).unsqueeze(0)

    monkeypatch.setattr(fixed_table, "greedy_decode", forged)
    found = {(each.key, each.shown): each[3:] for each in fixed_table.probe([None, None])}
    assert found == {
        ("RED", "GREEN"): (0, 0, 2), ("ALICE", "BLUE"): (2, 0, 0), ("ALICE", "RED"): (0, 2, 0),
        ("CHAIR", "BLUE"): (2, 0, 0), ("CHAIR", "GREEN"): (0, 2, 0),
    }  # fmt: skip


def test_the_report_shows_every_source_and_every_head(learned):
    first = learned.content.section("Step by step").traces[0].attention[0]
    assert head_at(first.site, first.head) == "cross 0.0"
    bars = learned.content.section("Facts that are new each time")
    assert bars.groups == ["loose", "bound", "ordered"]
    traces = learned.content.section("Step by step").traces
    assert len(traces) == 72
    # of inputs equally varied the page takes the last
    assert " ".join(traces[-1].input) == task.EXAMPLE
    said = learned.content.section("What this shows").text
    assert "heads give more weight to the value than to the key" in said
    assert len(json.dumps(learned.content.to_json())) < 2_000_000


def test_the_saved_models_answer_what_a_person_types(learned):
    found = attnlab.ask(learned, "name color red item blue").trace()
    assert [step.choice for step in found.steps] == ["BLUE", "[EOS]"]
    assert found.input == ("NAME", "COLOR", "RED", "ITEM", "BLUE")
    shuffled = attnlab.ask(learned, "BLUE red ITEM, name COLOR").trace()
    assert [step.choice for step in shuffled.steps] == ["BLUE", "[EOS]"]
    new = attnlab.ask(learned, "k1 v4 k3 v2 ? k3").trace()
    assert new.input == ("k1:v4", "k3:v2")
    assert [step.choice for step in new.steps] == ["v2"]
    for name in ("loose", "bound", "ordered", "with-positions"):
        assert isinstance(attnlab.load(learned.folder / "models" / name), EncoderDecoder)


def test_what_cannot_be_traced_is_refused_in_words(learned):
    for text, message in (
        ("name colour", "there is no word 'COLOUR'"),
        ("k1 v1 k2 v2 ?", "expected facts, then . and a key from k1 to k8"),
        ("k1 v1 ? v1", "expected facts, then . and a key from k1 to k8"),
        ("k1 ? k1", "expected a value after each key"),
        ("k1 v5 ? k7", "k7 is not among the facts"),
        ("", "expected 1 to 10 words"),
    ):
        with pytest.raises(WrongUsage, match=message):
            attnlab.ask(learned, text).trace()


def test_recall_alone_traces_its_main_model_and_saves_the_others():
    settings = {**FACTS, "recall_facts": 3, "recall_steps": 4, "variant": "ordered"}
    report = attnlab.run("lookup", **settings)
    assert "decoded_right" not in {each.name for each in report.claims}
    config = report.reader.config
    found = lookup.ask(report.model, config, "k1 v1 k2 v3 k4 v4 ? k2").trace()
    assert found.input == ("k1", "v1", "k2", "v3", "k4", "v4")
    with pytest.raises(WrongUsage, match="has positions for 3 facts only; got 1"):
        lookup.ask(report.model, config, "k1 v1 ? k1")
    assert lookup.prompt_words(config) == "facts and a question, such as k1 v5 k2 v7 ? k2"


def test_a_training_that_breaks_says_what_to_do():
    with pytest.raises(CouldNotRun, match="Try a smaller learning_rate"):
        attnlab.run("lookup", **{**TABLE, "learning_rate": 10.0, "norm_place": "none", "epochs": 3})


def test_settings_that_make_no_sense_are_refused_in_words():
    for fields, message in (
        ({"pad_to": 4}, "pad_to must be an integer from 5 to 10 or none; got 4"),
        ({"num_heads": 5}, "d_model must be a multiple of num_heads"),
        ({"control_positions": "none"}, "the control must see the order"),
        ({"recall_facts": 33}, "recall_facts must be an integer from 1 to 32"),
        ({"recall_keys": 7}, "num_keys must be at least num_facts"),
        ({"variant": "lose"}, "variant must be one of all, loose, bound, ordered"),
        ({"part": "both"}, "part must be one of all, fixed, recall"),
    ):
        with pytest.raises(WrongUsage, match=message):
            LookupConfig(**fields)


@pytest.mark.parametrize(
    "settings",
    sampled(
        [
            {"part": "fixed", "num_layers": "2", "pad_to": "10", "control_positions": "rotary"},
            {"part": "recall", "recall_positions": "concatenated", "recall_layers": "2"},
            {"part": "recall", "recall_positions": "sinusoidal", "recall_facts": "1"},
            {"part": "fixed", "norm_place": "pre", "patience": "none"},
            {"part": "fixed", "control_positions": "concatenated", "norm_place": "none"},
            {
                "part": "recall",
                "recall_facts": "32",
                "recall_keys": "32",
                "recall_values": "40",
                "recall_held_out": "16",
            },
        ],
        2,
    ),
    ids=lambda settings: " ".join(f"{name}={value}" for name, value in settings.items()),
)
def test_every_option_works(settings):
    tiny = {name: str(value) for name, value in SMALL.items()} | {
        "seeds": "1", "epochs": "1", "recall_seeds": "1", "recall_steps": "3",
        "recall_batch_size": "8", "recall_judged": "10",
    }  # fmt: skip
    report = attnlab.run("lookup", settings={**tiny, **settings})
    if settings["part"] == "fixed":
        assert {"any_order_same_output", "any_order_same_logits"}.isdisjoint(failed(report))
    assert "<html" in report.html()


ORDERED = {"part": "recall", "variant": "ordered"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "settings"), [(0, {}), (1, {}), (2, {}), (21, ORDERED), (22, ORDERED), (23, ORDERED)]
)
def test_runs_with_other_seeds_hold_too(seed, settings):
    assert attnlab.run("lookup", seed=seed, **settings).passed


@pytest.mark.slow
def test_32_facts_are_read_as_well():
    facts = {"recall_facts": 32, "recall_keys": 64, "recall_values": 64}
    report = attnlab.run("lookup", part="recall", recall_seeds=2, recall_steps=5_000, **facts)
    assert report.passed
