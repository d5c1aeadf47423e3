"""Published decoders, each with its source; a recipe takes the shape of one by `model: {preset: NAME}`."""

from collections.abc import Mapping
from dataclasses import dataclass

from slipway.trainer.models.decoder import DecoderShape, RopeScaling


@dataclass(frozen=True)
class PublishedModel:
    """One model as its authors published it."""

    shape: DecoderShape
    vocabulary: int
    """Rows of its embedding."""
    parameters: int
    """Numbers in all its tensors, each tensor counted once."""
    source: str
    """Where its sizes are published."""


def _gpt2(layers: int, width: int, heads: int) -> DecoderShape:
    return DecoderShape(
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=heads,
        hidden=4 * width,
        positions="learned",
        longest=1024,
        norm="layer",
        activation="gelu",
        bias="all",
        tied=True,
    )


def _llama_31(layers: int, width: int, heads: int, hidden: int) -> DecoderShape:
    return DecoderShape(
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=8,
        hidden=hidden,
        rope_base=500_000.0,
        rope_scaling=RopeScaling(),
    )


_GPT2 = "Radford et al. 2019, table 2; config.json of openai-community/"
_LLAMA = "arXiv:2407.21783, table 3; "
_MISTRAL = DecoderShape(layers=32, width=4096, heads=32, kv_heads=8, hidden=14336, window=4096)
_QWEN_25 = DecoderShape(
    layers=28,
    width=3584,
    heads=28,
    kv_heads=4,
    hidden=18944,
    rope_base=1_000_000.0,
    norm_epsilon=1e-6,
    bias="query_key_value",
)
_QWEN_3 = DecoderShape(
    layers=36,
    width=4096,
    heads=32,
    kv_heads=8,
    hidden=12288,
    rope_base=1_000_000.0,
    norm_epsilon=1e-6,
    qk_norm=True,
)
PRESETS: Mapping[str, PublishedModel] = {
    "gpt2": PublishedModel(_gpt2(12, 768, 12), 50_257, 124_439_808, f"{_GPT2}gpt2"),
    "gpt2-medium": PublishedModel(_gpt2(24, 1024, 16), 50_257, 354_823_168, f"{_GPT2}gpt2-medium"),
    "gpt2-large": PublishedModel(_gpt2(36, 1280, 20), 50_257, 774_030_080, f"{_GPT2}gpt2-large"),
    "gpt2-xl": PublishedModel(_gpt2(48, 1600, 25), 50_257, 1_557_611_200, f"{_GPT2}gpt2-xl"),
    "llama-3.1-8b": PublishedModel(
        _llama_31(32, 4096, 32, 14336), 128_256, 8_030_261_248, f"{_LLAMA}config.json of meta-llama/Llama-3.1-8B"
    ),
    "llama-3.1-70b": PublishedModel(
        _llama_31(80, 8192, 64, 28672), 128_256, 70_553_706_496, f"{_LLAMA}config.json of meta-llama/Llama-3.1-70B"
    ),
    "llama-3.1-405b": PublishedModel(
        _llama_31(126, 16384, 128, 53248), 128_256, 405_853_388_800, f"{_LLAMA}config.json of meta-llama/Llama-3.1-405B"
    ),
    "mistral-7b": PublishedModel(
        _MISTRAL, 32_000, 7_241_732_096, "arXiv:2310.06825, table 1; config.json of mistralai/Mistral-7B-v0.1"
    ),
    "qwen2.5-7b": PublishedModel(
        _QWEN_25, 152_064, 7_615_616_512, "arXiv:2412.15115, table 1; config.json of Qwen/Qwen2.5-7B"
    ),
    "qwen3-8b": PublishedModel(
        _QWEN_3, 151_936, 8_190_735_360, "arXiv:2505.09388, table 1; config.json of Qwen/Qwen3-8B"
    ),
}
