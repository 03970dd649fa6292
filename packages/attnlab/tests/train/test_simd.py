"""The compiled lanes learn what plain PyTorch learns, lane by lane, and refuse what they cannot
hold."""

import multiprocessing
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from attnlab import seeds
from attnlab.errors import WrongUsage
from attnlab.models.decoder import Decoder, DecoderConfig
from attnlab.models.encoder import Encoder, EncoderConfig
from attnlab.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from attnlab.models.single_head import SingleHead, SingleHeadConfig
from attnlab.native import compiler
from attnlab.simd import build, emit, rows
from attnlab.tasks.sequences import SequenceTask
from attnlab.train.config import TrainConfig
from attnlab.train.layouts import simd
from attnlab.train.layouts.layout import NotExpressible
from attnlab.train.layouts.sequential import Sequential
from attnlab.train.layouts.simd import Simd
from tests.sampling import sampled

MEMBERS, BATCH, LENGTH, WORDS = 3, 4, 5, 5


@pytest.fixture(autouse=True)
def _quickly_compiled(monkeypatch):
    if compiler.compiler_name() is None:
        pytest.skip("there is no C++ compiler here")
    monkeypatch.setenv("CXXFLAGS", "-O0")


class Case(NamedTuple):
    """Members that learn: how one is made, its loss, one step's batch, and how many rows pass at
    once (1: all)."""

    make: object
    loss: object
    batch: object
    rows: int = BATCH


def tokens(source, *shape):
    return torch.randint(WORDS, shape or (BATCH, LENGTH), generator=source)


def real(source):
    return torch.arange(LENGTH) < torch.randint(1, LENGTH + 1, (BATCH, 1), generator=source)


def next_token(model, row):
    return F.cross_entropy(model(row[:, :-1]).transpose(1, 2), row[:, 1:])


def of_class_with_padding(model, row, is_real, wanted):
    return F.cross_entropy(model(row, real=is_real), wanted)


def some_left_out(model, row, is_asked):
    wanted = row[:, 1:].masked_fill(~is_asked[:, 1:], -100)
    return F.cross_entropy(model(row[:, :-1]).flatten(0, 1), wanted.flatten())


def some_left_out_batch(source):
    is_asked = torch.rand(BATCH, LENGTH, generator=source) < 0.7
    is_asked[0, 1] = True  # at least one counts
    return tokens(source), is_asked


def translation(model, source, source_real, given, wanted, target_real, times):
    logits = model(source, given, real=source_real, target_mask=target_real[:, None, None, :])
    losses = F.cross_entropy(logits.transpose(1, 2), wanted, ignore_index=0, reduction="none")
    counts = target_real * times.unsqueeze(-1)
    return (losses * counts).sum() / counts.sum()


def translation_batch(source):
    target_real = real(source)
    wanted = tokens(source).clamp(min=1) * target_real
    return (
        tokens(source),
        real(source),
        tokens(source),
        wanted,
        target_real,
        tokens(source, BATCH) + 1,
    )


def closeness(model, x, target):
    return F.mse_loss(model(x).output, target)


def vectors(source):
    return tuple(
        torch.randn(BATCH, LENGTH, 3, generator=source, dtype=torch.float64) for _ in range(2)
    )


def classes_with_padding(source):
    return tokens(source), real(source), torch.randint(3, (BATCH,), generator=source)


TASK = SequenceTask("sort", letters=3, length=2)
ROWS = TASK.rows(TASK.all_prompts())


def counted(model, counts):
    losses = F.cross_entropy(
        model(ROWS[:, :-1]).transpose(1, 2), ROWS[:, 1:], reduction="none"
    ).mean(-1)
    return (losses * counts).sum() / counts.sum()


def counts(source):
    return (torch.bincount(torch.randint(len(ROWS), (64,), generator=source), minlength=len(ROWS)),)


def tiny(model_class, config_class, **settings):
    small = {"vocab_size": WORDS, "max_length": 6, "d_model": 8, "num_heads": 2, "d_ff": 6}
    return lambda: model_class(config_class(**{**small, **settings}))


