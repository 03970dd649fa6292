"""Build the model of an inspected folder: transformers gets the config and the tensors, never the
folder.

It is first built on the meta device, where tensors have shapes and take no memory: the names and
shapes that the config implies are compared with the files, by transformers' own renaming rules.
Weights that transformers would initialize at random are an error here. Only then are the weights
read.
"""

import inspect
import math
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from attnlab.core.sizes import count_bytes, count_numbers
from attnlab.errors import AttnlabError, CouldNotRun, WrongUsage, did_you_mean, one_line
from attnlab.pretrained.model_files.folder import ModelFolder, check_memory
from attnlab.pretrained.model_files.header import JsonObject, require, some_of
from attnlab.pretrained.model_files.libraries import import_transformers, quiet
from attnlab.pretrained.model_files.tokenizer import tokenizer_of

HEADS = {
    "none": "MODEL_MAPPING_NAMES",
    "causal-lm": "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "masked-lm": "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "seq2seq-lm": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "sequence-classification": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
    "token-classification": "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES",
    "question-answering": "MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES",
    "image-classification": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "image-text-to-text": "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
}
"""The kinds of head, and the tables in which transformers keeps their classes."""

_BESIDE = 64 * 2**20  # bytes that any model may have beside what its files hold
_MODULES, _MODULES_PER_TENSOR = 500, 4  # the most of 80 families is 100 and 1 (Switch)
_HEAD_NAMES = {  # modules beside the body in the models of transformers
    "pooler", "cls", "lm_head", "lm_loss", "embed_out", "predictions", "seq_relationship",
    "final_logits_bias", "classifier", "pre_classifier", "sop_classifier", "cls_classifier",
    "distillation_classifier", "score", "classification_head", "qa_outputs", "multiple_choice_head",
    "discriminator_predictions", "generator_predictions", "generator_lm_head", "vocab_transform",
    "vocab_layer_norm", "vocab_projector", "text_projection", "visual_projection", "logit_scale",
}  # fmt: skip


@dataclass(frozen=True)
class Differences:
    """How a file's tensors differ from those that its config implies, in transformers' names."""

    missing: list[str]
    extra: list[str]
    mismatched: list[str]

    @classmethod
    def of(cls, said: JsonObject) -> "Differences":
        """Read them from what transformers says of loading."""
        mismatched = []
        for name, has, wants in sorted(said["mismatched_keys"]):
            mismatched.append(f"{name} {tuple(has)}, expected {tuple(wants)}")
        for error in said.get("error_msgs", ()):
            mismatched.append(one_line(error, 200))
        return cls(sorted(said["missing_keys"]), sorted(said["unexpected_keys"]), mismatched)

    def require_none(self, where: object, model: str) -> None:
        """Refuse weights that differ, with up to ten names of each kind."""
        kinds = {
            "missing": self.missing,
            "not of this model": self.extra,
            "of another shape": self.mismatched,
        }
        differences = [
            f"{len(names)} {kind}: {some_of(names)}" for kind, names in kinds.items() if names
        ]
        words = f"are not those of its {model}: {'; '.join(differences)}."
        require(not differences, f"the weights in {where}", words)


class Placement(NamedTuple):
    """Where weights are put, and by which config of transformers they are quantized; None: on the
    processor, and as they are."""

    device_map: str | Mapping[str, object] | None = None
    quantization: Any = None

    @property
    def options(self) -> JsonObject:
        """The arguments of `from_pretrained`."""
        named = {"device_map": self.device_map, "quantization_config": self.quantization}
        return {name: value for name, value in named.items() if value is not None}


def build(
    folder: ModelFolder, head: str | None, dtype: torch.dtype | None, placement: Placement
) -> tuple[nn.Module, Any | None, list[str]]:
    """Build the model of a folder in evaluation mode; return it with its tokenizer, if transformers
    can build it, and notes for the user.

    Raises:
        CouldNotRun: transformers does not know it or cannot build it, the files do not hold exactly
            its weights, or the memory does not suffice.
        WrongUsage: a head that the family does not have.
    """
    options = placement.options
    transformers = import_transformers()
    where = str(folder.path)
    with quiet(), errors_explained(where):
        config = _config(transformers, folder)
        model_class = _model_class(transformers, config, head, where)
        dtype = dtype or _dtype_of(folder)
        more, notes = _compare(model_class, config, folder, dtype)
        options |= {"config": config, "dtype": dtype, **more}
        model = _with_weights(model_class, folder.weights, options)
        if folder.generation is not None and model.can_generate():
            model.generation_config = transformers.GenerationConfig.from_dict(folder.generation)
    model.config.name_or_path = where
    tokenizer, why = tokenizer_of(folder, model.config)
    return model.eval(), tokenizer, notes + why


