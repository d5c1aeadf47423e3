"""A rank that clings to life: deaf to SIGTERM, in a session of its own, with a grandchild in yet another."""

import os
import signal
import subprocess
import sys
import time

from tests.launcher.programs import note, start

signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
if os.getpgrp() != os.getpid():
    os.setsid()
sleeper = "import os, time; os.fork() and os._exit(0); time.sleep(600)"
grandchild = subprocess.Popen([sys.executable, "-c", sleeper], start_new_session=True)
grandchild.wait()
config = start()
note(config, {"clinging": True})
time.sleep(600)
