"""Passes TCP connections on, and spoils them when it is told to.

usage: proxy.py PORT TARGET [MILLISECONDS]

Bytes from the target come later by so many milliseconds. SIGUSR1 silences all connections that are
open, without closing them, as a network does that loses its state. SIGUSR2 closes them.
"""

import signal
import socket
import sys
import threading
import time

PORT, TARGET = int(sys.argv[1]), int(sys.argv[2])
DELAY = float(sys.argv[3]) / 1000 if len(sys.argv) > 3 else 0.0
connections = set()


class Connection:
    def __init__(self, client):
        self.client = client
        self.target = socket.create_connection(("127.0.0.1", TARGET))
        self.is_silent = False
        for end in (self.client, self.target):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connections.add(self)
        for arguments in ((client, self.target, 0), (self.target, client, DELAY)):
            threading.Thread(target=self.pass_on, args=arguments, daemon=True).start()

    def pass_on(self, source, sink, delay):
        waiting, arrived = [], threading.Condition()

        def deliver():
            while True:
                with arrived:
                    arrived.wait_for(lambda: waiting)
                    due, piece = waiting.pop(0)
                time.sleep(max(0.0, due - time.monotonic()))
                if not piece:
                    return self.close()
                try:
                    if not self.is_silent:
                        sink.sendall(piece)
                except OSError:
                    return self.close()

        if delay:
            threading.Thread(target=deliver, daemon=True).start()
        while True:
            try:
                piece = source.recv(1 << 18)
            except OSError:
                piece = b""
            if self.is_silent:
                return
            if delay:
                with arrived:
                    waiting.append((time.monotonic() + delay, piece))
                    arrived.notify()
            elif piece:
                try:
                    sink.sendall(piece)
                except OSError:
                    return self.close()
            if not piece:
                if not delay:
                    self.close()
                return

    def close(self):
        connections.discard(self)
        for end in (self.client, self.target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def silence(*_):
    for connection in list(connections):
        connection.is_silent = True


def close(*_):
    for connection in list(connections):
        connection.close()


signal.signal(signal.SIGUSR1, silence)
signal.signal(signal.SIGUSR2, close)
with socket.create_server(("127.0.0.1", PORT)) as server:
    while True:
        client, _ = server.accept()
        try:
            Connection(client)
        except OSError:
            client.close()
