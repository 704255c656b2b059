"""The list of modules in tests/warm.py."""

import importlib
import inspect

import pytest

from tests.warm import ZYGOTE_MODULES


@pytest.mark.parametrize("name", ZYGOTE_MODULES)
def test_a_listed_module_has_the_name_that_is_replaced(name: str) -> None:
    module = importlib.import_module(f"hipwright.{name}")
    assert inspect.isclass(module.Zygote)
    assert name == "sandbox" or "Zygote(" in inspect.getsource(module)
