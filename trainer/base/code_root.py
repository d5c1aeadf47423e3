"""The folder that holds the package `slipway`: the top of a checkout, or where packages are installed.

Processes of our own find the package there (PYTHONPATH).
"""

from pathlib import Path

import slipway

CODE = Path(slipway.__file__).parents[1].resolve()
