"""The addresses of this machine, and the interface that has one of them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import socket
import struct
import subprocess
from dataclasses import dataclass

SIOCGIFADDR = 0x8915
"""The IPv4 address of an interface (netdevice(7))."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnAddresses:
    """Where this machine is reached."""

    addresses: tuple[str, ...]
    """The address asked about, and then the others of its interface."""
    interface: str
    """The interface that has it; empty where none was found."""


def own_addresses(address: str) -> OwnAddresses:
    """The interface of an IPv4 address of this machine, and what other global addresses that
    has.
    """
    interface = next((name for _, name in socket.if_nameindex() if _address_of(name) == address), "")
    if not interface:
        # This call does not return an interface's second address.
        interface = next((name for _, name in socket.if_nameindex() if address in _all_of(name)), "")
    others = [each for each in _all_of(interface) if each != address] if interface else []
    return OwnAddresses(addresses=(address, *others), interface=interface)


def _address_of(interface: str) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket, contextlib.suppress(OSError):
        told = fcntl.ioctl(any_socket, SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        return socket.inet_ntoa(told[20:24])
    return None


def _all_of(interface: str) -> list[str]:
    """Empty where ip(8) is not installed."""
    program = shutil.which("ip")
    if program is None:
        return []
    command = [program, "-json", "-4", "address", "show", "dev", interface, "scope", "global"]
    said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    with contextlib.suppress(ValueError, KeyError):
        return [str(each["local"]) for device in json.loads(said.stdout or "[]") for each in device["addr_info"]]
    return []
