"""What all tests start from."""

import signal

from hypothesis import settings

# Whoever runs the tests in the background of a shell has Ctrl-C ignored, and so have all programs
# that they start: tests of an interrupt would wait for nothing.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes tells of the machine's load, not of the code.
settings.register_profile("onionlab", deadline=None)
settings.load_profile("onionlab")
