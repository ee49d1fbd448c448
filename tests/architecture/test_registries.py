"""What every registry promises: a name is taken once, an unknown one is answered with the nearest ones."""

from __future__ import annotations

import importlib.metadata
import json

import pytest

from autopart.base.arguments import maker
from autopart.base.errors import UnknownNameError
from autopart.base.registry import Registry, RegistryError


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
    with pytest.raises(RegistryError, match="test_registries"):
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


def test_what_is_not_accepted_is_refused_in_words():
    registry: Registry[type] = Registry("shape", accepts=maker("area()", "area"))

    class Point:
        pass

    for thing in (Point, 3, None, lambda size: size):
        with pytest.raises(
            RegistryError, match=r"(?s)register_shape: it is .*try  a class with area\(\), or a function"
        ):
            registry.register("thing")(thing)
    with pytest.raises(RegistryError, match=r"(?s)register_shape: name is ''.*a string that is not empty"):
        registry.register("")
    assert not registry


def test_what_a_block_adds_by_decorators_is_gone_at_its_end():
    registry = colours()
    with registry.restored():
        registry.add("blue", 3)
        registry.add("grey", 4)
        assert len(registry) == 4
    assert dict(registry) == {"red": 1, "green": 2}
    assert registry.add("blue", 5) == 5


@pytest.fixture
def installed(monkeypatch):
    """Sets the entry points that installed packages have."""

    def install(*values: str) -> Registry:
        entries = [importlib.metadata.EntryPoint("pi", value, "autopart.test_numbers") for value in values]
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: entries)
        return Registry("number", entry_points="autopart.test_numbers")

    return install


def test_installed_packages_add_things_by_entry_points(installed):
    assert installed("math:pi").named("pi") > 3


def test_two_packages_that_add_one_name_are_both_named(installed):
    with pytest.raises(RegistryError, match=r'(?s)number "pi" is registered.*first by math:pi, now again by cmath:e'):
        installed("math:pi", "cmath:e").named("pi")


def test_an_entry_whose_module_registers_it_when_imported_is_one_thing(installed):
    registry = installed("json.decoder:JSONDecoder", "json.decoder:JSONDecodeError")
    registry.register("pi")(json.decoder.JSONDecoder)
    assert registry.named("pi") is json.decoder.JSONDecoder


def test_adding_reads_no_entry_points_since_their_modules_may_be_what_is_being_imported(installed):
    registry = installed("no_such_package:thing")
    assert registry.add("tau", 6.28) == 6.28


@pytest.mark.parametrize("value", ["no_such_package:thing", "math:no_such_thing"])
def test_an_entry_that_cannot_be_loaded_is_named(installed, value):
    with pytest.raises(RegistryError, match=rf'(?s)number "pi" cannot be loaded.*{value} of autopart.test_numbers'):
        installed(value).named("pi")
