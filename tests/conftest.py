"""Generated examples are the same in every run, and no example has to be quick on a busy machine.

The programs that tests start hear a Ctrl-C, wherever the tests run, and find rm compiled.
"""

import gc
import os
import signal
import sys

from hypothesis import HealthCheck, settings

settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")

# a shell lets what runs in its background ignore Ctrl-C, and every program inherits that
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# or each of the many programs that tests start would compile all of rm that it imports
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# thousands of tests are objects that stay: to look through them less often takes a tenth off all tests
gc.set_threshold(20_000, 10, 10)
