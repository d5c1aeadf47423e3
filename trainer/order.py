"""The order of the data, for scripts of your own (docs/scripts.md), which import it from here since 0.1."""

from slipway.trainer.loading.order import Order

__all__ = ["Order"]
