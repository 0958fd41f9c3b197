"""Signs requests of S3 by hand, rightly and wrongly, and sends them to a gateway.

signatures.py URL KEY SECRET [CA]   over TLS what differs there, otherwise all of it
"""

import base64
import datetime
import hashlib
import hmac
import http.client
import ssl
import sys
import time
import urllib.parse
import zlib

url, key, secret = sys.argv[1:4]
place = urllib.parse.urlsplit(url)
is_tls = place.scheme == "https"
ALGORITHM = "AWS4-HMAC-SHA256"
BUCKET = "signed"
KEPT = b"what was stored first"
UNSIGNED = "UNSIGNED-PAYLOAD"
CHUNKED = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
EMPTY = hashlib.sha256(b"").hexdigest()
checks = 0


def send(method, target, headers=(), body=b""):
    """The status and the code of the error of one request; headers as pairs."""
    if is_tls:
        context = ssl.create_default_context(cafile=sys.argv[4])
        connection = http.client.HTTPSConnection(place.netloc, timeout=30, context=context)
    else:
        connection = http.client.HTTPConnection(place.netloc, timeout=30)
    connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
    pairs = list(headers.items()) if isinstance(headers, dict) else list(headers)
    if all(name.lower() != "host" for name, _ in pairs):
        pairs.append(("host", place.netloc))
    if body or method in ("PUT", "POST"):
        pairs.append(("content-length", str(len(body))))
    for name, value in pairs:
        connection.putheader(name, value)
    connection.endheaders(body)
    reply = connection.getresponse()
    text = reply.read()
    connection.close()
    code = text.split(b"<Code>")[1].split(b"</Code>")[0].decode() if b"<Code>" in text else ""
    return reply.status, code, text


def expect(what, told, status, code=""):
    global checks
    checks += 1
    if told[:2] != (status, code):
        sys.exit(f"{what}: {told[:2]} instead of {(status, code)}\n{told[2].decode()}")


def get():
    status, _, body = by_header("GET", "kept")
    assert status == 200, body
    return body


def unchanged(what):
    found = get()
    if found != KEPT:
        sys.exit(f"{what}: the object was changed to {found}")


def refused(what, told, status, code):
    expect(what, told, status, code)
    unchanged(what)


# Version 4.


def mac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def time_of(seconds):
    now = datetime.datetime.now(datetime.timezone.utc)
    return (now + datetime.timedelta(seconds=seconds)).strftime("%Y%m%dT%H%M%SZ")


def signature(date, scope, text, secret):
    signing = ("AWS4" + secret).encode()
    for part in scope.split("/"):
        signing = mac(signing, part)
    return mac(signing, text).hex()


def quote(text, safe=""):
    return urllib.parse.quote(text, safe=safe + "-_.~")


def canonical(method, path, query, headers, names, digest):
    pairs = "&".join(f"{quote(n)}={quote(v)}" for n, v in sorted(query.items()))
    lines = "".join(f"{name}:{headers[name]}\n" for name in names)
    return "\n".join([method, quote(path, "/"), pairs, lines, ";".join(names), digest])


class Signed:
    """A request signed in its header; what is changed afterwards is not signed."""

    def __init__(self, method, name, body=b"", seconds=0, digest=None, headers=(), names=None,
                 service="s3", scope_date=None, secret=secret, key=key, query=(), path=None):
        self.method, self.body, self.query = method, body, dict(query)
        self.path = path or f"/{BUCKET}/{name}"
        digest = digest or hashlib.sha256(body).hexdigest()
        self.date = time_of(seconds)
        self.headers = {"host": place.netloc, "x-amz-content-sha256": digest,
                        "x-amz-date": self.date, **dict(headers)}
        names = names or sorted(self.headers)
        self.scope = f"{scope_date or self.date[:8]}/us-east-1/{service}/aws4_request"
        request = canonical(method, self.path, self.query, self.headers, names, digest)
        hashed = hashlib.sha256(request.encode()).hexdigest()
        text = "\n".join([ALGORITHM, self.date, self.scope, hashed])
        self.secret = secret
        self.signature = signature(self.date, self.scope, text, secret)
        self.headers["authorization"] = (
            f"{ALGORITHM} Credential={key}/{self.scope}, "
            f"SignedHeaders={';'.join(names)}, Signature={self.signature}"
        )

    def send(self):
        query = "&".join(f"{quote(n)}={quote(v)}" for n, v in self.query.items())
        target = quote(self.path, "/") + ("?" + query if query else "")
        return send(self.method, target, self.headers, self.body)

    def changed(self, **changes):
        for name, value in changes.items():
            setattr(self, name, value)
        return self

    def without(self, name):
        del self.headers[name]
        return self

    def with_header(self, name, value):
        self.headers[name] = value
        return self


