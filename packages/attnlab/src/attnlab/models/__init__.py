"""Models: parts put together, one architecture a file, each with its frozen config."""

from attnlab.models.decoder import Decoder, DecoderConfig
from attnlab.models.encoder import Encoder, EncoderConfig
from attnlab.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from attnlab.models.generation import Generation, generate
from attnlab.models.parameters import count_from_model
from attnlab.models.single_head import SingleHead, SingleHeadConfig
from attnlab.models.storage import load_model, save_model

__all__ = [
    "Decoder", "DecoderConfig", "Encoder", "EncoderConfig", "EncoderDecoder",
    "EncoderDecoderConfig", "Generation", "SingleHead", "SingleHeadConfig", "count_from_model",
    "generate", "load_model", "save_model",
]  # fmt: skip
