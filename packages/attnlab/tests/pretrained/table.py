"""The tables of families in the documents, measured. `cd packages/attnlab && python -m
tests.pretrained.table` writes them anew."""

import re
from datetime import date
from functools import cache
from pathlib import Path

import torch

import attnlab
from tests.pretrained.families import FAMILIES, REFUSED
from tests.pretrained.trying import difference, furthest, logits_of, recorded_weights, same, tried

DOCUMENT = Path(__file__).parents[4] / "docs" / "families.md"

_WANTED = ["attention.query", "attention.output", "residual_before", "residual_between"]
_WANTED += ["feed_forward.hidden", "feed_forward.output"]


@cache
def looked(name):
    """How far weights that are only looked at are from the model's own."""
    each = tried(name)
    return furthest(recorded_weights(each)[0], each.own_weights)


@cache
def opened(name):
    """How far open weights, and outputs under edits that change nothing, are from the model's."""
    each = tried(name)
    with attnlab.edit(each.model, *same(each)) as certificate:
        weights, output = recorded_weights(each)
    assert certificate.failures == []
    return furthest(weights, each.own_weights), difference(output, logits_of(each.run_eager()))


def document():
    """Write the page anew: its prose stays, its tables and figures are measured."""
    import transformers

    page = DOCUMENT.read_text(encoding="utf-8")
    refused = [f"| {name} | {why} |" for name, (_, why) in REFUSED.items()]
    for old, new in (
        (r"transformers [\d.]+\d", f"transformers {transformers.__version__}"),
        (r"torch [\d.]+\d", f"torch {torch.__version__.partition('+')[0]}"),
        (r"\d+ families, \d+ refused", f"{len(FAMILIES)} families, {len(REFUSED)} refused"),
        (r"(?<=\| --- \|\n)(\|( [^|]*\|){2}\n)+", _lines(refused)),
        (r"(?<=\| --- \|\n)(\|( [^|]*\|){7}\n)+", _lines(_table())),
    ):
        page, count = re.subn(old, lambda _, new=new: new, page)
        assert count == 1, f"the page has {count} places for {old!r}"
    return page


def _lines(rows):
    return "".join(f"{row}\n" for row in rows)


def _table():
    for name, family in FAMILIES.items():
        each = tried(name)
        backend = ", ".join(sorted({plan.backend for _, plan in each.model.structure.attentions}))
        is_made = any(point.is_lazy for _, point in each.model.attention_points())
        bounds = _bound(looked(name), is_made), _bound(max(opened(name)), not family.is_exact)
        cells = (name, family.kind, family.has, backend, *bounds, _absent(name))
        yield f"| {' | '.join(cells)} |"


def _bound(found, is_made=False):
    """Write how large a difference is at most."""
    if found == 0.0 and not is_made:
        return "to the bit"
    return next(f"{bound:.0e}".replace("e-0", "e-") for bound in (1e-6, 1e-5) if found <= bound)


def _absent(name):
    sites = attnlab.sites.site_names(tried(name).model)
    return ", ".join(
        f"`{wanted}`" for wanted in _WANTED if not any(site.endswith(wanted) for site in sites)
    )


if __name__ == "__main__":
    torch.set_num_threads(1)  # for models this small, more are slower
    today = re.sub(r"Measured on [-\d]+", f"Measured on {date.today()}", document())
    DOCUMENT.write_text(today, encoding="utf-8")