def by_header(method, name, body=b"", **more):
    return Signed(method, name, body, **more).send()


def put(body=b"another body", **more):
    return Signed("PUT", "kept", body, **more)


def presigned(method="GET", expires="60", seconds=0, names=("host",), changes=(), service="s3"):
    """A URL, as path and query."""
    date = time_of(seconds)
    scope = f"{date[:8]}/us-east-1/{service}/aws4_request"
    query = {"X-Amz-Algorithm": ALGORITHM, "X-Amz-Credential": f"{key}/{scope}",
             "X-Amz-Date": date, "X-Amz-Expires": expires, "X-Amz-SignedHeaders": ";".join(names)}
    path = f"/{BUCKET}/kept"
    request = canonical(method, path, query, {"host": place.netloc}, names, UNSIGNED)
    hashed = hashlib.sha256(request.encode()).hexdigest()
    text = "\n".join([ALGORITHM, date, scope, hashed])
    query["X-Amz-Signature"] = signature(date, scope, text, secret)
    query.update(changes)
    return path + "?" + "&".join(f"{quote(n)}={quote(v)}" for n, v in query.items())


def chunked(pieces, digest=CHUNKED, trailer=None, decoded=None):
    """A body in chunks; with a trailer, a name and a value, its end is signed, too."""
    headers = {"x-amz-decoded-content-length": str(decoded or sum(map(len, pieces)))}
    if trailer:
        headers["x-amz-trailer"] = trailer[0]
    request = Signed("PUT", "kept", digest=digest, headers=headers)
    is_signed = digest.startswith(CHUNKED)
    before, chunks = request.signature, []
    for piece in [*pieces, b""]:
        text = "\n".join(["AWS4-HMAC-SHA256-PAYLOAD", request.date, request.scope, before, EMPTY,
                          hashlib.sha256(piece).hexdigest()])
        head = b"%x" % len(piece)
        if is_signed:
            before = signature(request.date, request.scope, text, secret)
            head += b";chunk-signature=" + before.encode()
        chunks.append(head + b"\r\n" + piece + (b"\r\n" if piece or not trailer else b""))
    if trailer:
        line = f"{trailer[0]}:{trailer[1]}"
        end = line.encode() + b"\r\n"
        if is_signed:
            hashed = hashlib.sha256(f"{line}\n".encode()).hexdigest()
            text = "\n".join(["AWS4-HMAC-SHA256-TRAILER", request.date, request.scope, before,
                              hashed])
            signed = signature(request.date, request.scope, text, secret)
            end += b"x-amz-trailer-signature:" + signed.encode() + b"\r\n"
        chunks.append(end + b"\r\n")
    request.chunks = chunks
    request.body = b"".join(chunks)
    return request


def crc32(body):
    return base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()


# Version 2.