def decoder(**settings):
    return tiny(Decoder, DecoderConfig, **settings)


def sorter():
    return decoder(
        d_model=6, d_ff=6, positions="learned", projections="gated", rank=3, bias=False
    )()


CASES = {
    "sorter": Case(sorter, counted, counts, len(ROWS)),
    "rotary, gelu, rms, post, shared keys, two layers": Case(
        decoder(
            positions="rotary",
            activation="gelu",
            norm="rms",
            norm_place="post",
            num_kv_heads=1,
            num_layers=2,
        ),
        next_token,
        lambda g: (tokens(g),),
    ),
    "alibi, strict, swiglu, no norm, untied": Case(
        decoder(
            positions="alibi",
            projections="strict",
            activation="swiglu",
            norm_place="none",
            tie_output=False,
        ),
        next_token,
        lambda g: (tokens(g),),
    ),
    "targets that are left out": Case(decoder(), some_left_out, some_left_out_batch),
    "encoder with padding, concatenated": Case(
        tiny(
            Encoder,
            EncoderConfig,
            num_classes=3,
            positions="concatenated",
            final_norm=False,
            scale_embedding=True,
        ),
        of_class_with_padding,
        classes_with_padding,
    ),
    "encoder-decoder": Case(
        tiny(EncoderDecoder, EncoderDecoderConfig), translation, translation_batch
    ),
    "single head": Case(
        lambda: SingleHead(SingleHeadConfig(pos_dim=4, learned_positions=True)), closeness, vectors
    ),
}


