"""A proxy of an S3 server that counts the requests it forwards.

counting_proxy.py PORT SERVER_PORT: GET /counts at the proxy answers with the counts as JSON.
"""

import collections
import http.client
import http.server
import json
import sys
import threading
import urllib.parse

port, server = map(int, sys.argv[1:])
counts = collections.Counter()
lock = threading.Lock()
local = threading.local()


class Proxy(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def forward(self):
        if self.path == "/counts":
            with lock:
                self.answer(200, {}, json.dumps(counts).encode())
            return
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        kind = "list" if self.command == "GET" and "list-type" in query else self.command.lower()
        with lock:
            counts[kind] += 1
        if not hasattr(local, "connection"):
            local.connection = http.client.HTTPConnection("127.0.0.1", server)
        # The client has signed the proxy's name.
        local.connection.putrequest(
            self.command, self.path, skip_host=True, skip_accept_encoding=True
        )
        for name, value in self.headers.items():
            local.connection.putheader(name, value)
        local.connection.endheaders(body)
        reply = local.connection.getresponse()
        self.answer(reply.status, dict(reply.getheaders()), reply.read())

    def answer(self, status, headers, body):
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        length = len(body) if self.command != "HEAD" else headers.get("content-length", 0)
        self.send_header("content-length", str(length))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = forward

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer.daemon_threads = True
print(f"proxy at 127.0.0.1:{port}", flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", port), Proxy).serve_forever()