def version_2():
    bodies = b"another body"
    sha1 = lambda text: base64.b64encode(
        hmac.new(secret.encode(), text.encode(), hashlib.sha1).digest()
    ).decode()
    path = f"/{BUCKET}/kept"
    for date in ("Tue, 27 Mar 2001 19:36:42 +0000", time.strftime("%a, %d %b %Y %T +0000",
                                                                   time.gmtime())):
        headers = {"date": date, "authorization": f"AWS {key}:" + sha1(f"PUT\n\n\n{date}\n{path}")}
        refused(f"version 2 of {date}", send("PUT", path, headers, bodies), 400, "InvalidRequest")
        told = send("GET", path, {"date": date, "authorization":
                                  f"AWS {key}:" + sha1(f"GET\n\n\n{date}\n{path}")})
        refused("to read", told, 400, "InvalidRequest")
    for method in ("PUT", "GET"):
        end = str(int(time.time()) + 3600)
        signed = quote(sha1(f"{method}\n\n\n{end}\n{path}"))
        query = f"AWSAccessKeyId={key}&Expires={end}&Signature={signed}"
        for one in (query, query.replace("Signature", "%53ignature")):
            told = send(method, f"{path}?{one}", {}, bodies if method == "PUT" else b"")
            refused(f"a URL of version 2, {method}", told, 400, "InvalidRequest")
    policy = base64.b64encode(
        b'{"expiration":"2099-01-01T00:00:00Z","conditions":[{"bucket":"%s"},'
        b'["starts-with","$key",""]]}' % BUCKET.encode()
    ).decode()
    for form in (
        {"key": "kept", "AWSAccessKeyId": key, "policy": policy, "signature": sha1(policy)},
        {"key": "kept"},
    ):
        parts = "".join(f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
                        for name, value in form.items())
        parts += '--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
        body = parts.encode() + bodies + b"\r\n--b--\r\n"
        told = send("POST", f"/{BUCKET}", {"content-type": "multipart/form-data; boundary=b"}, body)
        refused("a form", told, 400, "InvalidRequest")


# What is asked of version 4.


def dates():
    for seconds in (-890, 890):
        expect(f"{seconds} s away", put(KEPT, seconds=seconds).send(), 200)
    for seconds in (-910, 910, -86_400, 86_400, -800_000_000):
        refused(f"{seconds} s away", put(seconds=seconds).send(), 403, "RequestTimeTooSkewed")
    refused("no date", put().without("x-amz-date").send(), 403, "AccessDenied")
    refused("another date", put().with_header("x-amz-date", time_of(5)).send(),
            403, "SignatureDoesNotMatch")
    refused("another day in the scope", put(scope_date="20010327").send(),
            403, "SignatureDoesNotMatch")


def bodies():
    expect("the body that was signed", put(KEPT).send(), 200)
    for body in (b"another body", b"what was stored later", b"", KEPT + b"!"):
        refused(f"replayed with {body}", put(KEPT).changed(body=body).send(),
                400, "XAmzContentSHA256Mismatch")
    refused("no hash", put().without("x-amz-content-sha256").send(), 403, "AccessDenied")
    names = ["host", "x-amz-date"]
    unhashed = put(names=names).without("x-amz-content-sha256")
    refused("no hash, and none signed", unhashed.send(), 400, "InvalidRequest")
    refused("another hash", put().with_header("x-amz-content-sha256", EMPTY).send(),
            403, "SignatureDoesNotMatch")
    refused("no hash at all", put(digest="NONE").send(), 403, "SignatureDoesNotMatch")
    order = b"<Delete><Object><Key>none</Key></Object></Delete>"
    more = {"query": {"delete": ""}, "path": f"/{BUCKET}"}
    md5 = lambda body: {"content-md5": base64.b64encode(hashlib.md5(body).digest()).decode()}
    expect("an order", Signed("POST", "", order, headers=md5(order), **more).send(), 200)
    other = order.replace(b"none", b"kept")
    told = Signed("POST", "", order, headers=md5(other), **more).changed(body=other).send()
    assert told[0] >= 400, told
    unchanged("an order with another body")


