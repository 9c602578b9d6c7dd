"""`ipaddr` and its kind, as in the collection ansible.utils: IP addresses and networks, asked questions.

Ansible's own need the library netaddr on the control machine; these need none.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from typing import Any

from rm.quick_dataclass import dataclass

_BITS = {4: 32, 6: 128}
_TO_4 = ipaddress.IPv6Network("::ffff:0:0/96"), ipaddress.IPv6Network("::/96")
_6TO4 = ipaddress.IPv6Network("2002::/16")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _address(number: int, version: int) -> Address:
    return ipaddress.IPv4Address(number) if version == 4 else ipaddress.IPv6Address(number)


def said(ip: Address) -> str:
    """An address as inet_ntop(3) writes it: an IPv4 address inside of an IPv6 address keeps its dots."""
    if ip.version == 6 and (int(ip) >> 32 == 0xFFFF or 0xFFFF < int(ip) < 1 << 32):
        mapped = "::ffff:" if int(ip) >> 32 else "::"
        return f"{mapped}{ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)}"
    return str(ip)


@dataclass(frozen=True, slots=True)
class Given:
    """An address with its prefix, and whether the prefix was written (`network`) or not."""

    ip: Address
    prefix: int
    written: bool
    value: Any  # as it was given, or as it is written where that was a number

    @property
    def version(self) -> int:
        return self.ip.version

    @property
    def size(self) -> int:
        return 1 << (_BITS[self.version] - self.prefix)

    @property
    def first(self) -> int:
        return int(self.ip) & ~(self.size - 1)

    @property
    def last(self) -> int:
        return self.first + self.size - 1

    @property
    def network(self) -> Address:
        return self.at(self.first)

    @property
    def netmask(self) -> Address:
        return self.at((1 << _BITS[self.version]) - self.size)

    @property
    def hostmask(self) -> Address:
        return self.at(self.size - 1)

    @property
    def is_first(self) -> bool:
        return int(self.ip) == self.first

    @property
    def broadcast(self) -> Address | None:
        return None if self.size <= 2 else self.at(self.last)

    @property
    def usable(self) -> tuple[int, int]:
        return (self.first, self.last) if self.size == 2 else (self.first + 1, self.last - 1)

    def at(self, number: int) -> Address:
        return _address(number, self.version)

    def long(self) -> str:
        return f"{said(self.ip)}/{self.prefix}"

    def subnet(self) -> str:
        return f"{said(self.network)}/{self.prefix}"

    def holds(self, other: Given) -> bool:
        return self.version == other.version and self.first <= other.first and other.last <= self.last


def _given(value: Any, version: int = 0) -> Given | None:
    """What a value means as an address or network; None: nothing."""
    text = str(value).strip()
    if "%" in text:  # a zone is no part of an address
        return None
    address, slash, prefix = text.partition("/")
    if address.isdigit():  # a number stands for the address
        for kind in (4, 6):
            if version in (0, kind) and int(address) < 1 << _BITS[kind]:
                ip = _address(int(address), kind)
                if not slash:
                    return Given(ip, _BITS[kind], False, f"{said(ip)}/{_BITS[kind]}")
                if prefix.isdigit() and int(prefix) <= _BITS[kind]:
                    return Given(ip, int(prefix), True, f"{said(ip)}/{prefix}")
        return None
    try:
        found = ipaddress.ip_interface(text)
    except ValueError:
        return None
    return Given(found.ip, found.network.prefixlen, bool(slash), value)


def _network_only(given: Given) -> None:
    if not given.written:
        raise ValueError("Not a network address")


def _usable(which: int) -> Callable[[Given], Any]:
    def answer(given: Given) -> Any:
        _network_only(given)
        return said(given.at(given.usable[which])) if given.size > 1 else None

    return answer


def _beside(step: int) -> Callable[[Given], Any]:
    def answer(given: Given) -> Any:
        _network_only(given)
        number = int(given.ip) + step
        fits = given.size > 1 and given.usable[0] <= number <= given.usable[1]
        return said(given.at(number)) if fits else None

    return answer


def _range_usable(given: Given) -> Any:
    _network_only(given)
    return "-".join(said(given.at(one)) for one in given.usable) if given.size > 1 else None


def _peer(given: Given) -> Any:
    _network_only(given)
    if given.size == 2:
        return said(given.at(int(given.ip) ^ 1))
    if given.size != 4:
        raise ValueError("Not a point-to-point network")
    if int(given.ip) % 4 in (0, 3):
        kind = "Broadcast" if int(given.ip) % 4 else "Network"
        raise ValueError(f"{kind} address of /30 has no peer")
    return said(given.at(int(given.ip) ^ 3))


def _plain(given: Given) -> Any:
    lone = given.size == 1 or not given.is_first or given.broadcast is None or given.version == 6
    return said(given.ip) if lone else None


def _ip_with(tail: Callable[[Given], str]) -> Callable[[Given], Any]:
    def answer(given: Given) -> Any:
        fits = given.size == 2 or (given.size > 1 and not given.is_first)
        return f"{said(given.ip)}{tail(given)}" if fits else None

    return answer


def _host(given: Given) -> Any:
    fits = given.size == 1 or not given.is_first or given.broadcast is None
    return given.long() if fits else None


def _gateway(given: Given) -> Any:
    return False if given.size > 2 and int(given.ip) in (given.first, given.last) else given.long()


def _as_4(given: Given) -> Any:
    if given.version == 4:
        return given.value
    for mapped in _TO_4:
        if given.ip in mapped and given.prefix >= 96:
            return f"{ipaddress.IPv4Address(int(given.ip) & 0xFFFFFFFF)}/{given.prefix - 96}"
    return False


def _as_6(given: Given) -> Any:
    if given.version == 6:
        return given.value
    return f"{said(ipaddress.IPv6Address((0xFFFF << 32) | int(given.ip)))}/{given.prefix + 96}"


def _6to4(given: Given) -> Any:
    if given.version == 4:
        if given.ip.is_multicast or (given.size > 1 and given.is_first):
            return False
        high, low = divmod(int(given.ip), 1 << 16)
        return "2002:{:02x}{:02x}:{:02x}{:02x}::1/48".format(*divmod(high, 256), *divmod(low, 256))
    return given.value if given.ip in _6TO4 and not (given.written and given.is_first) else False


def _is_global(ip: Address) -> bool:
    return ip.is_global and ip not in _6TO4 and ip not in _TO_4[0]


def _public(given: Given) -> bool:
    ip = given.ip
    masks = given.version == 4 and _is_mask(int(ip))
    return _is_global(ip) and not ip.is_multicast and not ip.is_loopback and not masks


def _is_mask(number: int) -> bool:
    """Is it a netmask or a hostmask?"""
    turned = number ^ 0xFFFFFFFF
    return number & (number + 1) == 0 or turned & (turned + 1) == 0


def _wrap(given: Given) -> Any:
    if given.version == 4:
        return given.value
    return f"[{said(given.ip)}]" + (f"/{given.prefix}" if given.written else "")


def _itself(true: Callable[[Given], bool]) -> Callable[[Given], Any]:
    return lambda given: given.value if true(given) else None


def _link_local(given: Given) -> bool:
    return given.ip.is_link_local


_QUERIES: dict[str, Callable[[Given], Any]] = {
    "": lambda g: g.long() if g.written else said(g.ip),
    "6to4": _6to4,
    "address": _plain,
    "address/prefix": _gateway,
    "bool": lambda g: True,
    "broadcast": lambda g: said(g.broadcast) if g.broadcast is not None else None,
    "cidr": Given.long,
    "first_usable": lambda g: _usable(0)(g) if g.size != 2 or not g.written else said(g.network),
    "gateway": _gateway,
    "gw": _gateway,
    "host": _host,
    "host/prefix": _gateway,
    "hostmask": lambda g: said(g.hostmask),
    "hostnet": _gateway,
    "int": lambda g: f"{int(g.ip)}/{g.prefix}" if g.written else int(g.ip),
    "ip": _plain,
    "ip/prefix": _ip_with(lambda g: f"/{g.prefix}"),
    "ip_netmask": _ip_with(lambda g: f" {said(g.netmask)}"),
    "ipv4": _as_4,
    "ipv6": _as_6,
    "last_usable": _usable(1),
    "link-local": _itself(_link_local),
    "lo": _itself(lambda g: g.ip.is_loopback),
    "loopback": _itself(lambda g: g.ip.is_loopback),
    "multicast": _itself(lambda g: g.ip.is_multicast),
    "net": lambda g: g.subnet() if g.size > 1 and g.is_first else None,
    "netmask": lambda g: said(g.netmask),
    "network": lambda g: said(g.network),
    "network/prefix": Given.subnet,
    "network_id": lambda g: said(g.network),
    "network_netmask": lambda g: f"{said(g.network)} {said(g.netmask)}",
    "network_wildcard": lambda g: f"{said(g.network)} {said(g.hostmask)}",
    "next_usable": _beside(1),
    "peer": _peer,
    "prefix": lambda g: g.prefix,
    "previous_usable": _beside(-1),
    "private": _itself(lambda g: not _is_global(g.ip)),
    "public": _itself(_public),
    "range_usable": _range_usable,
    "revdns": lambda g: g.ip.reverse_pointer + ".",
    "router": _gateway,
    "size": lambda g: g.size,
    "size_usable": lambda g: {1: 0, 2: 2}.get(g.size, g.size - 2),
    "subnet": Given.subnet,
    "type": lambda g: "address" if g.size == 1 or not g.is_first else "network",
    "unicast": _itself(lambda g: not g.ip.is_multicast),
    "version": lambda g: g.version,
    "wildcard": lambda g: said(g.hostmask),
    "wrap": _wrap,
}


def ipaddr(value: Any, query: Any = "", version: Any = False, alias: str = "ipaddr") -> Any:
    """The answer to a query about one address or network; of a list the answers that are not empty."""
    if isinstance(value, (list, tuple, Iterator)):
        found = [ipaddr(one, str(query), version, alias) for one in value]
        return [one for one in found if one]
    given = _given(value, int(version or 0)) if value and value is not True else None
    if given is None or (version and given.version != version):
        return False
    if not isinstance(query, str) or query not in _QUERIES:
        return _other(given, query, alias)
    return _QUERIES[query](given)


def _other(given: Given, query: Any, alias: str) -> Any:
    """A query that is a number (the host of that place) or a network (is it in there?)."""
    try:
        place = int(str(query))
    except ValueError:
        within = _given(query)
        if within is None:
            raise ValueError(f"{alias}: unknown filter type: {query}") from None
        whole = Given(within.network, within.prefix, True, query)
        return given.value if whole.holds(given) else None
    if given.size == 1:
        return given.long() if given.written else said(given.ip)
    number = given.first + place if place >= 0 else given.last + place + 1
    return f"{given.at(number)}/{given.prefix}" if given.first <= number <= given.last else False


def _ipwrap(value: Any, query: Any = "") -> Any:
    if isinstance(value, (list, tuple, Iterator)):
        return [ipaddr(one, "wrap") if ipaddr(one, query, alias="ipwrap") else one for one in value]
    found = ipaddr(value, query, alias="ipwrap")
    return ipaddr(found, "wrap") if found else value


def _network_of(value: Any) -> Given | None:
    """The value as a network where it is one, as a lone address where it is a host of one."""
    given = _given(value)
    if given is None:
        return None
    return Given(given.network, given.prefix, True, value)


def _ipsubnet(value: Any, query: Any = "", index: Any = None) -> Any:
    net, query = _network_of(value), str(query)
    if net is None:
        return False
    bits, lone = _BITS[net.version], net.size == 1
    if not query:
        return net.subnet()
    if not query.isdigit():
        around = _network_of(query)
        if around is None:
            raise ValueError(f"You must pass a valid subnet or IP address; {query} is invalid")
        if not around.holds(net):
            raise ValueError(f"{net.subnet()} is not in the subnet {around.subnet()}")
        return str((net.first - around.first) // net.size + 1)
    wanted = int(query)
    if wanted > bits:
        return False
    if lone:
        above = range(wanted, bits)
        place = int(index or 0)
        if index is not None and (place > bits + 1 - place or place < wanted - bits):
            return False
        prefix = above[place]
        return Given(net.ip, prefix, True, value).subnet()
    if wanted < net.prefix:
        raise ValueError(f"Requested subnet size of {wanted} is invalid")
    count = 1 << (wanted - net.prefix)
    if index is None:
        return str(count)
    place = int(index) + (count if int(index) < 0 else 0)
    return f"{said(net.at(net.first + (place << (bits - wanted))))}/{wanted}" if 0 <= place < count else False


def _nthhost(value: Any, query: Any = "") -> Any:
    net = _network_of(value)
    if net is None or not query or not str(query).lstrip("-").isdigit() or net.size <= int(query):
        return False
    number = net.first + int(query) if int(query) >= 0 else net.last + int(query) + 1
    return said(net.at(number))


def _ipmath(value: Any, amount: Any) -> str:
    given = _given(value) if isinstance(value, str) else None
    if given is None:
        raise ValueError(f"You must pass a valid IP address; {value} is invalid")
    if not isinstance(amount, int):
        raise TypeError(f"You must pass an integer for arithmetic; {amount} is not a valid integer")
    return said(given.at(int(given.ip) + amount))


def _within(value: Any, test: Any) -> bool:
    outer, inner = _network_of(value), _network_of(test)
    if outer is None or inner is None:
        raise ValueError(f"{test if outer else value} is neither an address nor a network")
    return outer.holds(inner)


_SHORT: dict[str, Callable[..., Any]] = {
    "ipaddr": ipaddr,
    "ipv4": lambda value, query="": ipaddr(value, query, 4, "ipv4"),
    "ipv6": lambda value, query="": ipaddr(value, query, 6, "ipv6"),
    "ipwrap": _ipwrap,
    "ipsubnet": _ipsubnet,
    "nthhost": _nthhost,
    "ipmath": _ipmath,
    "network_in_network": _within,
}
ADDRESSES = {
    name: function
    for short, function in _SHORT.items()
    for name in (short, f"ansible.utils.{short}", f"ansible.netcommon.{short}")
}
