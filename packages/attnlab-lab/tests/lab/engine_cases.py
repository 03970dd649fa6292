"""The engine in Node, and models of random configs to hold it against."""

import base64
import json
import random
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save
from torch import Tensor, nn

import attnlab_lab
from attnlab.models.storage import MODELS, describe_model

ENGINE = Path(attnlab_lab.__file__).parent / "engine"
RUNNER = Path(__file__).with_name("engine_runner.mjs")
NODE = shutil.which("node")
OTHERS = ("learned_positions", "num_classes", "per_token", "causal")
"""Settings of which the engine has one choice, that of these cases."""
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed")


def run_engine(requests: list[dict[str, Any]], engine: Path = ENGINE) -> list[Any]:
    """Let the engine answer requests, see engine_runner.mjs."""
    assert NODE is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "requests.json"
        path.write_text(json.dumps(requests))
        command = [NODE, str(RUNNER), str(engine), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def told(values: Tensor | np.ndarray) -> str:
    """Write numbers as the runner reads them."""
    array = values.detach().numpy() if isinstance(values, Tensor) else values
    return base64.b64encode(np.ascontiguousarray(array, dtype=np.float64).tobytes()).decode()


def heard(text: str) -> np.ndarray:
    """Read numbers that the runner wrote."""
    return np.frombuffer(base64.b64decode(text), dtype=np.float64)


def described(model: nn.Module) -> dict[str, Any]:
    """Return a model's kind, config and weights for a request."""
    found = describe_model(model)
    stored = base64.b64encode(save({n: v.contiguous() for n, v in model.state_dict().items()}))
    config = {name: value for name, value in found["config"].items() if name not in OTHERS}
    return {"kind": found["kind"], "config": config, "weights": stored.decode()}


def random_config(chance: random.Random) -> dict[str, Any]:
    """Draw the config of a small transformer: every choice that the engine has."""
    heads = chance.choice([1, 2, 4])
    width = heads * chance.choice([2, 3, 4])
    kinds = ["none", "sinusoidal", "learned", "concatenated", "rotary", "alibi"]
    return {
        "vocab_size": chance.randint(3, 7),
        "max_length": 8,
        "d_model": width,
        "num_heads": heads,
        "num_layers": chance.randint(1, 3),
        "d_ff": chance.choice([None, 5]),
        "activation": chance.choice(["relu", "gelu", "swiglu"]),
        "norm": chance.choice(["layer", "rms"]),
        "norm_place": chance.choice(["pre", "post", "none"]),
        "positions": chance.choice(kinds),
        "projections": chance.choice(["dense", "gated", "strict"]),
        "rank": chance.choice([None, 2]),
        "temperature": chance.choice([1.0, 0.4]),
        "bias": chance.random() < 0.5,
    }


def random_model(seed: int, kind: str = "") -> Any:
    """Build a model of a kind, random if it is not given, and of a random config and weights."""
    chance = random.Random(seed)
    kind = kind or chance.choice(["decoder", "decoder", "encoder", "single_head"])
    model_class, config_class = MODELS[kind]
    config = random_config(chance)
    if kind == "single_head":
        config = {name: chance.randint(2, 4) for name in ("input_dim", "qk_dim", "v_dim")}
        config |= {"pos_dim": chance.choice([None, 3]), "max_seq_len": 8}
    generator = torch.Generator().manual_seed(seed)
    # without norms the numbers of three layers grow, and rounding with them
    size = 0.2 if config.get("norm_place") == "none" else 0.4
    model = model_class(config_class.from_mapping(config)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(size * noise + (parameter.dim() == 1))  # gains near 1, biases too
    return model.eval()


def random_inputs(model: nn.Module, seed: int) -> tuple[dict[str, Any], tuple[Tensor, ...]]:
    """Draw inputs of a model, as a request has them and as its arguments."""
    generator = torch.Generator().manual_seed(seed)
    kind = describe_model(model)["kind"]
    config: Any = model.config
    if kind == "single_head":
        x = torch.randn(2, 5, config.input_dim, generator=generator, dtype=torch.float64)
        return {"vectors": told(x), "shape": list(x.shape)}, (x,)
    tokens = torch.randint(0, config.vocab_size, (3, 6), generator=generator)
    return {"tokens": tokens_of(tokens)}, (tokens,)


def tokens_of(tokens: Tensor) -> dict[str, Any]:
    """Write ids as the engine takes them."""
    return {"batch": len(tokens), "length": tokens.shape[1], "ids": tokens.flatten().tolist()}
