"""Every option of `lookup`: the parts, the models, the training."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self, get_args

from attnlab.configs import Config, Fields, option
from attnlab.errors import WrongUsage
from attnlab.experiments.words import Words
from attnlab.models.config import PositionKind
from attnlab.models.encoder_decoder import EncoderDecoderConfig
from attnlab.parts.blocks import NormPlace
from attnlab.seeds import generator
from attnlab.tasks.lookup import MAX_LENGTH, VOCABULARY
from attnlab.tasks.recall import MAX_FACTS, RecallTask, Variant
from attnlab.train.config import TrainConfig

NAME = "lookup"
WORDS = Words(__package__)
_WARMUP_STEPS = 100  # of an in-context look-up model


@dataclass(frozen=True, kw_only=True)
class LookupConfig(Config):
    """Every option of the experiment; those of in-context look-up begin with `recall_`."""

    FULL: ClassVar[Fields] = {
        "seeds": 20, "control_seeds": 3, "own_patience": None, "recall_seeds": 5
    }  # fmt: skip

    part: Literal["all", "fixed", "recall"] = option(
        "all", "the fixed table, new facts in every sample, or both"
    )
    samples: int = option(5_000, "size of the data set, parted 80/10/10", low=10, high=1_000_000)
    pad_to: int | None = option(
        10,
        "length to which sources and targets are padded in training; none: no padding",
        low=5,
        high=MAX_LENGTH,
    )
    d_model: int = option(64, "width of the residual stream", low=1, high=4_096)
    num_heads: int = option(4, "attention heads; they divide d_model", low=1, high=256)
    num_layers: int = option(1, "blocks of the encoder, and of the decoder", low=1, high=48)
    d_ff: int = option(128, "width inside the feed-forward part", low=1, high=16_384)
    norm_place: NormPlace = option("post", "before a sub-layer, after its sum, or nowhere")
    control_positions: PositionKind = option(
        "sinusoidal", "positions of the control's encoder, which sees the order"
    )
    seeds: int = option(
        5, "models trained, each from a seed of its own; the first is the run's", low=1, high=1_000
    )
    control_seeds: int = option(
        1, "models trained with an encoder that has positions", low=1, high=1_000
    )
    epochs: int = option(50, "largest number of epochs", low=1, high=100_000)
    patience: int | None = option(
        2,
        "epochs in a row with every validation sample right after which training ends, except "
        "for the run's own model",
        low=1,
    )
    own_patience: int | None = option(
        2, "the same for the run's own model; none: all epochs", low=1
    )
    batch_size: int = option(32, "samples of a step", low=1, high=100_000)
    learning_rate: float = option(1e-4, "rate of Adam, constant", low=0.0, high=10.0)
    variant: Literal["all", "loose", "bound", "ordered"] = option(
        "all", "the form in which the facts of in-context look-up are written"
    )
    recall_facts: int = option(8, "k, the facts of a sample", low=1, high=MAX_FACTS)
    recall_keys: int = option(32, "number of keys", low=2, high=1_000)
    recall_values: int = option(32, "number of values", low=2, high=1_000)
    recall_held_out: int = option(
        16, "one in so many pairs of key and value is held out of training", low=2, high=10_000
    )
    recall_seeds: int = option(2, "models trained of each variant", low=1, high=1_000)
    recall_d_model: int = option(64, "width of the residual stream", low=1, high=4_096)
    recall_heads: int = option(4, "attention heads; they divide recall_d_model", low=1, high=256)
    recall_layers: int = option(1, "blocks of the encoder, and of the decoder", low=1, high=48)
    recall_positions: PositionKind = option(
        "learned", "positions of the encoder that reads ordered facts"
    )
    recall_steps: int = option(
        1_200,
        "largest number of optimiser steps; a model that has solved the problem ends sooner",
        low=1,
        high=10**7,
    )
    recall_ramp: int = option(
        40,
        "steps after which training samples may hold one more fact, from 1 to k",
        low=1,
        high=10**7,
    )
    recall_batch_size: int = option(
        64, "samples of a step, each with a question about every fact", low=1, high=100_000
    )
    recall_learning_rate: float = option(3e-3, "rate of Adam, constant", low=0.0, high=10.0)
    recall_judged: int = option(
        2_000, "new samples on which each model is evaluated", low=10, high=1_000_000
    )

    def validate(self) -> None:
        """Check combinations of fields."""
        self.model_config()
        self.model_config(encoder_positions=self.control_positions)
        if self.control_positions == "none":
            raise WrongUsage(
                "control_positions must not be none, since the control must see the order."
            )
        for config in self.readers:
            config.recall_model_config()
            task = config.recall_task()
            task.sample_training(self.recall_batch_size, generator(0, NAME, "probe"))

    @property
    def has_fixed(self) -> bool:
        """Whether the fixed table is part of the run."""
        return self.part != "recall"

    @property
    def readers(self) -> Sequence[Self]:
        """The same config for each variant of in-context look-up that is part of the run."""
        if self.part == "fixed":
            return ()
        if self.variant != "all":
            return (self,)
        return [replace(self, variant=variant) for variant in get_args(Variant)]

    @property
    def reader_variant(self) -> Variant:
        """The variant; of all of them, the one whose model answers facts that a person types."""
        return "bound" if self.variant == "all" else self.variant

    def model_config(self, *, encoder_positions: PositionKind = "none") -> EncoderDecoderConfig:
        """Return the config of a model of the fixed table."""
        return EncoderDecoderConfig(
            vocab_size=len(VOCABULARY),
            max_length=MAX_LENGTH,
            **self.fields_of(EncoderDecoderConfig),
            final_norm=self.norm_place == "pre",
            positions="concatenated" if encoder_positions == "concatenated" else "sinusoidal",
            encoder_positions=encoder_positions,
        )

    def steps_per_epoch(self) -> int:
        """Return the number of batches of an epoch."""
        return max(1, round((self.samples - 2 * (self.samples // 10)) / self.batch_size))

    def train_config(self) -> TrainConfig:
        """Return the training of a fixed-table model: plain Adam, evaluated after each epoch."""
        return TrainConfig(
            steps=self.epochs * self.steps_per_epoch(),
            evaluate_every=self.steps_per_epoch(),
            learning_rate=self.learning_rate,
            final_share=1.0,
            weight_decay=0.0,
            clip=1e9,
        )

    def recall_task(self) -> RecallTask:
        """Return the task of in-context look-up."""
        return RecallTask(
            self.reader_variant,
            num_facts=self.recall_facts,
            num_keys=self.recall_keys,
            num_values=self.recall_values,
            held_out_every=self.recall_held_out,
        )

    def recall_model_config(self) -> EncoderDecoderConfig:
        """Return the config of an in-context look-up model; only `ordered` has positions."""
        task, positions, length = self.recall_task(), self.recall_positions, 2 * self.recall_facts
        if task.variant != "ordered":
            positions, length = "none", 2 * MAX_FACTS
        return EncoderDecoderConfig(
            vocab_size=len(task.vocabulary),
            max_length=length,
            d_model=self.recall_d_model,
            num_heads=self.recall_heads,
            num_layers=self.recall_layers,
            d_ff=2 * self.recall_d_model,
            positions="concatenated" if positions == "concatenated" else "none",
            encoder_positions=positions,
        )

    def recall_train_config(self) -> TrainConfig:
        """Return the training of an in-context look-up model.

        Without a warm-up 1 of 8 models of bound facts was still wrong after 4,000 steps.
        """
        return TrainConfig(
            steps=self.recall_steps,
            warmup_steps=min(_WARMUP_STEPS, self.recall_steps // 4),
            evaluate_every=min(50, self.recall_steps),
            learning_rate=self.recall_learning_rate,
            final_share=1.0,
            weight_decay=0.0,
        )
