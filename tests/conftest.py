"""Generated examples are the same in every run, and no example has to be quick on a busy machine.

The programs that tests start hear a Ctrl-C, wherever the tests run.
"""

import signal

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
