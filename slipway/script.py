"""What a script of one's own imports: `from slipway import script`. docs/scripts.md is the contract."""

from slipway.trainer.data.sequences import Sequences, Tokens
from slipway.trainer.loading.order import Order
from slipway.trainer.script import FORMAT, ScriptTraining, training

__all__ = ["FORMAT", "Order", "ScriptTraining", "Sequences", "Tokens", "training"]
