"""Hypothesis profiles, and the verifier behind every lowering."""

import os

import pytest
from hypothesis import settings

from inferometer.estimate import step
from inferometer.graph.verify import verify

settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(autouse=True, scope="session")
def _verified_lowering():
    """Check every graph the tests make: `estimate` and `search` lower through here."""
    lower = step.lower_model

    def lower_and_verify(*args, **kwargs):
        graph = lower(*args, **kwargs)
        verify(graph)
        return graph

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step, "lower_model", lower_and_verify)
        yield