class Tables(nn.Module):
    """Two tables and a layer: enough for a loss of every other operation."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.layer = (
            nn.Embedding(WORDS, 4),
            nn.Embedding(WORDS, 4),
            nn.Linear(4, 3),
        )

    def forward(self, row):
        return self.first.weight, self.layer(self.first(row).tanh() * self.second(row).sigmoid())


def of_many_operations(model, row, wanted, weights):
    table, logits = model(row)
    chosen = logits.log_softmax(-1).gather(-1, wanted.unsqueeze(-1)).squeeze(-1)
    turned = torch.cat([logits, logits.abs() + 1], -1)[..., 1:-1].pow(3).clamp(-2.0, 2.0)
    joined = torch.stack(
        [table.index_select(0, row[0]), table[torch.tensor([1, 1, 0, 2, 1])]]
    ).amax(0)
    spread = (logits.square().mean(-1, keepdim=True) + 0.1).sqrt()
    several = F.pad(logits / spread, (1, 0)).logsumexp(-1) + torch.where(
        weights > 0, turned.sum(-1), turned.mean(-1)
    )
    bent = F.softplus(logits).erf().sum(-1) + F.binary_cross_entropy_with_logits(
        logits, torch.ones_like(logits)
    )
    weighted = F.cross_entropy(
        logits.flatten(0, 1), wanted.flatten(), weight=logits.new_tensor([1.0, 2.0, 0.5])
    )
    weighted = weighted + F.gelu(logits, approximate="tanh").sum()
    found = (bent + several - chosen * weights.exp()).mean() + joined.norm() + F.silu(table).sum()
    return found + weighted


def many_operations_batch(source):
    wanted = torch.randint(3, (BATCH, LENGTH), generator=source)
    return tokens(source), wanted, torch.randn(BATCH, LENGTH, generator=source, dtype=torch.float64)


WITH_TOKENS = Case(decoder(), next_token, lambda g: (tokens(g),))


def members(make, num=MEMBERS, dtype=torch.float64):
    found = []
    for seed in range(num):
        with seeds.isolated(seed, "model"):
            found.append(make().to(dtype))
    return found


def drawn(batch, steps, num=MEMBERS):
    found = []
    for seed in range(num):
        source = seeds.generator(seed, "data")
        found.append(
            tuple(map(torch.stack, zip(*(batch(source) for _ in range(steps)), strict=True)))
        )
    return found


def settings(num=MEMBERS, **fields):
    return [TrainConfig(**fields, weight_decay=0.1 * i, clip=0.1 * (i + 1)) for i in range(num)]


def rates(steps, num=MEMBERS, peak=1e-3):
    return torch.linspace(0.1 * peak, peak, steps * num, dtype=torch.float64).view(steps, num)


def never():
    return False


def compared(
    case,
    steps,
    *,
    dtype=torch.float64,
    num=MEMBERS,
    change=lambda models: None,
    data=None,
    **fields,
):
    """Train in lanes and alone; return both, and how far losses, norms and parameters are apart,
    relative."""
    data = drawn(case.batch, steps, num) if data is None else data
    models = [members(case.make, num, dtype) for _ in range(2)]
    for each in models:
        change(each)
    configs = settings(num, **fields)
    held = Simd(models[0], configs, case.loss, tuple(part[0] for part in data[0]))
    alone = Sequential(models[1], configs, case.loss, [0] * num)
    ours, theirs = (layout.advance(data, rates(steps, num), 0, never) for layout in (held, alone))
    apart = [relative(ours.losses, theirs.losses), relative(ours.norms, theirs.norms)]
    found, wanted = held.parameters(), alone.parameters()
    # The bias of keys moves all scores of a row alike, so its gradient is nothing but rounding.
    names = [name for name in found if not name.endswith("key.bias")]
    apart.append(
        relative(*(torch.cat([each[n].flatten(1) for n in names], 1) for each in (found, wanted)))
    )
    return held, alone, apart


def relative(ours, theirs):
    return float((ours - theirs).norm() / theirs.norm())


@pytest.mark.parametrize("name", sampled(CASES, 3))
def test_lanes_take_the_steps_that_pytorch_takes_with_all_work_on_rows_in_one_loop(
    name, monkeypatch
):
    seen = []
    monkeypatch.setattr(
        simd, "by_rows", lambda stages: seen.append(rows.by_rows(stages)) or seen[0]
    )
    held, _, apart = compared(CASES[name], 3)
    assert max(apart) < 1e-12
    assert held.name == "simd"
    assert [part.rows for part in seen[0]] == [1, CASES[name].rows, 1]


@pytest.mark.parametrize("name", sampled(CASES, 3))
def test_one_step_of_plain_descent_shows_the_same_gradient(name):
    held, _, apart = compared(CASES[name], 1, optimiser="sgd")
    assert max(apart) < 1e-13
    assert sorted(held.state()) == sorted(
        ["is_alive", "steps", *(f"model.{name}" for name in held.parameters())]
    )


def test_operations_beyond_our_own_models_are_those_of_pytorch():
    assert max(compared(Case(Tables, of_many_operations, many_operations_batch), 3)[2]) < 1e-12


@pytest.mark.parametrize("divisor", [1e-310, 0.0])
def test_a_divisor_whose_reciprocal_is_infinite_divides(divisor):
    def loss(model, row, *_):
        _, out = model(row)
        small = out * divisor if divisor else out * 0 + 1
        return (small / torch.full((3,), divisor, dtype=out.dtype)[None]).tanh().mean()

    case = Case(Tables, loss, many_operations_batch)
    held, alone, _ = compared(case, 1)
    for ours, theirs in zip(held.parameters().values(), alone.parameters().values(), strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True)


def test_a_hundred_steps_end_where_pytorch_ends():
    _, _, apart = compared(CASES["sorter"], 100)
    assert apart[0] < 1e-10
    assert apart[2] < 1e-10


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_three_hundred_steps_of_every_model_end_where_pytorch_ends(name, dtype, bound):
    case = CASES[name]
    if name == "single head":
        case = case._replace(batch=lambda g: tuple(part.to(dtype) for part in vectors(g)))
    _, _, apart = compared(case, 300, dtype=dtype)
    assert apart[0] < bound
    assert apart[2] < bound


def test_members_may_differ_in_temperature():
    def change(models):
        for index, model in enumerate(models):
            for part in model.modules():
                if hasattr(part, "temperature"):
                    part.temperature.fill_(0.5 + index)

    assert max(compared(CASES["sorter"], 3, change=change)[2]) < 1e-12


@pytest.mark.parametrize("num", [1, 17, 33])
def test_any_number_of_members_fits(num):
    assert max(compared(CASES["single head"], 2, num=num)[2]) < 1e-12


def test_blocks_on_several_threads_give_the_same_bits():
    case = CASES["single head"]
    data, found = drawn(case.batch, 4, 40), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            held = Simd(
                members(case.make, 40), settings(40), case.loss, tuple(part[0] for part in data[0])
            )
            found.append((held.advance(data, rates(4, 40), 0, never), held.state()))
        finally:
            torch.set_num_threads(1)
    (first, state), (second, other) = found
    assert torch.equal(first.losses, second.losses)
    assert all(torch.equal(state[name], other[name]) for name in state)


def poisoned(data, member, step):
    data = [tuple(part.clone() for part in each) for each in data]
    data[member][0][step] = float("nan")
    return data


def test_a_member_that_meets_nan_stays_as_it_was_and_disturbs_nobody():
    case = CASES["single head"]
    clean = drawn(case.batch, 6)
    held, alone, _ = compared(case, 6, data=poisoned(clean, 1, 2))
    whole, _, _ = compared(case, 6, data=clean)
    before, _, _ = compared(case, 2, data=[tuple(part[:2] for part in each) for each in clean])
    assert held.state()["steps"].tolist() == alone.state()["steps"].tolist() == [6, 2, 6]
    shorter = members(case.make)
    stopped = Simd(shorter, settings(), case.loss, tuple(part[0] for part in clean[0]))
    stopped.advance([tuple(part[:2] for part in each) for each in clean], rates(6)[:2], 0, never)
    for name, value in held.parameters().items():
        assert torch.equal(value[0], whole.parameters()[name][0])
        assert torch.equal(value[2], whole.parameters()[name][2])
        assert torch.equal(value[1], stopped.parameters()[name][1])
    assert before.state()["steps"].tolist() == [2, 2, 2]
    assert held.state()["is_alive"].tolist() == [True, False, True]


def test_the_loss_says_when_a_member_broke():
    case = CASES["single head"]
    data = poisoned(drawn(case.batch, 4), 2, 1)
    held = Simd(members(case.make), settings(), case.loss, tuple(part[0] for part in data[0]))
    progress = held.advance(data, rates(4), 0, never)
    assert progress.losses.isfinite().tolist() == progress.norms.isfinite().tolist()
    assert progress.losses.isfinite().T.tolist() == [
        [True] * 4,
        [True] * 4,
        [True, False, False, False],
    ]


def test_a_state_that_is_loaded_goes_on_to_the_bit():
    case = CASES["single head"]
    data = drawn(case.batch, 8)
    example = tuple(part[0] for part in data[0])
    whole = Simd(members(case.make), settings(), case.loss, example)
    whole.advance(data, rates(8), 0, never)
    first = Simd(members(case.make), settings(), case.loss, example)
    first.advance([tuple(part[:5] for part in each) for each in data], rates(8)[:5], 0, never)
    second = Simd(members(case.make), settings(), case.loss, example)
    second.load_state(first.state())
    second.advance([tuple(part[5:] for part in each) for each in data], rates(8)[5:], 5, never)
    wanted = whole.state()
    assert all(torch.equal(value, wanted[name]) for name, value in second.state().items())


def test_a_training_that_is_told_to_stop_returns_what_is_done():
    case = CASES["single head"]
    data = drawn(case.batch, 8)
    held = Simd(members(case.make), settings(), case.loss, tuple(part[0] for part in data[0]))
    progress = held.advance(data, rates(8), 0, lambda: True)
    assert 1 <= len(progress.losses) < 8
    assert held.state()["steps"].tolist() == [len(progress.losses)] * MEMBERS


# What cannot be held is refused in a sentence.


def refusal(make, loss, batch):
    with pytest.raises(NotExpressible) as caught:
        Simd(members(make, 2, torch.float32), settings(2), loss, batch)
    return str(caught.value)


def batch_of_tokens():
    return (tokens(seeds.generator(0, "data")),)


def test_an_operation_without_a_rule_is_named():
    said = refusal(
        decoder(), lambda model, row: model(row).sort(-1).values.square().mean(), batch_of_tokens()
    )
    assert said == "the loss needs aten.sort"


@pytest.mark.parametrize(
    ("make", "loss", "said"),
    [
        (decoder(dropout=0.1), next_token, "the loss draws random numbers"),
        (
            decoder(),
            lambda model, row: next_token(model, row) if row.sum() > 3 else None,
            "looks at numbers to decide",
        ),
        (
            decoder(),
            lambda model, row: model.no_such_part(row).sum(),
            "cannot be recorded (AttributeError",
        ),
        (
            decoder(),
            lambda model, row: torch.tensor(float(model(row).detach().numpy().sum())),
            "cannot be recorded",
        ),
        (
            lambda: decoder()().half(),
            next_token,
            "float32 or float64 on the CPU; got torch.float16",
        ),
        (lambda: decoder()().requires_grad_(False), next_token, "is not trained"),
    ],
)
def test_what_cannot_be_compiled_is_refused(make, loss, said, monkeypatch):
    monkeypatch.setattr(nn.Module, "to", lambda self, dtype: self)
    assert said in refusal(make, loss, batch_of_tokens())


def test_a_batch_of_another_shape_is_refused():
    case = WITH_TOKENS
    held = Simd(members(case.make), settings(), case.loss, batch_of_tokens())
    with pytest.raises(WrongUsage, match=r"batches was \(4, 5\), now \(4, 4\) came"):
        held.advance(
            [(torch.zeros(1, BATCH, LENGTH - 1, dtype=torch.int64),)] * MEMBERS, rates(1), 0, never
        )


def test_an_id_that_is_no_token_is_a_wrong_usage_and_reads_no_other_memory():
    case = WITH_TOKENS
    held = Simd(members(case.make), settings(), case.loss, batch_of_tokens())
    wrong = torch.full((1, BATCH, LENGTH), WORDS)
    with pytest.raises(WrongUsage, match="an id of a batch"):
        held.advance([(wrong,)] * MEMBERS, rates(1), 0, never)


# The compiler and its folder.


def single(**fields):
    case = CASES["single head"]
    return Simd(
        members(case.make), settings(**fields), case.loss, case.batch(seeds.generator(0, "data"))
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "attnlab" / "simd"


def test_without_a_compiler_the_refusal_says_what_was_looked_for(monkeypatch, folder):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(NotExpressible, match=r"looked for no-such-compiler \(from CXX\)"):
        single()
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(
        NotExpressible,
        match=r"looked for g\+\+ or clang\+\+ \(Debian and Ubuntu: apt install g\+\+\)",
    ):
        single()


def test_a_compiler_that_fails_is_named_with_its_first_complaint(monkeypatch, folder):
    monkeypatch.setenv("CXXFLAGS", "--no-such-flag")
    with pytest.raises(NotExpressible, match=r"g\+\+ does not compile it: .*--no-such-flag"):
        single()


def test_what_was_compiled_is_kept_and_not_compiled_again(folder, monkeypatch):
    single()
    assert sorted(path.suffix for path in folder.iterdir()) == [".sha256", ".so"]
    assert folder.stat().st_mode & 0o077 == 0
    monkeypatch.setattr(compiler, "_built", None)
    single()


def test_a_damaged_file_is_never_loaded_but_compiled_anew(folder):
    single()
    library = next(folder.glob("*.so"))
    whole = library.read_bytes()
    for damaged in (whole[:100], whole[:-1] + b"x"):
        library.unlink()  # the loaded one must stay as it is
        library.write_bytes(damaged)
        single()
        assert library.read_bytes() == whole


def test_a_folder_that_others_may_write_is_made_private(folder):
    folder.mkdir(parents=True, mode=0o777)
    folder.chmod(0o777)
    single()
    assert folder.stat().st_mode & 0o077 == 0


def test_a_folder_that_cannot_be_made_costs_only_the_keeping(folder):
    folder.parent.mkdir(parents=True)
    folder.write_text("a file stands here")
    single()


def _compile_together(barrier, results):
    torch.set_num_threads(1)
    barrier.wait(60)
    case = CASES["single head"]
    held = single()
    data = drawn(case.batch, 2)
    results.put(held.advance(data, rates(2), 0, never).losses.tolist())


@pytest.mark.slow  # the compiler's own test, in tests/native, sees the same
def test_two_processes_may_compile_the_same_at_once(folder):
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2), context.Queue()
    running = [context.Process(target=_compile_together, args=(barrier, results)) for _ in range(2)]
    for each in running:
        each.start()
    found = [results.get(timeout=120) for _ in running]
    for each in running:
        each.join(60)
    assert [each.exitcode for each in running] == [0, 0]
    assert found[0] == found[1]
    assert len(list(folder.iterdir())) == 2


# Planted faults: each mistake is one that the comparison with PyTorch must see.

FAULTS = {
    "clipped by the norm of another lane": (
        "V factor = most / (norm",
        "V factor = most / (norm[0]",
    ),
    "no clipping": ("factor = factor > R(1) ? splat(1) : factor;", "factor = splat(1);"),
    "the wrong bias correction": (
        "correction(0.999, block->updates)",
        "correction(0.9, block->updates)",
    ),
    "the second moment not kept": ("second[i] = choose(alive, v, second[i]);", ""),
    "updates not counted": ("block->updates[i] += alive[i] != 0;", "block->updates[i] = 1;"),
    "decay tied to the gradient": ("P[i] * keep - size", "P[i] - size"),
    "a lane reads its neighbour": ("V m = first[i]", "V m = first[i > 0 ? i - 1 : 0]"),
    "exp of few terms": (
        "series = series * r + FACTORIALS[k]",
        "series = series * r + (k > 2 ? R(0) : FACTORIALS[k])",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_shows(name, monkeypatch):
    right, wrong = FAULTS[name]

    def planted(head, function):
        source = build.source_of(head, function)
        assert source.count(right) >= 1
        return source.replace(right, wrong)

    monkeypatch.setattr(simd, "source_of", planted)
    assert max(compared(CASES["single head"], 3)[2]) > 1e-6


def test_a_member_that_broke_and_goes_on_would_show(monkeypatch):
    fault = ("alive &= is_finite(loss) & is_finite(norm);", "")
    monkeypatch.setattr(
        simd, "source_of", lambda head, function: build.source_of(head, function).replace(*fault)
    )
    case = CASES["single head"]
    held, _, _ = compared(case, 4, data=poisoned(drawn(case.batch, 4), 1, 2))
    assert held.state()["steps"].tolist() == [4, 4, 4]
    assert not bool(held.parameters()["query.weight"][1].isfinite().all())


def test_rows_that_forget_the_rows_before_them_would_show(monkeypatch):
    def forgetful(stages):
        parts = rows.by_rows(stages)
        for part in parts:
            for stage in part.stages:
                stage.is_sum = stage.is_sum and part.rows == 1
        return parts

    monkeypatch.setattr(simd, "by_rows", forgetful)
    assert max(compared(CASES["single head"], 1)[2]) > 1e-6


def test_memory_that_two_values_share_too_early_would_show(monkeypatch):
    monkeypatch.setattr(emit, "_extent", lambda read, sizes, rows: 1)
    assert not max(compared(CASES["single head"], 1)[2]) < 1e-6


def test_the_source_is_written_beside_the_package():
    assert {path.name for path in Path(build.__file__).parent.glob("*.h")} == {
        "arithmetic.h",
        "step.h",
    }