@contextmanager
def errors_explained(where: str) -> Iterator[None]:
    """Turn any error of transformers about a bad config into one sentence."""
    try:
        yield
    except AttnlabError:
        raise
    except MemoryError:
        raise CouldNotRun(f"there is not enough memory for the model in {where}.") from None
    except Exception as error:  # an untrusted config can make the library fail in any way
        words = one_line(error, 300).rstrip(".")
        raise CouldNotRun(
            f"transformers could not build the model in {where}: {type(error).__name__}: {words}."
        ) from None


def _config(transformers: Any, folder: ModelFolder) -> Any:
    """Return transformers' config object."""
    mapping, model_type = transformers.CONFIG_MAPPING, folder.config["model_type"]
    if model_type not in mapping:
        raise CouldNotRun(
            f"{folder.path} is a model of the type {model_type!r}, which transformers "
            f"{transformers.__version__} does not know; {did_you_mean(model_type, mapping)}."
        )
    return mapping[model_type].from_dict(folder.config)


def _classes(model_type: str) -> set[str]:
    """Return the names of all classes that transformers has for a type of model."""
    from transformers.models.auto import modeling_auto

    class_names: set[str] = set()
    for name, mapping in vars(modeling_auto).items():
        if name.startswith("MODEL_") and name.endswith("_MAPPING_NAMES") and model_type in mapping:
            classes = mapping[model_type]
            if isinstance(classes, str):
                classes = {classes}
            class_names.update(classes)
    return class_names


def _model_class(transformers: Any, config: Any, head: str | None, where: str) -> Any:
    from transformers.models.auto import modeling_auto

    kind = config.model_type
    if head is not None:
        names = _names_of_head(kind, head)
    else:
        names = list(config.architectures or []) or modeling_auto.MODEL_MAPPING_NAMES.get(kind, "")
    name = names if isinstance(names, str) else names[0]
    known = _classes(kind)
    words = f"names the class {name!r}, which transformers does not have for {kind}; "
    advice = f"{did_you_mean(name, known)}. Choose with head=, one of {', '.join(HEADS)}."
    require(name in known, where, words + advice)
    model_class = getattr(transformers, name, None)
    is_model = isinstance(model_class, type) and issubclass(model_class, nn.Module)
    words = f"needs {name}, which this transformers lacks; a library it needs may be missing."
    require(is_model, where, words)
    return model_class


def _names_of_head(model_type: str, head: str) -> Any:
    """Return the name of a model type's class with this head, or several."""
    from transformers.models.auto import modeling_auto

    if head not in HEADS:
        raise WrongUsage(f"there is no head {head!r}; {did_you_mean(head, HEADS)}.")
    tables = {word: getattr(modeling_auto, table) for word, table in HEADS.items()}
    if model_type not in tables[head]:
        fitting = ", ".join(word for word, table in tables.items() if model_type in table)
        raise WrongUsage(f"{model_type} has no head {head!r}; it has {fitting or 'none'}.")
    return tables[head][model_type]


def _dtype_of(folder: ModelFolder) -> torch.dtype:
    """Return the dtype that the config names or, if it names none, that of most numbers."""
    said = folder.config.get("dtype") or folder.config.get("torch_dtype")
    if isinstance(said, str) and said != "auto":
        dtype: torch.dtype = getattr(torch, said)
        return dtype
    counts = Counter({torch.float32: 0})
    for stored in folder.tensors.values():
        if stored.dtype.is_floating_point:
            counts[stored.dtype] += math.prod(stored.shape)
    return counts.most_common(1)[0][0]


