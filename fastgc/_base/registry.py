"""Names for texts and command lines.

`fastgc.codes` and `fastgc.delays` have a `Registry` each. A text names what is registered in this
process (`Registry.register`), or ``module:Class``, anything that can be imported. Arguments follow
a colon, as in ``weibull:shape=0.7,scale=0.01``; they are those of the factory's signature.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from .text import takes

Factory = Callable[..., Any]

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")
_PATH = re.compile(r"\s*([^\W\d]\w*(?:\.[^\W\d]\w*)*)\s*")  # a module's path, or one within it
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class Found(NamedTuple):
    """A factory that a text names, by its registered name or as ``module:Class``.

    `listed` is the text of its arguments, for `read_arguments`.
    """

    name: str
    factory: Factory
    listed: str


class Registry:
    """Factories by name.

    `kind` says in errors what the factories make, such as ``"delay model"``. Names consist of small
    letters, digits and ``. _ -``, so that they fit into any text; callers may write capitals.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._known: dict[str, tuple[Factory, str]] = {}

    def register(
        self, name: str, factory: Factory, title: str | None = None, replace: bool = False
    ) -> None:
        """Register a factory, a class or a function that returns an instance, under a name.

        `title` is its name in tables and plots (default: `name`). Raises ValueError if another
        factory has the name and `replace` is False, or if `name` is no name, and TypeError if an
        argument has a wrong type.
        """
        if not isinstance(name, str):
            raise TypeError(f"the name of a {self.kind} is a text, not {name!r}")
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} cannot name a {self.kind}: names are of small letters, digits and . _ -"
            )
        if not callable(factory):
            raise TypeError(
                f"the factory of the {self.kind} {name!r} must be a class or function, not "
                f"{factory!r}"
            )
        if title is not None and not isinstance(title, str):
            raise TypeError(f"the title of the {self.kind} {name!r} is a text, not {title!r}")
        there = self._known.get(name)
        if there is not None and there[0] is not factory and not replace:
            raise ValueError(
                f"the {self.kind} {name!r} is registered already, as {there[0]!r}: choose another "
                "name, or say replace=True"
            )
        self._known[name] = factory, name if title is None else title

    def get(self, name: str) -> Factory:
        """Return the factory of a name.

        Raises ValueError, with a list of all names, if no factory has the name.
        """
        return self._entry(name)[0]

    def title(self, name: str) -> str:
        """Return the title for tables and plots; errors as in `get`."""
        return self._entry(name)[1]

    def names(self) -> list[str]:
        """Return all names, in the order in which they were registered."""
        return list(self._known)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.strip().lower() in self._known

    def resolve(self, text: str) -> Found:
        """Return the factory that a text names, and the text of its arguments, not read yet.

        The text is ``"name"`` or ``"module:Class"``, and may go on as in ``":key=value,..."``.
        Raises ValueError if it names nothing known and no existing module, ImportError if an
        existing module cannot be loaded or has no such class, and TypeError if it is no text.
        """
        if not isinstance(text, str):
            raise TypeError(f"a {self.kind} is named by a text, not {text!r}")
        name, _, rest = text.partition(":")
        if name not in self and is_path(name):
            attribute, _, listed = rest.partition(":")
            if is_path(attribute):
                path = f"{name.strip()}:{attribute.strip()}"
                try:
                    factory = load_object(path)
                except ModuleNotFoundError as error:
                    raise ValueError(f"{self._unknown(name)}; {error}") from None
                if not callable(factory):
                    raise ValueError(f"{path} is {factory!r}: it makes no {self.kind}")
                return Found(path, factory, listed)
        return Found(name.strip().lower(), self.get(name), rest)

    def _entry(self, name: str) -> tuple[Factory, str]:
        if not isinstance(name, str):
            raise TypeError(f"the name of a {self.kind} is a text, not {name!r}")
        if (found := self._known.get(name.strip().lower())) is None:
            raise ValueError(self._unknown(name))
        return found

    def _unknown(self, name: str) -> str:
        name, meant = name.strip(), self.meant(name.strip())
        hint = f"did you mean {meant!r}? Else choose" if meant else "choose"
        return (
            f"unknown {self.kind} {name!r}: {hint} among {', '.join(self.names())}, or name a "
            "class as in module:Class"
        )

    def meant(self, name: str) -> str | None:
        """Guess the name meant: several without commas, a class's name, or a misprint."""
        words = name.split()
        if len(words) > 1 and all(word in self for word in words):
            return ",".join(words)
        called: dict[str, str] = {}
        for each, (factory, _) in self._known.items():
            called.setdefault(getattr(factory, "__name__", "").lower(), each)
        near = get_close_matches(name.lower(), [*self.names(), *called], 1, 0.75)
        return called.get(near[0], near[0]) if near else None


