"""attnlab, the attention workbench: build, design, train, look at, operate on and teach small transformers.

The names below are the whole face. They are looked up when first used, so that `import attnlab` is quick and needs
torch and NumPy alone.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_FACE = {
    "attnlab.design": "prove",
    "attnlab.draw.attention": (
        "draw_difference draw_head draw_heads draw_long_map draw_measure draw_rows draw_trace save_figure"
    ),
    "attnlab.draw.corpus": "write_corpus_page",
    "attnlab.draw.documents": "write_document",
    "attnlab.draw.view": "view_page write_view",
    "attnlab.errors": "AttnlabError",
    "attnlab.experiments.asking": "ask",
    "attnlab.experiments.loading": "load",
    "attnlab.experiments.population": "open_population open_run train_population",
    "attnlab.experiments.registry": "run",
    "attnlab.experiments.resuming": "resume",
    "attnlab.experiments.search": "search",
    "attnlab.experiments.sweeps": "sweep",
    "attnlab.experiments.viewer": "show",
    "attnlab.look": "open_recording record",
    "attnlab.look.corpus": "Corpus open_search search_corpus",
    "attnlab.look.documents": "open_document summarise_document",
    "attnlab.look.questions": "recorded",
    "attnlab.look.lens": "direct_logits head_lens logit_lens",
    "attnlab.look.summaries": "Summarise Zoom head_similarity summarise",
    "attnlab.models": (
        "Decoder DecoderConfig Encoder EncoderConfig EncoderDecoder EncoderDecoderConfig SingleHead "
        "SingleHeadConfig generate save_model"
    ),
    "attnlab.operate": (
        "AddToScores AddVector Certificate CutEdge CutTokens Edit FreezePattern MeanHead MeanSite Patch "
        "RedirectToFirst RelaxMask ResampleHead ScaleHead ScaleScores ScaleSite SetMask SetPattern ShiftMask "
        "ShufflePattern SwapHeads Temperature UniformPattern ZeroHead ZeroSite ZeroValue edit edits_from_json "
        "edits_to_json"
    ),
    "attnlab.operate.effects": "How Metric Place Rule assess does_it_matter effect knock_out patch_all patch_paths",
    "attnlab.operate.forking": "fork",
    "attnlab.pretrained.family": "Family register_family",
    "attnlab.pretrained.products": "faster_products",
    "attnlab.parts.attend": "attend",
    "attnlab.parts.fused": "use_attention_path",
    "attnlab.parts.heads": "multi_head_attention",
    "attnlab.parts.linear": "use_matrix_path",
    "attnlab.parts.masks": "anti_causal_mask block_mask causal_mask padding_mask prefix_mask sliding_window_mask",
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
    from attnlab.draw.documents import write_document as write_document
    from attnlab.draw.view import view_page as view_page
    from attnlab.draw.view import write_view as write_view
    from attnlab.errors import AttnlabError as AttnlabError
    from attnlab.experiments.asking import ask as ask
    from attnlab.experiments.loading import load as load
    from attnlab.experiments.population import open_population as open_population
    from attnlab.experiments.population import open_run as open_run
    from attnlab.experiments.population import train_population as train_population
    from attnlab.experiments.registry import run as run
    from attnlab.experiments.resuming import resume as resume
    from attnlab.experiments.search import search as search
    from attnlab.experiments.sweeps import sweep as sweep
    from attnlab.experiments.viewer import show as show
    from attnlab.look import open_recording as open_recording
    from attnlab.look import record as record
    from attnlab.look.corpus import Corpus as Corpus
    from attnlab.look.corpus import open_search as open_search
    from attnlab.look.corpus import search_corpus as search_corpus
    from attnlab.look.documents import open_document as open_document
    from attnlab.look.documents import summarise_document as summarise_document
    from attnlab.look.lens import direct_logits as direct_logits
    from attnlab.look.lens import head_lens as head_lens
    from attnlab.look.lens import logit_lens as logit_lens
    from attnlab.look.questions import recorded as recorded
    from attnlab.look.summaries import Summarise as Summarise
    from attnlab.look.summaries import Zoom as Zoom
    from attnlab.look.summaries import head_similarity as head_similarity
    from attnlab.look.summaries import summarise as summarise
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
    from attnlab.operate import AddToScores as AddToScores
    from attnlab.operate import AddVector as AddVector
    from attnlab.operate import Certificate as Certificate
    from attnlab.operate import CutEdge as CutEdge
    from attnlab.operate import CutTokens as CutTokens
    from attnlab.operate import Edit as Edit
    from attnlab.operate import FreezePattern as FreezePattern
    from attnlab.operate import MeanHead as MeanHead
    from attnlab.operate import MeanSite as MeanSite
    from attnlab.operate import Patch as Patch
    from attnlab.operate import RedirectToFirst as RedirectToFirst
    from attnlab.operate import RelaxMask as RelaxMask
    from attnlab.operate import ResampleHead as ResampleHead
    from attnlab.operate import ScaleHead as ScaleHead
    from attnlab.operate import ScaleScores as ScaleScores
    from attnlab.operate import ScaleSite as ScaleSite
    from attnlab.operate import SetMask as SetMask
    from attnlab.operate import SetPattern as SetPattern
    from attnlab.operate import ShiftMask as ShiftMask
    from attnlab.operate import ShufflePattern as ShufflePattern
    from attnlab.operate import SwapHeads as SwapHeads
    from attnlab.operate import Temperature as Temperature
    from attnlab.operate import UniformPattern as UniformPattern
    from attnlab.operate import ZeroHead as ZeroHead
    from attnlab.operate import ZeroSite as ZeroSite
    from attnlab.operate import ZeroValue as ZeroValue
    from attnlab.operate import edit as edit
    from attnlab.operate import edits_from_json as edits_from_json
    from attnlab.operate import edits_to_json as edits_to_json
    from attnlab.operate.effects import How as How
    from attnlab.operate.effects import Metric as Metric
    from attnlab.operate.effects import Place as Place
    from attnlab.operate.effects import Rule as Rule
    from attnlab.operate.effects import assess as assess
    from attnlab.operate.effects import does_it_matter as does_it_matter
    from attnlab.operate.effects import patch_all as patch_all
    from attnlab.operate.effects import patch_paths as patch_paths
    from attnlab.operate.effects.effect import effect as effect
    from attnlab.operate.effects.knock_out import knock_out as knock_out
    from attnlab.operate.forking import fork as fork
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


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'attnlab' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