def chunks():
    halves = [b"a" * 70_000, b"b" * 5000]
    trailer = ("x-amz-checksum-crc32", crc32(b"".join(halves)))
    with_trailer = CHUNKED + "-TRAILER"
    for request in (chunked(halves), chunked(halves, with_trailer, trailer)):
        expect("signed chunks", request.send(), 200)
        assert get() == b"".join(halves)
        expect("back", put(KEPT).send(), 200)
        start, middle, *end = request.chunks
        whole = request.body
        mismatch = (403, "SignatureDoesNotMatch")
        for what, body, code in (
            ("a byte of a chunk", whole.replace(b"ab" if b"ab" in whole else b"aa", b"ax", 1),
             mismatch),
            ("chunks in another order", b"".join([middle, start, *end]), mismatch),
            ("a chunk twice", b"".join([start, start, middle, *end]), mismatch),
            ("a chunk left out", b"".join([start, *end]), mismatch),
            ("the end left out", start, (400, "IncompleteBody")),
            ("a chunk without signature", b"5\r\nhello\r\n" + whole, (400, "IncompleteBody")),
        ):
            told = request.changed(body=body).send()
            refused(what, told, *code)
    short = chunked(halves).with_header("x-amz-decoded-content-length", "1").send()
    refused("another length", short, 403, "SignatureDoesNotMatch")
    request = chunked(halves, with_trailer, trailer)
    whole = request.body
    told = request.changed(body=whole.replace(trailer[1].encode(), crc32(b"").encode())).send()
    refused("a changed trailer", told, 403, "SignatureDoesNotMatch")
    told = request.changed(body=b"".join(request.chunks[:-1])).send()
    refused("no trailer", told, 400, "MalformedTrailerError")
    told = chunked(halves, with_trailer, (trailer[0], crc32(b""))).send()
    refused("a trailer of other bytes", told, 400, "BadDigest")


def unsigned_chunks():
    return chunked([KEPT], "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
                   ("x-amz-checksum-crc32", crc32(KEPT)))


def urls():
    for expires, seconds in (("60", 0), ("604800", -6 * 86_400), ("1200", -1100), ("1", 600)):
        told = send("GET", presigned(expires=expires, seconds=seconds))
        expect(f"{expires} s from {seconds} s on", told, 200)
    for expires, seconds in (("60", -90), ("604800", -8 * 86_400), ("1", -60)):
        told = send("GET", presigned(expires=expires, seconds=seconds))
        expect(f"{expires} s from {seconds} s on", told, 403, "AccessDenied")
    for seconds in (910, 86_400):
        told = send("GET", presigned(seconds=seconds, expires="604800"))
        expect(f"before its date, by {seconds} s", told, 403, "RequestTimeTooSkewed")
    for expires in ("604801", "4294967295", "0", "-1", "+60", "60.0", ""):
        told = send("PUT", presigned("PUT", expires), {}, b"another body")
        refused(f"expires {expires}", told, 400, "AuthorizationQueryParametersError")
    mismatch = (403, "SignatureDoesNotMatch")
    expect("later", send("GET", presigned(changes={"X-Amz-Expires": "61"})), *mismatch)
    expect("more", send("GET", presigned(changes={"response-content-type": "x"})), *mismatch)
    refused("another method", send("PUT", presigned(), {}, b"another body"), *mismatch)
    other = presigned().replace("/kept", "/another")
    expect("another object", send("GET", other), *mismatch)
    expect("another host", send("GET", presigned(), {"host": "example.org"}), *mismatch)
    expect("no host signed", send("GET", presigned(names=())), 403, "AccessDenied")
    copies = {"x-amz-copy-source": f"/{BUCKET}/another"}
    refused("a copy", send("PUT", presigned("PUT"), copies), 403, "AccessDenied")
    digest = {"x-amz-content-sha256": hashlib.sha256(KEPT).hexdigest()}
    refused("the hash of another body", send("PUT", presigned("PUT"), digest, b"another body"),
            400, "XAmzContentSHA256Mismatch")
    expect("an upload", send("PUT", presigned("PUT"), digest, KEPT), 200)
    told = send("GET", presigned(service="sts"))
    expect("of another service", told, 400, "AuthorizationQueryParametersError")
    both = by_header("GET", "kept", query={"X-Amz-Signature": "0" * 64})
    expect("two signatures", both, 400, "InvalidArgument")