def load_object(path: str) -> Any:
    """Return what ``"module:Class"`` names; the class may be ``Outer.Inner``, or any attribute.

    Raises ValueError if the text has another form, ModuleNotFoundError if there is no such module,
    and ImportError if the module raises when it is imported, or has no such attribute.
    """
    name, colon, attribute = path.partition(":")
    if not (colon and is_path(name) and is_path(attribute)):
        raise ValueError(f"expected module:Class, not {path!r}")
    name, attribute = name.strip(), attribute.strip()
    try:
        found: Any = importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise ModuleNotFoundError(f"there is no module {missing!r}", name=missing) from None
        raise ImportError(f"the module {name!r} cannot be imported: {error}") from error
    except Exception as error:  # another package's module may raise anything
        raise ImportError(
            f"the module {name!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ImportError(f"the module {name!r} has no {attribute!r}") from None
    return found


def is_path(text: str) -> bool:
    """Whether a text has the form of a module's name, or of an attribute's: ``Outer.Inner``."""
    return _PATH.fullmatch(text) is not None


def read_arguments(
    factory: Factory, listed: str, what: str, given: Iterable[str] = (), whole: bool = True
) -> dict[str, Any]:
    """Return the keyword arguments that a text lists for a factory, read by its signature.

    The text is ``"key=value,key=value"``, and keys may have capitals. Only parameters that can be
    given by keyword count, except those that the caller has `given`; a factory with ``**options``
    takes any key. `read_value` reads the values, but parameters annotated as ``float`` take a
    number.

    Raises ValueError, which begins with `what`, if a key is unknown or occurs twice, a value should
    be a number and is not, or, for a `whole` list, a parameter without a default is missing. The
    error says what the factory takes.
    """
    parameters, anything = keywords(factory, frozenset(given))
    canonical = {name.lower(): name for name in parameters}
    values: dict[str, Any] = {}
    for item in filter(str.strip, listed.split(",")):
        key, equals, value = (part.strip() for part in item.partition("="))
        key = canonical.get(key.lower(), key)
        known = key in parameters
        number = known and parameters[key].annotation in (float, "float")
        if not key or not (known or anything):
            raise ValueError(f"{what}: there is no {key!r}; {takes(key, parameters)}")
        if key in values:
            raise ValueError(f"{what}: {key} is given twice")
        if not (equals or number):
            raise ValueError(f"{what}: {key} needs a value, {key}=VALUE")
        try:
            values[key] = float(value) if number else read_value(value)
        except ValueError:
            raise ValueError(f"{what}: {key} must be a number, not {value!r}") from None
    needed = (key for key, each in parameters.items() if each.default is each.empty)
    if whole and (lacking := [key for key in needed if key not in values]):
        needs = ",".join(f"{key}=VALUE" for key in lacking)
        raise ValueError(f"{what} needs {needs}; it takes {', '.join(parameters)}")
    return values


def keywords(
    factory: Factory, given: frozenset[str] = frozenset()
) -> tuple[dict[str, inspect.Parameter], bool]:
    """Return parameters that can be given by keyword, and whether there is ``**options``."""
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):  # some compiled functions have no signature
        return {}, True
    by_keyword = {
        name: each
        for name, each in parameters.items()
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY) and name not in given
    }
    return by_keyword, any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def functions_of(parameter: str, names: Mapping[str, Any]) -> list[Any]:
    """Return the public functions among a module's `names` that take this parameter alone."""
    public = [each for name, each in names.items() if not name.startswith("_")]
    functions = [each for each in public if inspect.isfunction(each)]
    return [each for each in functions if list(inspect.signature(each).parameters) == [parameter]]


def read_value(text: str) -> Any:
    """Return the value that a text stands for on a command line.

    A number, int if possible; a boolean (``true``, ``yes``, ``on``, ``false``, ``no``, ``off``); a
    list of these, as in ``2/1/1``; otherwise the text itself.
    """
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    parts = [read_value(part) for part in text.split("/")] if "/" in text else []
    if parts and not any(isinstance(part, str) for part in parts):
        return parts
    return _WORDS.get(text.lower(), text)
