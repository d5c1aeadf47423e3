"""A training as Dagster's own tools suggest it: a child process of the step, through Pipes."""

import sys
from pathlib import Path

import dagster as dg

TRAINER = Path(__file__).with_name("trainer.py")


@dg.asset
def training(context: dg.AssetExecutionContext, pipes: dg.PipesSubprocessClient) -> dg.MaterializeResult[None]:
    return pipes.run(command=[sys.executable, str(TRAINER)], context=context).get_materialize_result()


defs = dg.Definitions(assets=[training], resources={"pipes": dg.PipesSubprocessClient()})
