"""attnlab, the attention workbench: build, design, train, look at, edit and teach small
transformers.

The names below are the whole face. They are looked up when first used, so that `import attnlab` is
quick and needs torch and NumPy alone.
"""

import importlib
import warnings
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_FACE = {
    "attnlab.design": "prove",
    "attnlab.draw.attention": (
        "draw_difference draw_head draw_heads draw_long_map draw_measure draw_rows "
        "draw_trace save_figure"
    ),
    "attnlab.draw.corpus": "write_corpus_page",
    "attnlab.draw.long_text_report": "write_document",
    "attnlab.draw.view": "view_page write_view",
    "attnlab.errors": "AttnlabError",
    "attnlab.experiments.prompts": "ask",
    "attnlab.experiments.model_loader": "load",
    "attnlab.experiments.population": "open_population open_run train_population",
    "attnlab.experiments.registry": "run",
    "attnlab.experiments.resumption": "resume",
    "attnlab.experiments.search": "search",
    "attnlab.experiments.sweeps": "sweep",
    "attnlab.experiments.viewer": "show",
    "attnlab.look": "open_recording record",
    "attnlab.look.corpus": "Corpus open_search search_corpus",
    "attnlab.look.long_text": "open_document summarize_document",
    "attnlab.look.questions": "recorded",
    "attnlab.look.lens": "direct_logits head_lens logit_lens",
    "attnlab.look.summaries": "Summarize Zoom head_similarity summarize",
    "attnlab.models": (
        "Decoder DecoderConfig Encoder EncoderConfig EncoderDecoder EncoderDecoderConfig "
        "SingleHead SingleHeadConfig generate save_model"
    ),
    "attnlab.edits": (
        "AddToScores AddVector Certificate CutEdge CutTokens Edit FreezePattern MeanHead "
        "MeanSite Patch RedirectToFirst RelaxMask ResampleHead ScaleHead ScaleScores ScaleSite "
        "SetMask SetPattern ShiftMask ShufflePattern SwapHeads Temperature UniformPattern "
        "ZeroHead ZeroSite ZeroValue edit edits_from_json edits_to_json"
    ),
    "attnlab.edits.effects": (
        "How Metric Place Rule assess pattern_effects effect ablate patch_all patch_paths"
    ),
    "attnlab.edits.forks": "fork",
    "attnlab.pretrained.family": "Family register_family",
    "attnlab.pretrained.products": "faster_products",
    "attnlab.parts.attend": "attend",
    "attnlab.parts.fused": "use_attention_path",
    "attnlab.parts.heads": "multi_head_attention",
    "attnlab.parts.linear": "use_matrix_path",
    "attnlab.parts.masks": (
        "anti_causal_mask block_mask causal_mask padding_mask prefix_mask sliding_window_mask"
    ),
}
"""Every public name, by the module it lives in."""

_HOME = {name: module for module, names in _FACE.items() for name in names.split()}

__all__ = ["__version__", *sorted(_HOME)]  # noqa: PLE0604

