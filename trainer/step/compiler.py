"""The compiler: how many graphs it has made in this process, and how many it found made by an earlier start."""


def graphs() -> dict[str, int]:
    """`compiled` and `found`; PyTorch's compiler counts them, and is imported only where a layout compiles blocks."""
    from torch._dynamo.utils import counters

    counted = counters["inductor"]
    return {
        "compiled": counted["fxgraph_cache_miss"] + counted["fxgraph_cache_bypass"],
        "found": counted["fxgraph_cache_hit"],
    }
