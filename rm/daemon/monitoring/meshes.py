"""The meshes and archives of rm.toml, one by one: a malformed one is reported, and the rest continue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from rm.core.monitoring.archive import Archive, parse_archive
from rm.core.monitoring.listed import NAME
from rm.core.monitoring.maintenance import HostWindow, parse_host_window
from rm.core.monitoring.mesh import Mesh, parse_mesh, usual
from rm.core.monitoring.source import KINDS, Source, parse_source
from rm.errors import ConfigError
from rm.units import SECOND_US


class Settings(Protocol):
    @property
    def interval_s(self) -> float: ...
    @property
    def throughput_interval_s(self) -> float: ...
    @property
    def probe_count(self) -> int: ...
    @property
    def mesh(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def maintenance(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def source(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def archive(self) -> Sequence[Mapping[str, Any]]: ...


@dataclass(frozen=True, slots=True)
class Meshes:
    """The `malformed` are (name, sentence) of what could not be used."""

    meshes: tuple[Mesh, ...]
    windows: tuple[HostWindow, ...]
    malformed: tuple[tuple[str, str], ...]
    sources: tuple[Source, ...] = ()
    malformed_sources: tuple[tuple[str, str], ...] = ()
    archives: tuple[Archive, ...] = ()
    malformed_archives: tuple[tuple[str, str], ...] = ()

    def left_out(self) -> Iterator[str]:
        """Why each of what could not be used is left out."""
        for _, sentence in (*self.malformed, *self.malformed_sources, *self.malformed_archives):
            yield sentence

    def grids(self) -> set[str] | None:
        """The names of all grids, also of those that a mistake in rm.toml leaves out for now; None when it
        hides what they are called."""
        wrong = (*self.malformed, *self.malformed_sources)
        if any(not NAME.fullmatch(name) for name, _ in wrong):
            return None
        names = {m.name for m in self.meshes} | {s.mesh for s in self.sources}
        names |= {name for name, _ in self.malformed}
        return names | {f"{kind}:{name}" for kind in KINDS for name, _ in self.malformed_sources}


def meshes_of(settings: Settings, interval_of: Callable[[Mesh], int]) -> Meshes:
    """`interval_of` raises ConfigError for a schedule that cannot be kept."""
    meshes: dict[str, Mesh] = {}
    windows: list[HostWindow] = []
    malformed: list[tuple[str, str]] = []
    for table in settings.mesh:
        try:
            mesh = parse_mesh(table)
            _keep(mesh, interval_of)
            if mesh.name in meshes:
                raise _twice("mesh", mesh.name)
            meshes[mesh.name] = mesh
        except ConfigError as error:
            malformed.append((str(table.get("name", "?")), str(error)))
    for table in settings.maintenance:
        try:
            windows.append(parse_host_window(table))
        except ConfigError as error:
            malformed.append(("maintenance", str(error)))
    found = tuple(meshes.values())
    if not settings.mesh:
        found = usual(
            round(settings.interval_s * SECOND_US),
            round(settings.throughput_interval_s * SECOND_US),
            settings.probe_count,
        )
    sources, wrong_sources = sources_of(settings.source)
    archives, wrong_archives = _listed("archive", settings.archive, parse_archive)
    return Meshes(found, tuple(windows), tuple(malformed), sources, wrong_sources, archives, wrong_archives)


def _keep(mesh: Mesh, interval_of: Callable[[Mesh], int]) -> None:
    """Raises ConfigError for a schedule that cannot be kept, naming its mesh."""
    try:
        interval_of(mesh)
    except ConfigError as error:
        raise ConfigError(f"[[monitor.mesh]] '{mesh.name}', schedule: {error.what}", error.hint) from None


def _twice(kind: str, name: str) -> ConfigError:
    return ConfigError(f"[[monitor.{kind}]] '{name}' is there twice.", "Name each differently.")


def sources_of(
    tables: Iterable[Mapping[str, Any]],
) -> tuple[tuple[Source, ...], tuple[tuple[str, str], ...]]:
    """The sources of rm.toml, and (name, sentence) of those that cannot be used."""
    return _listed("source", tables, parse_source)


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


def _listed(
    kind: str, tables: Iterable[Mapping[str, Any]], parse: Callable[[Mapping[str, Any]], N]
) -> tuple[tuple[N, ...], tuple[tuple[str, str], ...]]:
    """The tables of a kind, and (name, sentence) of those that cannot be used."""
    found: dict[str, N] = {}
    malformed: list[tuple[str, str]] = []
    for table in tables:
        try:
            one = parse(table)
            if one.name in found:
                raise _twice(kind, one.name)
            found[one.name] = one
        except ConfigError as error:
            malformed.append((str(table.get("name", "?")), str(error)))
    return tuple(found.values()), tuple(malformed)
