"""A small NBD client: fixed newstyle, simple replies, one request at a time.

nbd.py SOCKET probe                           connects, and goes
nbd.py SOCKET size                            prints the size of the export
nbd.py SOCKET write OFFSET SEED [LENGTH]      writes bytes that follow from SEED
nbd.py SOCKET verify OFFSET SEED [LENGTH]     reads them back; exit code 1 if they differ
nbd.py SOCKET fill BLOCKS SEED                writes blocks from 0 on, one a request, each with the
                                              next seed
nbd.py SOCKET refused BLOCKS SEED             reads them back, prints those that are refused; exit
                                              code 1 if another one differs
nbd.py SOCKET dump                            prints all that it holds
nbd.py SOCKET flush
nbd.py SOCKET read-error OFFSET [LENGTH]      a read that must be refused
nbd.py SOCKET write-error OFFSET [LENGTH]     a write that must be refused
"""

import random
import socket
import struct
import sys

BLOCK_LEN = 4096
DUMP_LEN = 16 << 20

READ, WRITE, DISCONNECT, FLUSH = 0, 1, 2, 3
FUA = 1

_GO = 7
_REPLY_ACK = 1
_REPLY_INFO = 3
_INFO_EXPORT = 0


class Refused(Exception):
    """The server answered a request with an error."""


class Client:
    """A connection to the export with the empty name."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        magic, version, flags = struct.unpack(">8s8sH", self._receive(18))
        if (magic, version) != (b"NBDMAGIC", b"IHAVEOPT") or not flags & 1:
            raise ValueError("not an NBD server of the fixed newstyle")
        # Fixed newstyle, and no padding.
        self.socket.sendall(struct.pack(">I", 3))
        self.size, self.flags = self._go()
        self.handle = 0

    def _go(self):
        data = struct.pack(">IH", 0, 0)
        self.socket.sendall(struct.pack(">8sII", b"IHAVEOPT", _GO, len(data)) + data)
        found = None
        while True:
            _, _, kind, length = struct.unpack(">QIII", self._receive(20))
            data = self._receive(length)
            if kind == _REPLY_INFO and struct.unpack(">H", data[:2])[0] == _INFO_EXPORT:
                found = struct.unpack(">QH", data[2:12])
            elif kind == _REPLY_ACK:
                return found
            elif kind & 1 << 31:
                raise Refused(f"the export: {kind:#x} {data!r}")

    def _receive(self, length):
        parts = bytearray()
        while len(parts) < length:
            part = self.socket.recv(length - len(parts))
            if not part:
                raise ConnectionError("the server has hung up")
            parts += part
        return bytes(parts)

    def request(self, kind, offset=0, length=0, data=b"", flags=0):
        """One request and its reply. Returns what was read."""
        self.handle += 1
        header = struct.pack(">IHHQQI", 0x25609513, flags, kind, self.handle, offset, length)
        self.socket.sendall(header + data)
        magic, error, handle = struct.unpack(">IIQ", self._receive(16))
        if magic != 0x67446698 or handle != self.handle:
            raise ValueError("a reply to nothing that was asked")
        if error:
            raise Refused(f"error {error}")
        return self._receive(length) if kind == READ else b""

    def read(self, offset, length):
        return self.request(READ, offset, length)

    def write(self, offset, data, fua=False):
        self.request(WRITE, offset, len(data), data, FUA if fua else 0)

    def flush(self):
        self.request(FLUSH)

    def close(self):
        header = struct.pack(">IHHQQI", 0x25609513, 0, DISCONNECT, 0, 0, 0)
        self.socket.sendall(header)
        self.socket.close()


def pattern(seed, length):
    """Bytes that follow from a seed."""
    return random.Random(seed).randbytes(length)


def main():
    path, verb, *numbers = sys.argv[1:]
    numbers = [int(number) for number in numbers]
    client = Client(path)
    if verb == "size":
        print(client.size)
    elif verb == "write":
        offset, seed, length = (*numbers, BLOCK_LEN)[:3]
        client.write(offset, pattern(seed, length))
    elif verb == "verify":
        offset, seed, length = (*numbers, BLOCK_LEN)[:3]
        if client.read(offset, length) != pattern(seed, length):
            sys.exit(f"other bytes than were written at {offset}")
    elif verb == "fill":
        blocks, seed = numbers
        for block in range(blocks):
            client.write(block * BLOCK_LEN, pattern(seed + block, BLOCK_LEN))
    elif verb == "refused":
        blocks, seed = numbers
        for block in range(blocks):
            try:
                found = client.read(block * BLOCK_LEN, BLOCK_LEN)
            except Refused:
                print(block)
                continue
            if found != pattern(seed + block, BLOCK_LEN):
                sys.exit(f"block {block} is not what was written")
    elif verb == "dump":
        for offset in range(0, client.size, DUMP_LEN):
            length = min(DUMP_LEN, client.size - offset)
            sys.stdout.buffer.write(client.read(offset, length))
    elif verb == "flush":
        client.flush()
    elif verb in ("read-error", "write-error"):
        offset, length = (*numbers, BLOCK_LEN)[:2]
        try:
            if verb == "read-error":
                client.read(offset, length)
            else:
                client.write(offset, bytes(length))
        except Refused:
            pass
        else:
            sys.exit(f"not refused: {verb} at {offset}")
    elif verb != "probe":
        sys.exit(__doc__)
    client.close()


if __name__ == "__main__":
    main()
