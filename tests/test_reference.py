"""The reference of the site has every public name, and nothing that is gone."""

import importlib
import re
from pathlib import Path

import pytest
import reference_index
import search_index
import signatures

import attnlab
from attnlab import edits

PAGES = sorted((Path(__file__).parents[1] / "docs" / "reference").glob("*.md"))
ENTRIES = re.findall(
    r"^\.\. auto(?:function|class|module):: (\S+)$", "".join(map(Path.read_text, PAGES)), re.M
)
MODULES = {"__version__", "course", "edits"}  # they have pages, or need none


def test_every_public_name_has_an_entry():
    names = set(attnlab.__all__) - MODULES | {f"edits.{name}" for name in edits.__all__}
    listed = {entry.removeprefix("attnlab.") for entry in ENTRIES}
    listed |= {entry.removeprefix("edits.") for entry in listed}
    listed |= {f"edits.{entry}" for entry in listed}
    assert names - listed == set()


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_names_what_there_is(entry):
    module, _, name = entry.rpartition(".")
    assert hasattr(importlib.import_module(module), name)


def test_the_index_has_every_entry_with_a_sentence():
    rows = list(reference_index.names())
    assert [row.name for row in rows if not row.sentence] == []
    assert set(ENTRIES) - {row.name for row in rows} == {"attnlab.plot"}  # whose figures it has


def test_a_name_without_a_sentence_is_seen(monkeypatch):
    monkeypatch.setattr(attnlab.record, "__doc__", "Record\n\nAll of it.")
    assert search_index.sentence_of("attnlab.record") == ""
    assert search_index.sentence_of("attnlab.plot.head").endswith(".")


def test_a_signature_has_names_and_defaults_and_no_types():
    def shown(name, thing, signature="(model)"):
        return signatures.shorten(None, "", name, thing, None, signature, "")

    assert shown("attnlab.ablate", attnlab.ablate) == ("(model)", "Ablation")
    assert shown("attnlab.edits.ScaleHead", edits.ScaleHead) == ("(**targets, factor)", "")
    assert shown("attnlab.edits.CutEdge", edits.CutEdge) == ("(**targets, renormalise=True)", "")
    assert shown("attnlab.edits.Certificate", edits.Certificate) == ("", "")


def test_each_setting_of_a_config_has_a_line():
    lines = []
    signatures.add_settings(None, "", "", attnlab.DecoderConfig, None, lines)
    assert len(lines) == len(attnlab.DecoderConfig.options())
    assert ":param norm: Which norm. One of `layer`, `rms`. By default `layer`." in lines
