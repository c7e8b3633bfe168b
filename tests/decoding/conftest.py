"""Models that several tests decode with; no test may change their weights."""

import pytest
import stacked_models


@pytest.fixture(scope="session")
def translator():
    return stacked_models.lively_translator()


@pytest.fixture(scope="session")
def language_model():
    return stacked_models.make("language model", seed=1)
