"""Without flygym; what needs it is in `tests/peers`."""

from __future__ import annotations

import importlib
import sys

import pytest

from flytraj.errors import MissingDependencyError


def test_without_flygym_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flygym", None)
    monkeypatch.delitem(sys.modules, "flytraj.flygym", raising=False)
    with pytest.raises(MissingDependencyError, match=r"pip install 'flygym\[warp\]'.*3\.12"):
        importlib.import_module("flytraj.flygym")
