"""flytraj beside the real flygym: the same frames, files and pixels, and where they differ, both shown."""

import pytest

# Here, before any module of the folder is loaded, so that each is skipped with this reason.
pytest.importorskip(
    "flygym", reason="flygym is not installed: pip install 'flygym[warp]==2.1.1' (Python 3.12 or newer)"
)
