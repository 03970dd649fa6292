"""Every option of `sentiment`: the texts, the two models, their training, the baseline."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from attnlab.configs import Config, Fields, option
from attnlab.errors import WrongUsage
from attnlab.experiments.words import Words
from attnlab.models.encoder import EncoderConfig
from attnlab.tasks.labeled_files import Columns
from attnlab.train.config import TrainConfig

NAME = "sentiment"
WORDS = Words(__package__)
ModelName = Literal["mini", "best"]
MODELS: tuple[ModelName, ...] = ("mini", "best")

_FEW_TEXTS = 2_000  # training texts up to which all epochs are run, without early stopping
_USUAL_PATIENCE = 2
_EPOCHS, _EPOCHS_OF_FEW = 6, 10


@dataclass(frozen=True, kw_only=True)
class SentimentConfig(Config):
    """Every option of the experiment."""

    FULL: ClassVar[Fields] = {"most_texts": 20_000, "epochs": 10}

    data: str | None = option(
        None, "a CSV, TSV, JSONL or Parquet file, or owner/name on the hub; none: the built-in"
    )
    text: str = option("text", "column of the texts")
    label: str = option("label", "column of the labels")
    split: str = option("split", "column that holds train, validation or test, if there is one")
    encoding: str = option(
        "utf-8", "encoding of a text file, such as cp1252; a byte order mark is skipped"
    )
    header: bool = option(
        True, "the first line of a CSV or TSV names the columns; without, they are 1, 2, 3, …"
    )
    delimiter: str | None = option(
        None, "separator of the cells: one character, or tab; none: by the file's ending"
    )
    held_out: float = option(
        0.2, "share of the texts held out, if the file has no split", low=0.01, high=0.9
    )
    most_texts: int = option(
        3_000, "most texts used; a larger file is sampled", low=10, high=100_000_000
    )
    split_seed: int | None = option(
        None, "seed of drawing and splitting the texts; none: the run's", low=0
    )
    repeats: int = option(10, "copies of each text of the built-in set", low=1, high=1_000)
    main: ModelName = option("mini", "the run's main model, which is saved, shown and traced")
    show: str | None = option(None, "texts to show, separated by |; none: some of the test texts")
    seeds: int = option(
        3, "trainings of each model, each with its own initial weights", low=1, high=1_000
    )
    tokenizer: Literal["word", "subword"] = option(
        "word", "mini's tokens: words, numbers and punctuation, or byte-pair encoding"
    )
    vocab_size: int = option(10_000, "largest vocabulary of mini", low=3, high=10_000_000)
    max_length: int = option(
        32, "tokens of a text that mini reads, CLS included", low=2, high=100_000
    )
    d_model: int = option(
        64,
        "width of mini's residual stream; its token vectors start with spread 1/√d_model",
        low=1,
        high=4_096,
    )
    num_heads: int = option(8, "attention heads of mini; they divide d_model", low=1, high=256)
    num_layers: int = option(2, "blocks of mini", low=1, high=48)
    d_ff: int = option(256, "width inside mini's feed-forward part", low=1, high=16_384)
    dropout: float = option(
        0.1, "probability of dropping in mini, in training only", low=0.0, high=0.9
    )
    epochs: int | None = option(
        None,
        "largest number of epochs of mini; none: 10, but 6 for more than 2,000 training texts",
        low=1,
        high=10_000,
    )
    patience: int | None = option(
        None,
        "epochs without a better validation that end mini's training; none: 2, but all "
        "epochs for few texts",
        low=1,
    )
    batch_size: int = option(16, "texts of a step of mini", low=1, high=100_000)
    learning_rate: float = option(
        1e-3, "rate of AdamW, both models, with gradients clipped to norm 1.0", low=0.0, high=10.0
    )
    weight_decay: float = option(
        0.01, "decoupled weight decay of AdamW, both models", low=0.0, high=10.0
    )
    best_vocab_size: int = option(
        500_000, "largest vocabulary of the best model; smaller for many classes", low=3
    )
    best_max_length: int = option(
        4_096, "tokens of a text that the best model reads, CLS included", low=2, high=1_000_000
    )
    best_width: int = option(
        16, "width of the best model's residual stream; at least the classes", low=2, high=4_096
    )
    best_epochs: int = option(4, "epochs of the best model", low=1, high=10_000)
    best_batch_size: int = option(64, "texts of a step of the best model", low=1, high=100_000)
    word_dropout: float = option(
        0.7, "share of words hidden from the best model in training", low=0.0, high=0.95
    )
    baseline: bool = option(True, "train the two baselines too (needs scikit-learn)")

    def validate(self) -> None:
        """Check combinations of fields."""
        self.mini_config(self.vocab_size, 2)
        if min(map(len, (self.text, self.label, self.split))) == 0:
            raise WrongUsage("text, label and split must be names of columns; got an empty one.")
        if self.delimiter not in (None, "tab") and (
            len(self.delimiter) != 1 or self.delimiter in '\r\n"'
        ):
            raise WrongUsage(
                f"delimiter must be one character, such as ;, or tab; got {self.delimiter!r}."
            )
        try:
            "a".encode(self.encoding)
        except (LookupError, ValueError):
            raise WrongUsage(
                f"encoding must be one that Python knows, such as cp1252; got {self.encoding!r}."
            ) from None

    def columns(self) -> Columns:
        """Return the columns and the format of the file."""
        delimiter = "\t" if self.delimiter == "tab" else self.delimiter
        return Columns(self.text, self.label, self.split, self.encoding, self.header, delimiter)

    def mini_config(self, vocab_size: int, num_classes: int) -> EncoderConfig:
        """Return the config of the mini transformer: the encoder of Vaswani et al. 2017, small."""
        fields = self.fields_of(EncoderConfig) | {
            "vocab_size": vocab_size,
            "norm_place": "post",
            "scale_embedding": True,
            "positions": "sinusoidal",
            "num_classes": num_classes,
        }
        return EncoderConfig(**fields)

    def best_config(self, vocab_size: int, num_classes: int) -> EncoderConfig:
        """Return the config of the best model: one head over all words, no norms, no positions."""
        width = max(self.best_width, num_classes)
        return EncoderConfig(
            vocab_size=vocab_size,
            max_length=self.best_max_length,
            d_model=width,
            num_heads=1,
            num_layers=1,
            d_ff=width,
            norm_place="none",
            final_norm=False,
            positions="none",
            num_classes=num_classes,
        )

    def train_config(self, name: ModelName, num_texts: int) -> TrainConfig:
        """Return the training of a model on so many texts; it is evaluated after each epoch."""
        steps, epochs = -(-num_texts // self.batch_size_of(name)), self.best_epochs
        if name == "mini":
            epochs = self.epochs or (_EPOCHS_OF_FEW if num_texts <= _FEW_TEXTS else _EPOCHS)
        return TrainConfig(
            steps=epochs * steps,
            evaluate_every=steps,
            learning_rate=self.learning_rate,
            final_share=1.0,
            weight_decay=self.weight_decay,
        )

    def batch_size_of(self, name: ModelName) -> int:
        """Return the number of texts of a step of a model."""
        return self.batch_size if name == "mini" else self.best_batch_size

    def patience_for(self, name: ModelName, num_texts: int) -> int | None:
        """Return the number of epochs without a better validation that end a training."""
        if name == "best":
            return None
        return self.patience or (None if num_texts <= _FEW_TEXTS else _USUAL_PATIENCE)
