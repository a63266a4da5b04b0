"""Streams of bytes one way or both: what people forward, as downloads and uploads, where echoes
alternate.

`serve PORT` takes connections, each of which begins with a letter for its direction and a length;
`load PORT DIRECTION STREAMS BYTES [SECONDS]` makes them, all at once, and ends when every byte has
arrived; with SECONDS each stream is followed by another until that time is over. It prints how many
bytes were moved.
"""

from __future__ import annotations

import socket
import struct
import sys
import threading
import time

PIECE_BYTES = 256 * 1024
HEAD = struct.Struct("!cQ")
DIRECTIONS = {"up": b"u", "down": b"d", "both": b"b"}


def receive(connection: socket.socket, length: int) -> None:
    """Reads so many bytes, and throws them away."""
    buffer = memoryview(bytearray(PIECE_BYTES))
    while length:
        count = connection.recv_into(buffer[: min(length, PIECE_BYTES)])
        if not count:
            raise ConnectionError(f"the stream ended {length} bytes early")
        length -= count


def send(connection: socket.socket, length: int) -> None:
    """Writes so many bytes."""
    piece = memoryview(bytearray(PIECE_BYTES))
    while length:
        count = min(length, PIECE_BYTES)
        connection.sendall(piece[:count])
        length -= count


def exchange(connection: socket.socket, length: int, *, sends: bool, receives: bool) -> None:
    """Moves the bytes of one stream, as one of its sides."""
    sender = threading.Thread(target=send, args=(connection, length)) if sends else None
    if sender:
        sender.start()
    if receives:
        receive(connection, length)
    if sender:
        sender.join()


def answer(connection: socket.socket) -> None:
    """Serves one connection."""
    with connection:
        head = connection.recv(HEAD.size, socket.MSG_WAITALL)
        if len(head) < HEAD.size:
            return  # a check whether the server is there
        direction, length = HEAD.unpack(head)
        exchange(connection, length, sends=direction in b"db", receives=direction in b"ub")
        connection.sendall(b"!")


def serve(port: int) -> None:
    """Serves until it is ended."""
    with socket.create_server(("127.0.0.1", port), backlog=64) as listener:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=answer, args=(connection,), daemon=True).start()


def load(port: int, direction: str, streams: int, length: int, seconds: float = 0.0) -> None:
    """Moves `length` bytes each way that `direction` has, in so many streams together, until the
    seconds are over; a failure ends the program.
    """
    failed: list[Exception] = []
    moved: list[int] = []
    until = time.monotonic() + seconds
    up, down = direction != "down", direction != "up"

    def stream() -> None:
        one()
        while time.monotonic() < until and not failed:
            one()

    def one() -> None:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                connection.sendall(HEAD.pack(DIRECTIONS[direction], length // streams))
                exchange(connection, length // streams, sends=up, receives=down)
                if connection.recv(1) != b"!":
                    failed.append(ConnectionError("the server has not said that it has every byte"))
                moved.append(length // streams * (up + down))
        except (OSError, ConnectionError) as error:
            failed.append(error)

    threads = [threading.Thread(target=stream) for _ in range(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        sys.exit(f"{len(failed)} of {streams} streams failed: {failed[0]}")
    print(sum(moved))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]))
    else:
        load(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), *map(float, sys.argv[6:7]))
