"""Dataclasses with slots, as `dataclasses` has them, for what a command loads and uses once: there the text
of six functions is compiled for each frozen one, which takes a sixth of the start of `rmx playbook run`.

Their methods go over the fields here. What makes instances by the ten thousand takes the original.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    from dataclasses import MISSING, FrozenInstanceError
    from dataclasses import dataclass as original
    from dataclasses import fields as fields_of

    def dataclass(*, frozen=False, slots):
        """As the original with `slots=True`, which may have more options."""
        assert slots

        def made(cls):
            own = set(vars(cls))
            if not cls.__doc__:  # the original would write the class's signature there, which takes longest
                cls.__doc__ = f"{cls.__name__}(...)"
            cls = original(init=False, repr=False, eq=False, slots=True)(cls)
            fields = fields_of(cls)
            compared = tuple(one.name for one in fields if one.compare)
            methods = {"__init__": _init(cls, fields), "__repr__": _repr(fields), "__eq__": _eq(compared)}
            if frozen:
                methods |= {"__hash__": _hash(compared), **_frozen(cls, fields)}
            elif "__eq__" not in own:
                methods["__hash__"] = None
            for name, method in methods.items():
                if name not in own:
                    setattr(cls, name, method)
            return cls

        return made

    def _init(cls, fields):
        setters = [getattr(cls, one.name).__set__ for one in fields]
        parts = [
            (one.name, put, one.default, one.default_factory)
            for one, put in zip(fields, setters, strict=True)
        ]
        rests = [parts[at:] for at in range(len(parts) + 1)]
        after = hasattr(cls, "__post_init__")

        def __init__(self, /, *values, **named):
            if len(values) > len(setters):
                raise TypeError(f"{cls.__name__} takes {len(setters)} arguments, and got {len(values)}")
            for put, value in zip(setters, values):  # noqa: B905 - the others are named, or have defaults
                put(self, value)
            for name, put, default, factory in rests[len(values)]:
                if name in named:
                    put(self, named.pop(name))
                elif default is not MISSING:
                    put(self, default)
                elif factory is not MISSING:
                    put(self, factory())
                else:
                    raise TypeError(f"{cls.__name__} misses its argument '{name}'")
            if named:
                raise TypeError(f"{cls.__name__} got unexpected or repeated arguments: {', '.join(named)}")
            if after:
                self.__post_init__()

        return __init__

    def _repr(fields):
        names = tuple(one.name for one in fields if one.repr)

        def __repr__(self):
            said = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
            return f"{type(self).__qualname__}({said})"

        return __repr__

    def _eq(names):
        def __eq__(self, other):
            if type(other) is not type(self):
                return NotImplemented
            return all(getattr(self, name) == getattr(other, name) for name in names)

        return __eq__

    def _hash(names):
        def __hash__(self):
            return hash(tuple([getattr(self, name) for name in names]))

        return __hash__

    def _frozen(cls, fields):
        setters = {one.name: getattr(cls, one.name).__set__ for one in fields}

        def __setattr__(self, name, value):
            raise FrozenInstanceError(f"cannot assign to field {name!r}")

        def __delattr__(self, name):
            raise FrozenInstanceError(f"cannot delete field {name!r}")

        def __getstate__(self):  # for copies and pickles
            return [getattr(self, name) for name in setters]

        def __setstate__(self, state):
            for put, value in zip(setters.values(), state, strict=True):
                put(self, value)

        return {
            "__setattr__": __setattr__,
            "__delattr__": __delattr__,
            "__getstate__": __getstate__,
            "__setstate__": __setstate__,
        }
