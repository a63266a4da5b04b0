"""Runs a program whose kernel has no io_uring, so far as it can tell: without_io_uring.py PROGRAM
ARGUMENT..."""
import ctypes
import os
import struct
import sys

# What a filter does (linux/filter.h): load the number of the system call; is it io_uring_setup's?
# then fail with ENOSYS; else allow it (seccomp(2)).
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
# The same number on every architecture.
IO_URING_SETUP = 425
FAIL, ENOSYS, ALLOW = 0x00050000, 38, 0x7FFF0000
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
CANNOT = 77

lines = ((LOAD, 0, 0, 0), (JUMP_IF_EQUAL, 0, 1, IO_URING_SETUP), (RETURN, 0, 0, FAIL | ENOSYS), (RETURN, 0, 0, ALLOW))
filter = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in lines))


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


program = Program(len(lines), ctypes.addressof(filter))
prctl = ctypes.CDLL(None).prctl
prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong]
if prctl(PR_SET_NO_NEW_PRIVS, 1, None, 0, 0) or prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(program), 0, 0):
    sys.exit(CANNOT)
os.execv(sys.argv[1], sys.argv[1:])