def _compare(
    model_class: Any, config: Any, folder: ModelFolder, dtype: torch.dtype
) -> tuple[JsonObject, list[str]]:
    """Compare the files with the model without reading a number; return options for building it,
    and notes."""
    options: JsonObject = {"config": config, "dtype": dtype}
    sketch, differences = _sketch(model_class, folder, options)
    notes = []
    lacks_pooler = all("pooler" in name.split(".") for name in differences.missing)
    takes = inspect.signature(model_class.__init__).parameters
    if differences.missing and lacks_pooler and "add_pooling_layer" in takes:
        # Without its weights a pooler is left out rather than initialized at random.
        options["add_pooling_layer"] = False
        sketch, differences = _sketch(model_class, folder, options)
        notes.append("the file holds no pooler, so the model was built without one")
    unused, extra = [], []
    for name in differences.extra:
        if _is_of_a_head(name, sketch):
            unused.append(name)
        else:
            extra.append(name)
    differences = Differences(differences.missing, extra, differences.mismatched)
    differences.require_none(folder.path, model_class.__name__)
    if unused:
        notes.append(f"not used by {model_class.__name__}, and ignored: {some_of(unused)}")
    _check_size(sketch, folder)
    return options, notes


def _check_size(sketch: nn.Module, folder: ModelFolder) -> None:
    """Refuse a model that takes more memory than there is, or far more than its files hold."""
    tensors = {id(tensor): tensor for tensor in (*sketch.parameters(), *sketch.buffers())}.values()
    takes = count_bytes(tensors)
    numbers = count_numbers(tensors)
    stored = sum(math.prod(stored_tensor.shape) for stored_tensor in folder.tensors.values())
    # Tables of positions and the like are computed, not stored.
    beside = takes * (1 - stored / max(1, numbers))
    words = f"asks for {takes:,} bytes, far more than its files hold ({folder.size:,})."
    is_backed = beside <= _BESIDE + 2 * folder.size
    require(is_backed, f"the config in {folder.path}", f"{words} It is damaged or malicious.")
    check_memory(takes, f"the weights and tables of the model in {folder.path}")


def _sketch(
    model_class: Any, folder: ModelFolder, options: JsonObject
) -> tuple[nn.Module, Differences]:
    """Build a model without numbers; return it, and how its tensors differ from the files'."""
    tensors, name = {}, model_class.__name__
    for tensor, stored in folder.tensors.items():
        tensors[tensor] = torch.empty(stored.shape, dtype=options["dtype"], device="meta")
    # No random initialization: even on the meta device, transformers makes some tables in memory.
    undrawn = {"__module__": model_class.__module__, "initialize_weights": lambda self: None}
    sketch_class: Any = type(name, (model_class,), undrawn)
    with bounded_modules(len(tensors), name):
        sketch, said = sketch_class.from_pretrained(
            None, state_dict=tensors, device_map={"": "meta"},
            output_loading_info=True, ignore_mismatched_sizes=True, **options,
        )  # fmt: skip
    return sketch, Differences.of(said)


@contextmanager
def bounded_modules(num_tensors: int, model: str) -> Iterator[None]:
    """Refuse, in this thread, a config that asks for more modules than its file can fill."""
    thread, count, most = threading.get_ident(), 0, _MODULES + _MODULES_PER_TENSOR * num_tensors
    words = f"asks for more than {most:,} modules, far more than its files hold tensors for."

    def counted(parent: nn.Module, name: str, module: nn.Module | None) -> None:
        nonlocal count
        count += threading.get_ident() == thread
        where = f"the config of this {model}"
        require(count <= most, where, f"{words} It is damaged or malicious.")

    handle = nn.modules.module.register_module_module_registration_hook(counted)
    try:
        yield
    finally:
        handle.remove()


def _is_of_a_head(name: str, model: nn.Module) -> bool:
    """Does an unused tensor belong to a head or a pooler, not to the body of the model?"""
    prefix, parts = getattr(model, "base_model_prefix", ""), name.split(".")
    if parts[0] == prefix:
        return parts[1:2] == ["pooler"]
    children, body = dict(model.named_children()), model
    if isinstance(getattr(model, prefix, None), nn.Module):
        body = getattr(model, prefix)
    if parts[0] in dict(body.named_children()):
        return False
    return parts[0] in children or parts[0] in _HEAD_NAMES


def _with_weights(model_class: Any, weights: Sequence[Path], options: JsonObject) -> Any:
    from safetensors import safe_open

    slices = {}
    with ExitStack() as stack:
        for path in weights:
            file = stack.enter_context(safe_open(str(path), framework="pt", device="cpu"))
            slices.update({name: file.get_slice(name) for name in file.keys()})  # noqa: SIM118  no mapping
        model, said = model_class.from_pretrained(
            None, state_dict=slices, output_loading_info=True, **options
        )
    assert not said["missing_keys"], "the sketch of the same files lacked nothing"
    return model
