"""The right to make network namespaces: as root, or over a user namespace of the lab's own.

In a user namespace (user_namespaces(7)) the invoking user is root over what it makes there, and
itself over everything else: files on disk, other people's processes, the machine's own network. So
the server under test still runs as the invoking user.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from plimsoll_lab.problem import ENVIRONMENT, LabError

CLONE_NEWUSER, CLONE_NEWNET = 0x1000_0000, 0x4000_0000
"""sched.h. The lab moves to a network namespace of its own too: a thread that enters a host's could
not return to one that the user namespace does not own."""
CAP_NET_ADMIN, CAP_SYS_ADMIN = 12, 21
"""linux/capability.h."""
TUN = Path("/dev/net/tun")

_LIBC = ctypes.CDLL(None, use_errno=True)


def may_make_networks() -> bool:
    """Whether this process itself may make network namespaces and devices."""
    fields = (line.split() for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines())
    held = next((int(each[1], 16) for each in fields if each and each[0] == "CapEff:"), 0)
    return bool(held >> CAP_NET_ADMIN & 1) and bool(held >> CAP_SYS_ADMIN & 1)


def gain_networks(*, over_tap: bool) -> str:
    """Be able to make networks, or say what to do; how it is done: `root` or `user namespace`. One
    thread only.

    The emulator over TAP devices needs their driver; the kernel's bridges do not.
    """
    if over_tap and not os.access(TUN, os.R_OK | os.W_OK):
        what = "is missing: load the kernel module tun" if not TUN.exists() else "may not be opened: chmod 666 it"
        raise LabError(
            f'an emulated network needs {TUN}, which {what}. Without it, write backend = "kernel" into [network], '
            "which needs netem and htb in the kernel if a link has a rate, delay or loss (plimsoll lab preflight "
            "checks that). Or remove [network] to run on the local host",
            exit_code=ENVIRONMENT,
        )
    if may_make_networks():
        return "root"
    user, group = os.getuid(), os.getgid()
    if _LIBC.unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
        why = os.strerror(ctypes.get_errno())
        raise LabError(
            f"an emulated network needs root, or a user namespace, which this machine refuses ({why}): "
            "run the lab as root, or allow user namespaces (sysctl user.max_user_namespaces, "
            "kernel.unprivileged_userns_clone or kernel.apparmor_restrict_unprivileged_userns). "
            "Or remove [network] to run on the local host",
            exit_code=ENVIRONMENT,
        )
    try:
        # user_namespaces(7): without privilege over the parent, one user and one group may be
        # mapped, and the latter only once setgroups(2) has been given up.
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1", encoding="ascii")
    except OSError as error:
        raise LabError(
            "an emulated network needs root, or a user namespace whose root this machine refuses to map "
            f"({error.strerror}): run the lab as root, or remove [network] to run on the local host",
            exit_code=ENVIRONMENT,
        ) from None
    if not may_make_networks():
        raise LabError(
            "this machine gives a process no capabilities in its own user namespace; run the lab as root, or "
            "remove [network] to run on the local host",
            exit_code=ENVIRONMENT,
        )
    return "user namespace"
