"""A training without a model: says once that it is at work, and works until it is asked to stop."""

import json
import os
import signal
import sys
from pathlib import Path

from slipway.trainer.record import fence, heartbeat

config = json.loads(Path(sys.argv[1]).read_text())
token = fence.Token(int(os.environ["SLIPWAY_INCARNATION"]))
heartbeat.Heartbeat(Path(config["placement"]["store"]), token, rank=0).beat("training", step=1)
signal.pause()
