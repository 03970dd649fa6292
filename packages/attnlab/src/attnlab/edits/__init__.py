"""Edits: small frozen values that say what to change, and where; and the context that applies them.

    with edit(model, ZeroHead(layer=0, head=1)) as certificate:
        model(tokens)

Edits of masks, scores and weights are in `attention_edits.py`; of heads and all else, in
`site_edits.py`.

| what | edits | site |
| --- | --- | --- |
| whole heads | ZeroHead, ScaleHead, MeanHead, ResampleHead, SwapHeads | heads |
| who may attend to whom | CutEdge, CutTokens, SetMask, ShiftMask, RelaxMask | mask |
| scores, before the softmax | ScaleScores, AddToScores, Temperature | scores |
| weights, after it | SetPattern, FreezePattern, UniformPattern, ShufflePattern | weights |
| | RedirectToFirst | weights |
| what is attended to | ZeroValue | value |
| anything else | Patch, AddVector, ZeroSite, ScaleSite, MeanSite | any that `site=` names |

    >>> ZeroHead(layer=3, head=5)
    ZeroHead(layer=3, head=5)
    >>> CutEdge(query=-1, key=["cat", "2..4"]).to_json()["key"]
    ['cat', '2..4']
"""

from typing import TYPE_CHECKING, NoReturn

from attnlab.edits import attention_edits, site_edits
from attnlab.edits.application import edit
from attnlab.edits.attention_edits import *  # noqa: F403
from attnlab.edits.certificate import Certificate
from attnlab.edits.edit import Edit, edits_from_json, edits_to_json
from attnlab.edits.site_edits import *  # noqa: F403
from attnlab.errors import no_attribute

__all__ = ["Certificate", "Edit", "edit", "edits_from_json", "edits_to_json"]
__all__ += attention_edits.__all__
__all__ += site_edits.__all__

if not TYPE_CHECKING:  # a type checker knows the names

    def __getattr__(name: str) -> NoReturn:
        raise no_attribute(__name__, name, __all__)
