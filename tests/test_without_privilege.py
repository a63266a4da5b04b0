"""What an ordinary user can do: local suites always, networks in a user namespace where one can be
made.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory import BINARY, ROOT

NOBODY = 65534
TUN = Path("/dev/net/tun")

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root, to drop its privileges, and setpriv"
)

SUITE = """
name = "nobody"
question = "What may nobody do?"
[server]
workers = 1
[load]
connections = 4
each = 5
think = "10ms"
threads = 1
[run]
repeat = 1
"""
NETWORK = '[network]\ntopology = "single,2"\n'


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the user nobody owns, with what it runs: it may not read the checkout."""
    with tempfile.TemporaryDirectory(prefix="plimsoll-nobody-") as name:
        own = Path(name)
        shutil.copytree(ROOT / "lab" / "plimsoll_lab", own / "lab" / "plimsoll_lab")
        shutil.copy(BINARY, own / "plimsoll")
        (own / "python").mkdir()
        (own / "base").mkdir()
        (own / "devices").mkdir()
        (own / "local.toml").write_text(SUITE)
        (own / "network.toml").write_text(SUITE + NETWORK)
        for path in [own, *own.rglob("*")]:
            os.chown(path, NOBODY, NOBODY)
        yield own


def as_nobody(folder: Path, *command: str, tun_mode: str = "600") -> subprocess.CompletedProcess[str]:
    """Run as nobody, in a mount namespace where the Python that runs this test is reachable.

    There `/dev/net/tun` has the given mode, whatever mode it has on this machine. The kernel makes
    it 0600.
    """
    base = Path(sys.base_prefix)
    steps = [f'mount --bind "{sys.prefix}" "{folder}/python"', f'mount --bind "{base}" "{folder}/base"']
    if TUN.exists():
        # The folder may be on a file system that is mounted without devices.
        steps += [f'mount -t tmpfs -o mode=755 none "{folder}/devices"', f'mknod "{folder}/devices/tun" c 10 200']
        steps += [f'chmod {tun_mode} "{folder}/devices/tun"', f'mount --bind "{folder}/devices/tun" "{TUN}"']
    closed = next((parent for parent in reversed(base.parents) if not parent.stat().st_mode & 0o001), None)
    if closed is not None:
        steps += [f'mount -t tmpfs -o mode=755 none "{closed}"', f'mkdir -p "{base}"']
        steps += [f'mount --bind "{folder}/base" "{base}"']
    steps += [f'exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups --inh-caps=-all -- "$0" "$@"']
    script = " && ".join(steps)
    environment = os.environ | {"PLIMSOLL_BIN": str(folder / "plimsoll"), "PYTHONPATH": str(folder / "lab")}
    return subprocess.run(
        ["unshare", "--mount", "--", "sh", "-c", script, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def python(folder: Path) -> str:
    return f"{folder}/python/bin/{Path(sys.executable).name}"


def lab(folder: Path, *arguments: str, tun_mode: str = "600") -> subprocess.CompletedProcess[str]:
    return as_nobody(folder, python(folder), "-m", "plimsoll_lab", *arguments, tun_mode=tun_mode)


needs_tun = pytest.mark.skipif(not TUN.exists(), reason=f"this kernel has no {TUN}: load the module tun")


def test_local_suites_work(folder: Path) -> None:
    done = lab(folder, "run", "local.toml", "--json")
    assert done.returncode in {0, 4}, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["trials"]["measured"] == 1


@needs_tun
def test_a_network_is_made_in_a_user_namespace_where_the_machine_lets_one_be_made(folder: Path) -> None:
    possible = as_nobody(folder, "unshare", "--user", "--map-root-user", "--net", "true").returncode == 0
    done = lab(folder, "run", "network.toml", "--json", tun_mode="666")
    if not possible:
        assert done.returncode == 5
        assert "run the lab as root" in done.stderr
        return
    assert done.returncode in {0, 4}, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["trials"]["measured"] == 1
    assert summary["network"][0]["measured"]["round_trip_us"]["count"] > 0
    assert (folder / "runs/0001/run.json").stat().st_uid == NOBODY


@needs_tun
def test_a_tap_driver_that_only_root_may_open_is_named_with_the_remedy(folder: Path) -> None:
    done = lab(folder, "run", "network.toml", tun_mode="600")
    assert done.returncode == 5
    assert "/dev/net/tun, which may not be opened: chmod 666 it" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@needs_tun
def test_without_user_namespaces_a_network_says_what_to_do(folder: Path) -> None:
    # A user namespace whose own limit of user namespaces is 0 (namespaces(7)) stands for a machine
    # without them.
    refuse = 'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all "$0" "$@"'
    inside = ["unshare", "--user", "--map-root-user", "sh", "-c", refuse]
    done = as_nobody(folder, *inside, python(folder), "-m", "plimsoll_lab", "run", "network.toml", tun_mode="666")
    if done.returncode != 5:
        pytest.skip(f"this machine does not let its limits be lowered: {done.stderr.strip()}")
    assert "which this machine refuses" in done.stderr
    assert "Or remove [network] to run on the local host" in done.stderr
    assert len(done.stderr.splitlines()) == 1
