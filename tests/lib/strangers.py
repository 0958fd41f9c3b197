"""Fills all places of a server with clients that say nothing or too little, and then comes itself.

strangers.py http|tls PORT
strangers.py resp PORT PASSWORD
"""

import resource
import socket
import ssl
import sys

what, port = sys.argv[1], int(sys.argv[2])
# A server has 1024 places. Those that are refused leave by themselves: a quarter at most.
STRANGERS = 1500
BEGINNINGS = {
    "http": [b"", b"G", b"GET / HTTP/1.1\r\nhost: x\r\nx: ",
             b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"],
    "tls": [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"],
    "resp": [b"", b"*", b"*2\r\n$4\r\nAUTH\r\n$100\r\nx", b"AUTH wrong\r\n"],
}[what]


def connect():
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def served():
    """Whether somebody who knows what to say is answered."""
    stream = connect()
    if what == "tls":
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        stream = context.wrap_socket(stream)
    if what == "resp":
        password = sys.argv[3]
        auth = f"*2\r\n$4\r\nAUTH\r\n${len(password)}\r\n{password}\r\n"
        stream.sendall(f"{auth}PING\r\n".encode())
        want = b"+OK\r\n+PONG\r\n"
    else:
        stream.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        want = b"HTTP/1.1 403"
    told = b""
    while len(told) < len(want):
        more = stream.recv(4096)
        if not more:
            break
        told += more
    assert told.startswith(want), told
    return stream


_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
first = served()
strangers = []
for number in range(STRANGERS):
    stream = connect()
    try:
        stream.sendall(BEGINNINGS[number % len(BEGINNINGS)])
    except OSError:
        pass  # It gave way already.
    strangers.append(stream)
for _ in range(3):
    served()
if what == "resp":
    first.sendall(b"PING\r\n")
    assert first.recv(100) == b"+PONG\r\n", "who has given the password keeps the place"
oldest = strangers[0]
try:
    assert oldest.recv(1) == b"", "the oldest stranger was not cut off"
except ConnectionError:
    pass
