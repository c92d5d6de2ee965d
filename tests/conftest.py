"""What all tests start from."""

import signal

# Whoever runs the tests in the background of a shell has Ctrl-C ignored, and so have all programs
# that they start: tests of an interrupt would wait for nothing.
signal.signal(signal.SIGINT, signal.default_int_handler)
