"""Names, and how users add theirs: by registering, or module and class."""

import os
from fractions import Fraction

import programs
import pytest

from fastgc._base.registry import (
    Registry,
    functions_of,
    load_object,
    read_arguments,
    read_value,
)


class Thing:
    def __init__(self, size, *, colour="red", scale=1.0):
        self.size, self.colour, self.scale = size, colour, scale

    class Inner:
        pass


def other(size):
    return size


def things():
    registry = Registry("thing")
    registry.register("plain", Thing, "a plain thing")
    return registry


# ------------------------------------------------------------------------------------- registering


def test_a_name_is_registered_once():
    registry = things()
    assert registry.get("plain") is Thing
    assert registry.title("plain") == "a plain thing"
    registry.register("plain", Thing)  # registering the same again is no error
    with pytest.raises(ValueError, match=r"thing 'plain' is registered already, as .*Thing.*repl"):
        registry.register("plain", other)
    assert registry.get("plain") is Thing
    registry.register("plain", other, replace=True)
    assert registry.get("plain") is other
    assert registry.title("plain") == "plain"
    registry.register("ant", other)
    assert registry.names() == ["plain", "ant"]  # as they came
    assert [name in registry for name in ("ant", "bee", 3)] == [True, False, False]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        *(((name, other), ValueError) for name in ("", "two words", "a:b", "a,b", "Big", "_a")),
        ((3, other), TypeError),
        (("new", 3), TypeError),
        (("new", other, 3), TypeError),
    ],
)
def test_what_cannot_be_registered(arguments, error):
    registry = things()
    with pytest.raises(error, match=rf"thing\b.* 3|{arguments[0]!r} cannot name a thing"):
        registry.register(*arguments)
    assert registry.names() == ["plain"]


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("plan", "plain"),
        ("ODDS", "odd"),
        ("Thing", "plain"),  # the class
        ("thimg", "plain"),
        ("plain odd", "plain,odd"),  # the comma is missing
        ("plain even", None),
        ("even", None),
    ],
)
def test_unknown_names_are_told_what_may_be_meant(asked, meant):
    registry = things()
    registry.register("odd", other)
    hint = f"did you mean {meant!r}. Else choose among" if meant else "': choose among plain, odd"
    for ask in (registry.get, registry.title, registry.resolve):
        with pytest.raises(ValueError, match=hint):
            ask(asked)
        with pytest.raises(TypeError, match="text, not None"):
            ask(None)


# ------------------------------------------------------------------------------- module and class


def test_texts_name_what_is_registered_or_can_be_imported():
    registry = things()
    assert registry.resolve("plain:size=3") == ("plain", Thing, "size=3")
    assert registry.resolve(" Plain ") == ("plain", Thing, "")
    found = registry.resolve("fractions:Fraction:numerator=3")
    assert found == ("fractions:Fraction", Fraction, "numerator=3")
    assert registry.resolve("os.path:join").factory is os.path.join


def test_texts_that_name_nothing():
    registry = things()
    with pytest.raises(ValueError, match=r"unknown thing 'nosuch'.*no module 'nosuch'"):
        registry.resolve("nosuch:Thing:size=3")
    with pytest.raises(ImportError, match="module 'fractions' has no 'Nothing'"):
        registry.resolve("fractions:Nothing")
    with pytest.raises(ValueError, match=r"math:pi is 3.14.*makes no thing"):
        registry.resolve("math:pi")
    with pytest.raises(ValueError, match="unknown thing 'fractions'"):
        registry.resolve("fractions:numerator=3")


def test_objects_are_loaded_from_modules(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "loaded_here.py").write_text("class Outer:\n    class Inner:\n        pass\n")
    (tmp_path / "broken_here.py").write_text("import\n")
    (tmp_path / "needing_here.py").write_text("import nosuch_at_all\n")
    assert load_object("loaded_here:Outer.Inner").__qualname__ == "Outer.Inner"
    for path in ("", "loaded_here", "loaded_here:", ":Outer", "a b:c", "loaded_here:Outer:x"):
        with pytest.raises(ValueError, match="expected module:Class"):
            load_object(path)
    with pytest.raises(ImportError, match=r"broken_here' cannot be imported: SyntaxError"):
        load_object("broken_here:Outer")
    with pytest.raises(ImportError, match=r"needing_here' cannot be imported: .*nosuch_at_all"):
        load_object("needing_here:Outer")
    with pytest.raises(ModuleNotFoundError, match=r"no module 'loaded_here.deeper'|not a package"):
        load_object("loaded_here.deeper:Outer")


# -------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-3", -3),
        ("1e3", 1000.0),
        ("yes", True),
        ("TRUE", True),
        ("off", False),
        ("word", "word"),
        ("2/1/1", [2, 1, 1]),
        ("1/0.5", [1, 0.5]),
        ("1/b", "1/b"),
        ("", ""),
    ],
)
def test_values_are_read(text, value):
    found = read_value(text)
    assert found == value
    assert type(found) is type(value)


def typed(size, scale: float = 1.0, shape: "float" = 2.0):
    return size


def test_arguments_are_those_of_the_signature():
    assert read_arguments(Thing, "size=3,scale=2", "a thing") == {"size": 3, "scale": 2}
    assert read_arguments(Thing, " SIZE = 3 ,", "a thing") == {"size": 3}
    assert read_arguments(Thing, "scale=2", "a thing", ["size"]) == {"scale": 2}
    for anything in (lambda **options: options, max):  # a compiled function has no signature
        assert read_arguments(anything, "any=1", "a thing") == {"any": 1}
    assert read_arguments(lambda **options: options, "a=x=y, b=", "a thing") == {
        "a": "x=y",
        "b": "",
    }
    assert read_arguments(Thing, " ,", "a thing", whole=False) == {}
    read = read_arguments(typed, "size=3,scale=2,shape=1e3", "a thing")
    assert [repr(value) for value in read.values()] == ["3", "2.0", "1000.0"]


@pytest.mark.parametrize(
    ("factory", "listed", "given", "message"),
    [
        (Thing, "size=3,number=2", [], ": there is no 'number'; it takes size, colour, scale$"),
        (Thing, "size=3,color=2", [], "; did you mean 'colour'. It takes size, colour, scale$"),
        (Thing, "colour=red", [], " needs size=VALUE; it takes size, colour, scale$"),
        (Thing, "size", [], ": size needs a value, size=VALUE$"),
        (Thing, "=3", [], ": there is no ''; it takes size"),
        (Thing, "size=3", ["size"], ": there is no 'size'; it takes colour, scale$"),
        (lambda: None, "size=3", [], "it takes no arguments$"),
        (lambda **_: None, "size=3,size=3", [], ": size is given twice$"),
        (typed, "size=3,scale=large", [], "scale must be a number, not 'large'"),
        (typed, "size=3,shape", [], "shape must be a number, not ''"),
    ],
)
def test_arguments_refused(factory, listed, given, message):
    with pytest.raises(ValueError, match=f"^a thing.*{message}"):
        read_arguments(factory, listed, "a thing", given)


def test_functions_of_one_parameter():
    names = {"other": other, "typed": typed, "_hidden": other, "Thing": Thing}
    assert functions_of("size", names) == [other]
    assert functions_of("colour", names) == []


def test_the_registry_is_light():
    source = "import sys, fastgc._base.registry; print('importlib.metadata' in sys.modules)"
    assert programs.printed(source) == "False"
