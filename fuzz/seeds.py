#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets: whole NBD sessions, and records of a header.

Usage: seeds.py FOLDER
"""

import pathlib
import struct
import sys

OPTION = b"IHAVEOPT"
EXPORT_NAME, ABORT, LIST, STARTTLS, INFO, GO, STRUCTURED = 1, 2, 3, 5, 6, 7, 8
READ, WRITE, DISC, FLUSH, TRIM, CACHE, ZEROES = 0, 1, 2, 3, 4, 5, 6


def option(number, data=b""):
    return OPTION + struct.pack(">II", number, len(data)) + data


def go(number=GO, name=b"", infos=(3,)):
    body = struct.pack(">I", len(name)) + name + struct.pack(">H", len(infos))
    return option(number, body + b"".join(struct.pack(">H", i) for i in infos))


def request(kind, at=0, length=0, flags=0, data=b""):
    return struct.pack(">IHHQQI", 0x25609513, flags, kind, 7, at, length) + data


def sessions():
    hello = struct.pack(">I", 3)
    work = (
        request(WRITE, 4096, 512, 1, b"x" * 512)
        + request(READ, 4000, 700)
        + request(FLUSH)
        + request(ZEROES, 8192, 4096)
        + request(TRIM, 0, 512)
        + request(READ, 1 << 40, 512)
        + request(DISC)
    )
    yield "go", hello + go() + work
    yield "structured", hello + option(STRUCTURED) + go(INFO, infos=(0, 1, 2, 3)) + go() + work
    yield "export-name", hello + option(EXPORT_NAME) + work
    yield "wrong-name", hello + go(name=b"other") + option(LIST) + option(STARTTLS) + option(ABORT)
    yield "oversize", hello + go() + request(WRITE, 0, 1 << 31) + request(READ, 0, 1 << 31)


def main():
    folder = pathlib.Path(sys.argv[1])
    for setup in range(8):
        for name, session in sessions():
            path = folder / "nbd" / f"{name}-{setup}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes([setup]) + session)
    (folder / "superblock").mkdir(parents=True, exist_ok=True)
    detwo = struct.pack("<HHIQIIIIQ", 2, 40, 0, 1 << 18, 4096, 1, 1, 0, 8192)
    plain = struct.pack("<HHIQI", 1, 20, 0, 1 << 18, 4096)
    for name, record in (("detwo", detwo), ("plain", plain)):
        (folder / "superblock" / name).write_bytes(bytes(8) + record)
    state = struct.pack("<HHIQ", 1, 1, 1, 5) + struct.pack("<Q16sQ", 0, b"i" * 16, 0)
    (folder / "superblock" / "state").write_bytes(state)


if __name__ == "__main__":
    main()
