"""attnlab, the attention workbench: build, design, train, look at, operate on and teach small transformers.

The names below are the whole face. They are looked up when first used, so that `import attnlab` is quick and needs
torch and NumPy alone.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "AttnlabError": "attnlab.errors",
    "Decoder": "attnlab.models",
    "DecoderConfig": "attnlab.models",
    "Encoder": "attnlab.models",
    "EncoderConfig": "attnlab.models",
    "EncoderDecoder": "attnlab.models",
    "EncoderDecoderConfig": "attnlab.models",
    "SingleHead": "attnlab.models",
    "SingleHeadConfig": "attnlab.models",
    "anti_causal_mask": "attnlab.parts.masks",
    "attend": "attnlab.parts.attend",
    "block_mask": "attnlab.parts.masks",
    "causal_mask": "attnlab.parts.masks",
    "generate": "attnlab.models",
    "load": "attnlab.experiments",
    "multi_head_attention": "attnlab.parts.heads",
    "open_population": "attnlab.experiments",
    "open_run": "attnlab.experiments",
    "padding_mask": "attnlab.parts.masks",
    "prefix_mask": "attnlab.parts.masks",
    "prove": "attnlab.design",
    "record": "attnlab.look",
    "resume": "attnlab.experiments",
    "run": "attnlab.experiments",
    "save_model": "attnlab.models",
    "search": "attnlab.experiments.search",
    "sliding_window_mask": "attnlab.parts.masks",
    "sweep": "attnlab.experiments.sweeps",
    "train_population": "attnlab.experiments",
    "use_matrix_path": "attnlab.parts.linear",
}

__all__ = ["__version__", *sorted(_HOME)]  # noqa: PLE0604

if TYPE_CHECKING:
    from attnlab.design import prove as prove
    from attnlab.errors import AttnlabError as AttnlabError
    from attnlab.experiments import load as load
    from attnlab.experiments import open_population as open_population
    from attnlab.experiments import open_run as open_run
    from attnlab.experiments import resume as resume
    from attnlab.experiments import run as run
    from attnlab.experiments import train_population as train_population
    from attnlab.experiments.search import search as search
    from attnlab.experiments.sweeps import sweep as sweep
    from attnlab.look import record as record
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
    from attnlab.parts.heads import multi_head_attention as multi_head_attention
    from attnlab.parts.linear import use_matrix_path as use_matrix_path
    from attnlab.parts.masks import anti_causal_mask as anti_causal_mask
    from attnlab.parts.masks import block_mask as block_mask
    from attnlab.parts.masks import causal_mask as causal_mask
    from attnlab.parts.masks import padding_mask as padding_mask
    from attnlab.parts.masks import prefix_mask as prefix_mask
    from attnlab.parts.masks import sliding_window_mask as sliding_window_mask


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'attnlab' has no attribute {name!r}")
    module, _, original = _HOME[name].partition(":")
    return getattr(importlib.import_module(module), original or name)


def __dir__() -> list[str]:
    return list(__all__)
