"""Edits: small frozen values that say what to change, and where; `Edit` says how places are written.

| what | edits | site |
| --- | --- | --- |
| whole heads | ZeroHead, ScaleHead, MeanHead, ResampleHead, SwapHeads | heads |
| who may look at whom | CutEdge, CutTokens, SetMask, ShiftMask, RelaxMask | mask |
| scores, before the softmax | ScaleScores, AddToScores, Temperature | scores |
| patterns, after it | SetPattern, FreezePattern, UniformPattern, ShufflePattern, RedirectToFirst | weights |
| what is looked at | ZeroValue | value |
| anything else | Patch, AddVector, ZeroSite, ScaleSite, MeanSite | any that `site=` names |

    >>> ZeroHead(layer=3, head=5)
    ZeroHead(layer=3, head=5)
    >>> CutEdge(query=-1, key=["cat", "2..4"]).to_json()
    {'edit': 'CutEdge', 'version': 1, 'query': -1, 'key': ['cat', '2..4']}
"""

from attnlab.operate.edits.edit import Edit
from attnlab.operate.edits.form import edits_from_json, edits_to_json
from attnlab.operate.edits.heads import MeanHead, ResampleHead, ScaleHead, SwapHeads, ZeroHead
from attnlab.operate.edits.masks import CutEdge, CutTokens, RelaxMask, SetMask, ShiftMask
from attnlab.operate.edits.patterns import FreezePattern, RedirectToFirst, SetPattern, ShufflePattern, UniformPattern
from attnlab.operate.edits.scores import AddToScores, ScaleScores, Temperature
from attnlab.operate.edits.streams import AddVector, MeanSite, Patch, ScaleSite, ZeroSite, ZeroValue

__all__ = [
    "AddToScores",
    "AddVector",
    "CutEdge",
    "CutTokens",
    "Edit",
    "FreezePattern",
    "MeanHead",
    "MeanSite",
    "Patch",
    "RedirectToFirst",
    "RelaxMask",
    "ResampleHead",
    "ScaleHead",
    "ScaleScores",
    "ScaleSite",
    "SetMask",
    "SetPattern",
    "ShiftMask",
    "ShufflePattern",
    "SwapHeads",
    "Temperature",
    "UniformPattern",
    "ZeroHead",
    "ZeroSite",
    "ZeroValue",
    "edits_from_json",
    "edits_to_json",
]
