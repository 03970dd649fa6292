"""Text that foreign models generate while they are recorded and edited: caches of all kinds."""

import copy
from unittest import mock

import pytest
import torch

import attnlab
import attnlab.edits as op
from attnlab.errors import WrongUsage
from attnlab.look.recording import open_recording
from tests.planting import fault_tests, faults_of
from tests.pretrained.trying import (
    broken_off,
    difference,
    furthest,
    installed_hooks,
    recorded_weights,
    tried,
)
from tests.sampling import sampled

transformers = pytest.importorskip("transformers")

FAMILIES = ["gpt2", "llama", "mistral", "gemma2", "gpt_oss", "bloom", "gptj", "t5", "bart"]
NEW = 5


def each_generation(*always):
    """Try families and numbers of beams, all but a few of them only in the slow run."""
    others = {(name, beams) for name in FAMILIES for beams in (1, 3)} - set(always)
    slow = [pytest.param(*case, marks=pytest.mark.slow) for case in sorted(others)]
    return pytest.mark.parametrize(("name", "beams"), [*always, *slow])


def is_both(each):
    return bool(each.foreign.config.is_encoder_decoder)


def prompts(each, rows=2, length=7):
    source = torch.Generator().manual_seed(rows)
    ids = torch.randint(3, 101, (rows, length), generator=source)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def generate(each, inputs=None, **options):
    told = {
        "max_new_tokens": NEW,
        "min_new_tokens": NEW,
        "do_sample": False,
        "pad_token_id": 0,
        **options,
    }
    asked = {"return_dict_in_generate": True, "output_logits": True}
    return each.foreign.generate(**(prompts(each) if inputs is None else inputs), **told, **asked)


def attention(each, layer=0):
    return f"{'decoder.' if is_both(each) else ''}layers.{layer}.attention"


def read_at_once(each, ids, inputs, site):
    """What a site shows when the whole text is read in one pass, without a cache."""
    given = {**inputs, "decoder_input_ids": ids} if is_both(each) else {"input_ids": ids}
    with torch.no_grad(), attnlab.record(each.model, site) as recording:
        each.foreign(**given, use_cache=False)
    return recording[site]