def headers():
    mismatch, denied = (403, "SignatureDoesNotMatch"), (403, "AccessDenied")
    colour = {"x-amz-meta-colour": "blue"}
    expect("a header", put(KEPT, headers=colour).send(), 200)
    changed = put(headers=colour).with_header("x-amz-meta-colour", "red")
    refused("changed", changed.send(), *mismatch)
    refused("removed", put(headers=colour).without("x-amz-meta-colour").send(), *denied)
    refused("added", put().with_header("x-amz-meta-colour", "red").send(), *denied)
    copied = put(b"").with_header("x-amz-copy-source", f"/{BUCKET}/another")
    refused("made a copy", copied.send(), *denied)
    names = ["x-amz-content-sha256", "x-amz-date"]
    refused("no host signed", put(names=names).send(), *denied)
    refused("another host", put().with_header("host", "example.org").send(), *mismatch)
    refused("another method", Signed("GET", "kept").changed(method="DELETE").send(), *mismatch)
    refused("another object", by_header("GET", "x"), 404, "NoSuchKey")
    moved = Signed("PUT", "another", b"x").changed(path=f"/{BUCKET}/kept")
    refused("another place", moved.send(), *mismatch)
    refused("more of a query", put().changed(query={"tagging": ""}).send(), *mismatch)
    refused("of another service", put(service="sts").send(), 400, "AuthorizationHeaderMalformed")
    refused("another secret", put(secret=secret + "x").send(), *mismatch)
    refused("another key", put(key="nobody").send(), 403, "InvalidAccessKeyId")
    twice = put()
    pairs = [*twice.headers.items(), ("authorization", twice.headers["authorization"])]
    told = send("PUT", twice.path, pairs, twice.body)
    refused("two signatures", told, 400, "InvalidArgument")
    for other in ("Basic eDp5", "AWS4-ECDSA-P256-SHA256 Credential=x", "x", ""):
        told = put().with_header("authorization", other).send()
        refused(f"authorization {other}", told, 400, "InvalidRequest")


def strangers():
    for method, target in (("GET", "/"), ("GET", f"/{BUCKET}"), ("GET", f"/{BUCKET}/kept"),
                           ("PUT", f"/{BUCKET}/kept"), ("DELETE", f"/{BUCKET}/kept"),
                           ("DELETE", f"/{BUCKET}"), ("POST", f"/{BUCKET}?delete")):
        told = send(method, target, {}, b"x" if method in ("PUT", "POST") else b"")
        refused(f"anonymous {method} {target}", told, 403, "AccessDenied")


expect("a bucket", by_header("PUT", "", path=f"/{BUCKET}"), 200)
for name, body in (("kept", KEPT), ("another", b"another object")):
    expect("an object", by_header("PUT", name, body), 200)
version_2()
strangers()
bodies()
if is_tls:
    expect("no hash", put(KEPT, digest=UNSIGNED).send(), 200)
    stream = unsigned_chunks()
    expect("unsigned chunks", stream.send(), 200)
    told = stream.changed(body=stream.body.replace(b"first", b"later")).send()
    refused("other chunks", told, 400, "BadDigest")
    told = stream.changed(body=b"".join(stream.chunks[:-1])).send()
    refused("no trailer", told, 400, "MalformedTrailerError")
else:
    refused("no hash", put(digest=UNSIGNED).send(), 400, "InvalidRequest")
    refused("no hash of nothing", put(b"", digest=UNSIGNED).send(), 400, "InvalidRequest")
    refused("unsigned chunks", unsigned_chunks().send(), 400, "InvalidRequest")
    dates()
    chunks()
    urls()
    headers()
for name in ("kept", "another"):
    expect("removed", by_header("DELETE", name), 204)
expect("removed", by_header("DELETE", "", path=f"/{BUCKET}"), 204)
print(f"{checks} requests were answered as they should be")
