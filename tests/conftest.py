"""What every test can count on."""

from __future__ import annotations

import signal

# A gate that runs in the background ignores SIGINT, and so would the processes that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