def check_joined(each, recording, inputs, site):
    """Every row of a joined recording is what one pass over the text that it names would show."""
    whole = recording.joined()
    values = whole[site]
    for row in range(values.shape[0]):
        names = whole.tokens(site, row)
        assert list(names.key) == list(names.query)
        ids = torch.tensor([[int(name) for name in names.query]])
        of_input = {name: value[row * 2 // values.shape[0]][None] for name, value in inputs.items()}
        anew = read_at_once(each, ids, of_input, site)
        assert difference(values[row : row + 1], anew) < 1e-5


@each_generation(("mistral", 1), ("gpt_oss", 3), ("t5", 3))
def test_the_steps_of_a_generation_are_joined_to_what_one_pass_would_show(name, beams):
    each = tried(name)
    inputs, sites = prompts(each), [f"{attention(each, layer)}.weights" for layer in (0, 1)]
    plain = generate(each, inputs, num_beams=beams)
    with attnlab.record(each.model, sites) as recording:
        found = generate(each, inputs, num_beams=beams)
    assert torch.equal(found.sequences, plain.sequences)
    assert all(
        torch.equal(one, other) for one, other in zip(found.logits, plain.logits, strict=True)
    )
    for site in sites:
        check_joined(each, recording, inputs, site)


@pytest.mark.parametrize("name", sampled(["mistral", "gpt_oss"], 1))
def test_a_window_s_keys_have_their_own_names_at_every_step(name):
    each = tried(name)
    site = f"{attention(each)}.weights"
    with attnlab.record(each.model, [site, site.replace("weights", "key")]) as recording:
        generate(each)
    keys, whole = recording.tokens(site, 1).key, recording.joined().tokens(site, 1).key
    assert recording.shape(site)[-1] == 4 < len(whole)
    assert keys == whole[-4:]
    assert recording.joined(site.replace("weights", "key")).shape[-2] == len(whole)


@pytest.mark.parametrize(("name", "beams"), [("t5", 3), ("bart", 1)])
def test_the_cross_panel_names_the_source_of_each_row(name, beams):
    each = tried(name)
    inputs, site = prompts(each), "decoder.layers.1.cross_attention.weights"
    with attnlab.record(each.model, site) as recording:
        generate(each, inputs, num_beams=beams)
    whole, sources = recording.joined(), inputs["input_ids"].tolist()
    for row in range(2 * beams):
        names = whole.tokens(site, row)
        assert list(names.key) == list(map(str, sources[row // beams]))
        ids = torch.tensor([[int(token) for token in names.query]])
        own = {kind: value[row // beams][None] for kind, value in inputs.items()}
        assert difference(whole[site][row : row + 1], read_at_once(each, ids, own, site)) < 1e-5


def edits_of(each):
    site = attention(each)
    of_scores = op.AddToScores(site=site, key=1, amount=2.0, query="2..")
    found = [
        op.ZeroHead(site=site, head=1, step="2.."),
        op.ScaleHead(site=site, head=0, factor=3.0, query=-1),
        op.ScaleHead(site=site, head=2, factor=2.0, query="t9"),
        of_scores,
    ]
    if "mask" in dict(each.model.attention_points())[site].sites:
        found += [op.CutEdge(site=site, key=-2, query=-1), op.CutEdge(site=site, key="t9")]
    return found


def edited(each, edit, **options):
    with attnlab.edit(each.model, edit) as certificate:
        found = generate(each, **options)
    return found, certificate


@each_generation(("gpt2", 1), ("mistral", 1), ("gptj", 1), ("bart", 3))
def test_edits_do_the_same_with_a_cache_and_without(name, beams):
    each = tried(name)
    inputs = prompts(each)
    inputs["input_ids"][:, 3] = 9
    for edit in edits_of(each)[0 if name == "gpt2" else -2 :]:
        if is_both(each) and "t9" in (edit.query, getattr(edit, "key", None)):
            continue
        with attnlab.edit(each.model, edit, vocabulary="t{}".format) as certificate:
            with_cache = generate(each, inputs, num_beams=beams)
        with attnlab.edit(each.model, edit, vocabulary="t{}".format, certify=False):
            without = generate(each, inputs, num_beams=beams, use_cache=False)
        assert certificate.holds, str(certificate)
        assert torch.equal(with_cache.sequences, without.sequences), edit
        assert furthest(list(with_cache.logits), list(without.logits)) < 2e-4, edit


@pytest.mark.parametrize("name", ["llama", "bart"])
def test_a_seed_draws_the_same_tokens_whoever_looks(name):
    each = tried(name)
    found = []
    for looks in (False, True):
        torch.manual_seed(3)
        with attnlab.record(each.model, "*") if looks else mock.MagicMock():
            found.append(
                generate(each, do_sample=True, temperature=2.0, num_return_sequences=2).sequences
            )
    assert torch.equal(*found)
    assert not torch.equal(found[0][0], found[0][1])


@pytest.mark.parametrize("name", sampled(["gpt2", "llama"], 1))
def test_left_padding_is_known_and_changes_nothing(name):
    each = tried(name)
    site, inputs = f"{attention(each)}.weights", prompts(each, rows=1)
    padded = {kind: torch.nn.functional.pad(value, (3, 0)) for kind, value in inputs.items()}
    both = {kind: torch.cat((padded[kind], padded[kind].roll(1, -1))) for kind in padded}
    both["attention_mask"][1] = 1
    with attnlab.record(each.model, site) as recording:
        found = generate(each, both)
    whole = recording.joined()
    queries, keys = whole.real(site, 0)
    assert queries == keys == [False] * 3 + [True] * (len(keys) - 3)
    assert all(whole.real(site, 1)[1])
    assert float(whole[site][0, :, 3:, :3].max()) == 0.0
    assert torch.equal(found.sequences[0, 10:], generate(each, inputs).sequences[0, 7:])


@pytest.mark.parametrize("name", ["mistral", "t5"])
def test_the_certificate_of_a_generation_is_what_its_logits_show(name):
    """An edit of the third pass alone, whose doing later passes find in the cache."""
    each = tried(name)
    late = op.ScaleHead(site=attention(each), head=1, factor=5.0, step=3)
    found, certificate = edited(each, late)
    text = {**prompts(each), "decoder_input_ids": found.sequences[:, :-1]}
    if not is_both(each):
        text = {"input_ids": found.sequences[:, :-1]}
    with torch.no_grad():
        plain = each.foreign(**text, use_cache=False).logits[:, -NEW:]
    largest = float((torch.stack(found.logits, 1) - plain).abs().max())
    assert largest > 1e-3
    assert certificate.effects[""].largest == pytest.approx(largest, abs=1e-4)


def test_passes_of_a_beam_search_that_took_other_rows_are_counted_as_not_compared():
    each = tried("llama")
    _, certificate = edited(each, op.ZeroHead(site=attention(each), head=0), num_beams=3)
    assert certificate.effects[""].passes == 1
    assert certificate.effects[""].largest > 0.0
    (line,) = (line for line in certificate.not_checked if "reordered its rows" in line)
    assert "the output of 4 more forward passes" in line


def test_the_certificate_compares_an_encoder_that_is_called_by_itself():
    each = tried("t5")
    _, certificate = edited(each, op.ZeroHead(site="encoder.layers.0.attention", head=0))
    assert certificate.effects["encoder"].largest > 0.0
    assert certificate.identity == 0.0


def test_the_certificate_leaves_a_foreign_cache_as_the_pass_left_it():
    each, cache = tried("llama"), transformers.DynamicCache()
    ids = prompts(each)["input_ids"]
    with torch.no_grad(), attnlab.edit(each.model, op.ZeroHead(layer=0, head=0)) as certificate:
        each.foreign(input_ids=ids, past_key_values=cache)
        assert cache.get_seq_length() == ids.shape[1]
        each.foreign(input_ids=ids[:, :1], past_key_values=cache)
    assert certificate.identity == 0.0


def test_a_sink_is_no_fault():
    each = tried("gpt_oss")
    _, certificate = edited(each, op.ShufflePattern(site=attention(each)))
    assert certificate.holds
    assert certificate.rows[f"{attention(each)}.weights"].off > 0
    assert "because of something earlier (a sink of the model" in str(certificate)


def test_a_static_cache_is_shown_as_it_is_and_its_empty_places_have_no_names():
    each = tried("llama")
    site = f"{attention(each)}.weights"
    plain = generate(each)

    def roomy():
        return transformers.StaticCache(each.foreign.config, max_cache_len=20)

    with attnlab.record(each.model, site) as recording:
        found = generate(each, past_key_values=roomy(), disable_compile=True)
    assert torch.equal(found.sequences, plain.sequences)
    whole, text = recording.joined(site), prompts(each)["input_ids"].shape[1] + NEW - 1
    anew = read_at_once(each, found.sequences[:, :-1], {}, site)
    assert difference(whole[..., :text], anew) < 1e-5
    assert float(whole[..., text:].sum()) == 0.0
    assert recording.tokens(site).key[0] == "[0]"
    with (
        pytest.raises(WrongUsage, match="holds 20 keys"),
        attnlab.edit(each.model, op.CutEdge(layer=0, key=-1)),
    ):
        generate(each, past_key_values=roomy(), disable_compile=True)


def test_a_cache_of_another_text_gives_no_names():
    each = tried("gpt2")
    site = f"{attention(each)}.weights"
    ids = prompts(each)["input_ids"]
    with torch.no_grad(), attnlab.record(each.model, site) as recording:
        cache = each.foreign(input_ids=ids).past_key_values
        each.foreign(input_ids=ids + 1)
        each.foreign(input_ids=ids[:, :1], past_key_values=copy.deepcopy(cache))
    assert recording.tokens(site).key[:2] == ["[0]", "[1]"]
    with pytest.raises(WrongUsage, match="cannot be joined"):
        recording.joined(site)
    with torch.no_grad(), attnlab.record(each.model, site) as recording:
        cache = each.foreign(input_ids=ids).past_key_values
        each.foreign(input_ids=ids[:, :1], past_key_values=cache)
    assert recording.tokens(site).key == list(map(str, [*ids[0].tolist(), int(ids[0, 0])]))


def test_a_beam_search_can_be_kept_and_cut(tmp_path):
    each = tried("gpt2")
    site = f"{attention(each)}.weights"
    with attnlab.record(each.model, site) as recording:
        generate(each, num_beams=3)
    kept = open_recording(recording.save(tmp_path / "beams"))
    for row in range(6):
        assert kept.tokens(site, row) == recording.tokens(site, row)
    assert torch.equal(kept.joined(site), recording.joined(site))
    some = recording.joined().select(rows=[4])
    assert some.tokens(site).query == recording.joined().tokens(site, 4).query


def interrupted(each, point, passes):
    """Break off in the middle of a pass, as Ctrl-C does."""
    return broken_off(each, point, passes, KeyboardInterrupt())


@pytest.mark.parametrize("name", sampled(["gpt2", "t5", "gptj"], 2))
def test_a_generation_that_is_interrupted_leaves_nothing_behind(name):
    each = tried(name)
    plain, site = generate(each), f"{attention(each)}.weights"
    with attnlab.record(each.model, site) as recording:
        with pytest.raises(KeyboardInterrupt), interrupted(each, attention(each, 1), 3):
            generate(each)
        again = generate(each)  # also while somebody still looks
        check_joined(each, recording, prompts(each), site)
    assert torch.equal(again.sequences, plain.sequences)
    assert installed_hooks(each.foreign) == []


def test_a_mode_of_the_user_s_own_is_left_where_it_is():
    each, own = tried("gptj"), torch.device("cpu")
    with attnlab.record(each.model, f"{attention(each)}.weights"):
        with pytest.raises(KeyboardInterrupt), own, interrupted(each, attention(each, 1), 2):
            generate(each)
        assert torch._C._len_torch_function_stack() == 0


def test_a_pass_that_is_interrupted_is_not_counted_on():
    each = tried("albert")
    sound, _ = recorded_weights(each)
    with attnlab.record(each.model, "*weights") as recording:
        with pytest.raises(KeyboardInterrupt), interrupted(each, each.points[1], 1):
            each.run()
        each.run()
    for point, weights in zip(each.points, sound, strict=True):
        assert torch.equal(recording[f"{point}.weights"], weights)


joined = test_the_steps_of_a_generation_are_joined_to_what_one_pass_would_show
cached = test_edits_do_the_same_with_a_cache_and_without
sources = test_the_cross_panel_names_the_source_of_each_row
foreign_cache = test_the_certificate_leaves_a_foreign_cache_as_the_pass_left_it
reordered = test_passes_of_a_beam_search_that_took_other_rows_are_counted_as_not_compared
left_behind = test_a_generation_that_is_interrupted_leaves_nothing_behind
FIRST, LENGTH = "return length - num_keys", "int(cache.get_seq_length())"
KEY = "return first_key(text.length, num_keys, text.offset)"
EMPTY = "cache if cache_length(cache) else copy.deepcopy(cache)"
TWIN = "self._twins[cache] = copy.deepcopy(cache)"
APART = "before, self._own.current_pass = self.current_pass, PassState()"
NOW = "_orders[cache] = now"
FAULTS = {
    "pretrained.pass_state": [
        ("return order_of(cache)", "return None", joined, "gpt2", 3),
        (LENGTH, f"{LENGTH} + 1", joined, "gpt2", 1),
        ("made.repeat_interleave(times, 0)", "made.repeat(times, 1, 1)", sources, "t5", 3),
        ("if not self._depth:", "if False:", test_a_pass_that_is_interrupted_is_not_counted_on),
        ("self._depth -= 1", "self._depth -= 0", left_behind, "gptj"),
    ],
    "pretrained.backends.caches": [
        (NOW, NOW.replace("now", "torch.arange(len(now))"), joined, "gpt2", 3),
    ],
    "pretrained.model": [(APART, "before = self.current_pass", cached, "gpt2", 1)],
    "look.recording.tokens": [
        ("return int(self.rows[row])", "return row", joined, "gpt2", 3),
        (FIRST, f"{FIRST} - 1", joined, "mistral", 1),
        (FIRST, "return 0", joined, "mistral", 1),
    ],
    "edits.edit_context": [
        (KEY, "return 0", cached, "mistral", 1),
        ("return not tokens.is_floating_point() and", "return False and", cached, "llama", 3),
    ],
    "edits.cache_twins": [
        (EMPTY, "cache", foreign_cache),
        (TWIN, TWIN.replace("copy.deepcopy(cache)", "cache"), foreign_cache),
    ],
    "edits.checks": [
        ("if self._editor.history.is_reordered:", "if False:", reordered),
    ],
}


test_every_fault_has_its_place_in_the_code, test_a_planted_fault_is_noticed = fault_tests(
    faults_of(FAULTS)
)
