"""``python -m cli`` is the command `slipway`."""

import sys

from cli.main import main

sys.exit(main())
