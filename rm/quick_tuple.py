"""Named tuples as `typing` has them, for commands that scripts call in loops: `typing`, and `collections`,
which makes its named tuples, take a third of the time of such a command."""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    from _collections import _tuplegetter

    class _Named(tuple):
        """What all of them do alike, as those of `collections`."""

        __slots__ = ()

        @classmethod
        def _make(cls, values):
            made = tuple.__new__(cls, values)
            if len(made) != len(cls._fields):
                raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
            return made

        def _replace(self, /, **changes):
            made = self._make(map(changes.pop, self._fields, self))
            if changes:
                raise ValueError(f"Got unexpected field names: {[*changes]!r}")
            return made

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self):
            said = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
            return f"{type(self).__name__}({said})"

        def __getnewargs__(self):  # for copies and pickles
            return tuple(self)

    class _Making(type):
        """Makes of a class statement a class of tuples, whose own class is the usual one."""

        def __new__(kind, name, bases, body):
            if not bases:
                return super().__new__(kind, name, bases, body)
            fields = tuple(body["__annotations__"])
            defaults = {field: body.pop(field) for field in fields if field in body}
            if fields[len(fields) - len(defaults) :] != tuple(defaults):
                raise TypeError(f"A field of {name} without a default follows one with a default.")
            body |= {field: _tuplegetter(at, "") for at, field in enumerate(fields)}
            body |= {
                "__slots__": (),
                "__match_args__": fields,
                "_fields": fields,
                "_field_defaults": defaults,
            }
            return type(name, (_Named,), {**body, "__new__": _new(name, fields, defaults)})

    class NamedTuple(metaclass=_Making):
        """`class Address(NamedTuple)`: its annotated names are its fields, in order, some with defaults."""

    def _new(kind, fields, defaults):
        count, missing, make = len(fields), tuple(defaults.values()), tuple.__new__

        def __new__(cls, /, *values, **named):
            if len(values) == count and not named:
                return make(cls, values)
            if named:
                rest = fields[len(values) :]
                if strange := named.keys() - set(rest):
                    raise TypeError(f"{kind}() got unexpected or repeated arguments {strange}")
                given = {**defaults, **named}
                values += tuple([given[field] for field in rest if field in given])
            elif count - len(missing) <= len(values) < count:
                values += missing[len(values) - count :]
            if len(values) != count:
                raise TypeError(f"{kind}() takes {count} arguments, and has {len(values)}")
            return make(cls, values)

        return __new__