if TYPE_CHECKING:
    from attnlab.design import prove as prove
    from attnlab.draw.attention import draw_difference as draw_difference
    from attnlab.draw.attention import draw_head as draw_head
    from attnlab.draw.attention import draw_heads as draw_heads
    from attnlab.draw.attention import draw_long_map as draw_long_map
    from attnlab.draw.attention import draw_measure as draw_measure
    from attnlab.draw.attention import draw_rows as draw_rows
    from attnlab.draw.attention import draw_trace as draw_trace
    from attnlab.draw.attention import save_figure as save_figure
    from attnlab.draw.corpus import write_corpus_page as write_corpus_page
    from attnlab.draw.long_text_report import write_document as write_document
    from attnlab.draw.view import view_page as view_page
    from attnlab.draw.view import write_view as write_view
    from attnlab.edits import AddToScores as AddToScores
    from attnlab.edits import AddVector as AddVector
    from attnlab.edits import Certificate as Certificate
    from attnlab.edits import CutEdge as CutEdge
    from attnlab.edits import CutTokens as CutTokens
    from attnlab.edits import Edit as Edit
    from attnlab.edits import FreezePattern as FreezePattern
    from attnlab.edits import MeanHead as MeanHead
    from attnlab.edits import MeanSite as MeanSite
    from attnlab.edits import Patch as Patch
    from attnlab.edits import RedirectToFirst as RedirectToFirst
    from attnlab.edits import RelaxMask as RelaxMask
    from attnlab.edits import ResampleHead as ResampleHead
    from attnlab.edits import ScaleHead as ScaleHead
    from attnlab.edits import ScaleScores as ScaleScores
    from attnlab.edits import ScaleSite as ScaleSite
    from attnlab.edits import SetMask as SetMask
    from attnlab.edits import SetPattern as SetPattern
    from attnlab.edits import ShiftMask as ShiftMask
    from attnlab.edits import ShufflePattern as ShufflePattern
    from attnlab.edits import SwapHeads as SwapHeads
    from attnlab.edits import Temperature as Temperature
    from attnlab.edits import UniformPattern as UniformPattern
    from attnlab.edits import ZeroHead as ZeroHead
    from attnlab.edits import ZeroSite as ZeroSite
    from attnlab.edits import ZeroValue as ZeroValue
    from attnlab.edits import edit as edit
    from attnlab.edits import edits_from_json as edits_from_json
    from attnlab.edits import edits_to_json as edits_to_json
    from attnlab.edits.effects import How as How
    from attnlab.edits.effects import Metric as Metric
    from attnlab.edits.effects import Place as Place
    from attnlab.edits.effects import Rule as Rule
    from attnlab.edits.effects import assess as assess
    from attnlab.edits.effects import patch_all as patch_all
    from attnlab.edits.effects import patch_paths as patch_paths
    from attnlab.edits.effects import pattern_effects as pattern_effects
    from attnlab.edits.effects.ablate import ablate as ablate
    from attnlab.edits.effects.effect import effect as effect
    from attnlab.edits.forks import fork as fork
    from attnlab.errors import AttnlabError as AttnlabError
    from attnlab.experiments.model_loader import load as load
    from attnlab.experiments.population import open_population as open_population
    from attnlab.experiments.population import open_run as open_run
    from attnlab.experiments.population import train_population as train_population
    from attnlab.experiments.prompts import ask as ask
    from attnlab.experiments.registry import run as run
    from attnlab.experiments.resumption import resume as resume
    from attnlab.experiments.search import search as search
    from attnlab.experiments.sweeps import sweep as sweep
    from attnlab.experiments.viewer import show as show
    from attnlab.look import open_recording as open_recording
    from attnlab.look import record as record
    from attnlab.look.corpus import Corpus as Corpus
    from attnlab.look.corpus import open_search as open_search
    from attnlab.look.corpus import search_corpus as search_corpus
    from attnlab.look.lens import direct_logits as direct_logits
    from attnlab.look.lens import head_lens as head_lens
    from attnlab.look.lens import logit_lens as logit_lens
    from attnlab.look.long_text import open_document as open_document
    from attnlab.look.long_text import summarize_document as summarize_document
    from attnlab.look.questions import recorded as recorded
    from attnlab.look.summaries import Summarize as Summarize
    from attnlab.look.summaries import Zoom as Zoom
    from attnlab.look.summaries import head_similarity as head_similarity
    from attnlab.look.summaries import summarize as summarize
    from attnlab.models import Decoder as Decoder
    from attnlab.models import DecoderConfig as DecoderConfig
    from attnlab.models import Encoder as Encoder
    from attnlab.models import EncoderConfig as EncoderConfig
    from attnlab.models import EncoderDecoder as EncoderDecoder
    from attnlab.models import EncoderDecoderConfig as EncoderDecoderConfig
    from attnlab.models import SingleHead as SingleHead
    from attnlab.models import SingleHeadConfig as SingleHeadConfig
    from attnlab.models import generate as generate
    from attnlab.models import save_model as save_model
    from attnlab.parts.attend import attend as attend
    from attnlab.parts.fused import use_attention_path as use_attention_path
    from attnlab.parts.heads import multi_head_attention as multi_head_attention
    from attnlab.parts.linear import use_matrix_path as use_matrix_path
    from attnlab.parts.masks import anti_causal_mask as anti_causal_mask
    from attnlab.parts.masks import block_mask as block_mask
    from attnlab.parts.masks import causal_mask as causal_mask
    from attnlab.parts.masks import padding_mask as padding_mask
    from attnlab.parts.masks import prefix_mask as prefix_mask
    from attnlab.parts.masks import sliding_window_mask as sliding_window_mask
    from attnlab.pretrained.family import Family as Family
    from attnlab.pretrained.family import register_family as register_family
    from attnlab.pretrained.products import faster_products as faster_products


_RENAMED = {
    "Summarise": "Summarize",
    "does_it_matter": "pattern_effects",
    "knock_out": "ablate",
    "summarise": "summarize",
    "summarise_document": "summarize_document",
}
"""Names of the version before, which still work for one version."""


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        warnings.warn(
            f"attnlab.{name} is now called attnlab.{_RENAMED[name]}; "
            "the old name goes with the next version.",
            DeprecationWarning,
            stacklevel=2,
        )
        name = _RENAMED[name]
    if name not in _HOME:
        raise AttributeError(f"module 'attnlab' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
