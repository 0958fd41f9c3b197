#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets: whole NBD sessions, records of a header,
commands of the Redis protocol, requests to the live page, and traces.

Usage: seeds.py FOLDER
"""

import pathlib
import struct
import sys
import zlib

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


def frame():
    """Two events of a trace, and its end."""
    body = struct.pack("<QQHHBBH", 5, 64, 2, 1, 0, 3, 0)
    body += struct.pack("<IBBHIBBH", 64, 0, 1, 0, 4096, 1, 1, 0) + bytes([0b10])
    body += bytes([0b0111]) + bytes([1, 2, 3, 4]) + bytes(8)
    return framed(2, body) + framed(0, struct.pack("<Q", 2))


def framed(count, body):
    lengths = struct.pack("<II", count, len(body))
    return lengths + struct.pack("<I", zlib.adler32(lengths + body)) + body


def commands():
    def bulk(*words):
        return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)

    yield "set", bulk(b"SET", b"name", b"value", b"EX", b"10", b"NX", b"GET") + b"GET name\r\n"
    yield "options", bulk(b"PXAT", b"99999999999999999999") + bulk(b"XX", b"KEEPTTL") * 2
    yield "scan", bulk(b"COUNT", b"10", b"MATCH", b"a*[b-d]?\\*") + b"MATCH x\n\r\n*0\r\n"
    yield "glob", bulk(b"*a*a*a*[^a-c]\\", b"a" * 40) + bulk(b"[a", b"b")
    yield "wrong", b"*3\r\n$99999999\r\nx\r\n$-1\r\n"


def requests():
    known = b"Host: 127.0.0.1:40123\r\nAuthorization: Bearer 5f0c"
    yield "page", b"GET / HTTP/1.1\r\nHost: localhost:9"
    yield "samples", b"GET /user.json?after=17&x=y HTTP/1.1\r\n" + known
    yield "head", b"HEAD /metrics HTTP/1.0\r\ncontent-length: 0\r\n" + known
    yield "body", b"POST / HTTP/1.1\r\nHost: [::1]:9\r\nTransfer-Encoding: chunked"


def main():
    folder = pathlib.Path(sys.argv[1])
    for setup in range(8):
        for name, session in sessions():
            path = folder / "nbd" / f"{name}-{setup}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes([setup]) + session)
    (folder / "resp").mkdir(parents=True, exist_ok=True)
    for name, bytes_ in commands():
        (folder / "resp" / name).write_bytes(bytes_)
    (folder / "dashboard").mkdir(parents=True, exist_ok=True)
    for name, bytes_ in requests():
        (folder / "dashboard" / name).write_bytes(bytes_)
    (folder / "superblock").mkdir(parents=True, exist_ok=True)
    detwo = struct.pack("<HHIQIIIIQ", 2, 40, 0, 1 << 18, 4096, 1, 1, 0, 8192)
    plain = struct.pack("<HHIQI", 1, 20, 0, 1 << 18, 4096)
    for name, record in (("detwo", detwo), ("plain", plain)):
        (folder / "superblock" / name).write_bytes(bytes(8) + record)
    traces = folder / "trace"
    traces.mkdir(parents=True, exist_ok=True)
    for recorded in (pathlib.Path(__file__).parents[1] / "tests/lib/recorded").iterdir():
        (traces / recorded.name).write_bytes(recorded.read_bytes())
    (traces / "redis").write_bytes(b'OK\n1.5 [0 a:1] "set" "k" "\\x00\\""\n')
    for kind in (0, 1):
        for name, body in (("frames", frame()), ("cut", frame()[:-9])):
            header = struct.pack("<8sHHI", b"TLTRACE\0", 2, kind, 0)
            (traces / f"{name}-{kind}").write_bytes(header + body)
    records = b"".join(struct.pack("<QQIBBH", i, 64 * i, 64, i % 3, i % 4, 0) for i in range(9))
    header = struct.pack("<8sHHI", b"TLTRACE\0", 1, 24, 0)
    (traces / "records").write_bytes(header + records)
    state = struct.pack("<HHIQ", 1, 1, 1, 5) + struct.pack("<Q16sQ", 0, b"i" * 16, 0)
    (folder / "superblock" / "state").write_bytes(state)


if __name__ == "__main__":
    main()
