"""A decoder such as GPT-2, Llama, Mistral and Qwen: its shape, read without torch; `network` has the model.

The defaults are those of Llama 2; `presets` has the shapes that were published.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from slipway.trainer.base.invalid import positive, require
from slipway.trainer.config import shapes
from slipway.trainer.config.shapes import Data, Reads


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """Rotary positions for sequences that are longer than those of the first training (Llama 3.1)."""

    factor: float = 8.0
    """How many times longer the longest wavelengths become."""
    low_frequency_factor: float = 1.0
    """Wavelengths above original_length / this become `factor` times longer."""
    high_frequency_factor: float = 4.0
    """Wavelengths below original_length / this stay; those between change smoothly."""
    original_length: int = 8192
    """The longest sequence of the first training, in tokens."""

    def __post_init__(self) -> None:
        positive(self, "low_frequency_factor", "original_length")
        require(self.factor >= 1, "factor", "expected 1 or more")
        more = self.high_frequency_factor > self.low_frequency_factor
        require(more, "high_frequency_factor", f"expected more than low_frequency_factor ({self.low_frequency_factor})")


@dataclass(frozen=True, kw_only=True)
class DecoderShape(shapes.Shape):
    """A decoder: pre-norm blocks of causal attention and feed-forward; by default those of Llama."""

    kind: Literal["decoder"] = "decoder"
    reads: ClassVar[Reads] = "tokens"
    later: ClassVar[frozenset[str]] = frozenset(
        {"positions", "longest", "norm", "norm_epsilon", "activation", "bias", "rope_scaling"}
        | {"window", "qk_norm", "tied", "head_features", "attention"}
    )
    layers: int
    """Blocks, one after the other."""
    width: int
    """Features of the residual stream."""
    heads: int
    """Query heads."""
    kv_heads: int
    """Key and value heads; each serves heads / kv_heads query heads."""
    hidden: int
    """Features inside the feed-forward block."""
    rope_base: float = 10_000.0
    """Base of the rotary positions' wavelengths: larger for longer sequences."""
    rope_scaling: RopeScaling | None = None
    """The scaling of the rotary positions of Llama 3.1; null for none."""
    positions: Literal["rotary", "learned"] = "rotary"
    """rotary: queries and keys are turned by their position; learned: each position has a row that is added to the
    tokens (GPT-2)."""
    longest: int = 0
    """learned positions: how many there are, which is the longest sequence, in tokens; 0 with rotary ones."""
    norm: Literal["rms", "layer"] = "rms"
    """rms: RMSNorm; layer: LayerNorm with a bias (GPT-2)."""
    norm_epsilon: float = 1e-5
    """What a norm adds to the mean square before its root."""
    activation: Literal["swiglu", "gelu"] = "swiglu"
    """The feed-forward block. swiglu: down(silu(gate) * up); gelu: down(gelu(up)) in its tanh form (GPT-2)."""
    bias: Literal["none", "query_key_value", "all"] = "none"
    """Which matrices of a block have a bias: none; those of queries, keys and values (Qwen 2); all (GPT-2)."""
    window: int = 0
    """The tokens that a token attends to, itself and those before it (Mistral); 0 for all."""
    qk_norm: bool = False
    """Whether each head's queries and keys are normalised, by RMSNorm, before they are turned (Qwen 3)."""
    tied: bool = False
    """Whether the embedding is the matrix of the head too; such a model cannot be cut into stages."""
    head_features: int = 0
    """Features of a head; 0 for width / heads."""
    attention: Literal["sequence", "documents"] = "sequence"
    """What a token attends to. sequence: all tokens before it in its sequence; documents: of these, the ones of its own
    document. Positions count on through a sequence, as in Llama 3 (arXiv:2407.21783, section 3.2)."""

    def __post_init__(self) -> None:
        positive(self, "layers", "width", "heads", "kv_heads", "hidden", "rope_base", "norm_epsilon")
        for name in ("window", "head_features", "longest"):
            require(getattr(self, name) >= 0, name, "expected 0 or more")
        divides = self.head_features > 0 or self.width % self.heads == 0
        require(divides, "heads", f"expected a divisor of width ({self.width})")
        even = self.positions == "learned" or self.features % 2 == 0
        require(even, "head_features" if self.head_features else "heads", "expected an even number of features a head")
        require(self.heads % self.kv_heads == 0, "kv_heads", f"expected a divisor of heads ({self.heads})")
        self._check_positions()

    def _check_positions(self) -> None:
        learned = self.positions == "learned"
        require(learned or self.longest == 0, "longest", "expected 0, as rotary positions have no longest sequence")
        require(not learned or self.longest > 0, "longest", "expected the number of learned positions, above 0")
        unscaled = not learned or self.rope_scaling is None
        require(unscaled, "rope_scaling", "expected null, as learned positions are not turned")

    @property
    def features(self) -> int:
        """Features of a head."""
        return self.head_features or self.width // self.heads

    @property
    def divided(self) -> dict[str, int]:
        return {"heads": self.heads, "kv_heads": self.kv_heads, "hidden": self.hidden}

    @property
    def stages(self) -> int:
        return 1 if self.tied else self.layers

    @property
    def shares_sequences(self) -> bool:
        return True

    @property
    def reads_documents(self) -> bool:
        return self.attention == "documents"

    def least_weights(self, data: Data) -> int:
        attention = 2 * self.width * self.features * (self.heads + self.kv_heads)
        feed_forward = (3 if self.activation == "swiglu" else 2) * self.width * self.hidden
        tokens = (1 if self.tied else 2) * data.vocabulary * self.width
        return self.layers * (attention + feed_forward) + tokens

    def least_kept(self, data: Data) -> int:
        return self.layers * data.length * self.width

    def check(self, data: Data) -> None:
        fits = self.positions == "rotary" or data.length <= self.longest
        require(fits, "longest", f"expected {data.length} or more, the tokens of a sequence (batch.length)")


Shape = DecoderShape
