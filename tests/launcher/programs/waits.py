"""A rank that runs until it is told to stop, and then finishes what it has in hand."""

import signal

from tests.launcher.programs import note, start

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
config = start()
signal.sigwait([signal.SIGTERM])
note(config, {"finished": True})
