"""A rank that says a word and exits with the config's `code`, at rank `failing_rank` only if that is given."""

import os
import sys

from tests.launcher.programs import start

config = start()
print(f"rank {os.environ['RANK']} says {config.get('word', 'hello')}")
if config.get("failing_rank", os.environ["RANK"]) == os.environ["RANK"]:
    sys.exit(config.get("code", 0))
