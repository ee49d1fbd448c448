"""What every registry promises: a name is taken once, an unknown one is answered with the nearest ones."""

from __future__ import annotations

import importlib.metadata

import pytest

from autopart.core.errors import UnknownNameError
from autopart.core.registry import Registry, RegistryError


def colours() -> Registry[int]:
    registry: Registry[int] = Registry("colour")
    registry.add("red", 1, "first.py")
    registry.add("green", 2, "first.py")
    return registry


def test_it_reads_like_a_dict():
    registry = colours()
    assert dict(registry) == {"red": 1, "green": 2}
    assert "red" in registry
    assert "blue" not in registry
    assert len(registry) == 2


def test_a_name_is_taken_once_and_the_error_names_both():
    with pytest.raises(RegistryError, match=r'(?s)colour "red" is registered already.*first.py.*second.py'):
        colours().add("red", 3, "second.py")


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(UnknownNameError, match=r"(?s)no colour is called \"gren\".*green, red.*'green'"):
        colours().named("gren")


def test_a_decorator_adds_and_returns_the_thing_itself():
    registry: Registry[type] = Registry("shape")

    @registry.register("square")
    class Square:
        pass

    assert registry.named("square") is Square
    with pytest.raises(RegistryError, match="test_registry"):
        registry.register("square")(Square)


def test_what_is_there_temporarily_goes_also_when_the_block_fails():
    registry = colours()

    def fail_inside() -> None:
        with registry.temporarily("blue", 3):
            assert registry.named("blue") == 3
            raise KeyError

    with pytest.raises(KeyError):
        fail_inside()
    assert "blue" not in registry


def test_own_things_are_loaded_before_others_are_added():
    registry: Registry[int] = Registry("colour", load=lambda: registry.add("red", 1, "own"))
    with pytest.raises(RegistryError, match="first by own"):
        registry.add("red", 2, "other")


def test_installed_packages_add_things_by_entry_points(monkeypatch):
    entry = importlib.metadata.EntryPoint("pi", "math:pi", "autopart.test_numbers")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [entry])
    registry: Registry[float] = Registry("number", entry_points="autopart.test_numbers")
    assert registry.named("pi") > 3
