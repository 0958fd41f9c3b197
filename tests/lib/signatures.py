"""Signs requests of S3 by hand, rightly and wrongly, and sends them to a gateway.

signatures.py URL KEY SECRET [CA]   over TLS what differs there, otherwise all of it
"""

import base64
import datetime
import hashlib
import hmac
import http.client
import json
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


def send(method, target, headers=(), body=b"", is_sized=True):
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
    if not is_sized:
        pairs.append(("transfer-encoding", "chunked"))
    elif body or method in ("PUT", "POST"):
        pairs.append(("content-length", str(len(body))))
    for name, value in pairs:
        connection.putheader(name, value)
    if is_sized:
        connection.endheaders(body)
    else:
        halves = iter((body[:5], body[5:]) if len(body) > 5 else (body,))
        connection.endheaders(halves, encode_chunked=True)
    reply = connection.getresponse()
    text = reply.read()
    connection.close()
    request_id = reply.getheader("x-amz-request-id")
    if not request_id or b"<Error>" in text and f"<RequestId>{request_id}<".encode() not in text:
        sys.exit(f"{method} {target}: no name of the request, or two: {request_id}\n{text}")
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

    def send(self, is_sized=True):
        query = "&".join(f"{quote(n)}={quote(v)}" for n, v in self.query.items())
        target = quote(self.path, "/") + ("?" + query if query else "")
        return send(self.method, target, self.headers, self.body, is_sized)

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


# Forms of browsers.


def policy_of(conditions, expiration=None, bucket=BUCKET):
    expiration = expiration or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 60))
    text = {"expiration": expiration, "conditions": [{"bucket": bucket}, *conditions]}
    return base64.b64encode(json.dumps(text).encode()).decode()


def multipart(fields, body):
    parts = "".join(f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
                    for name, value in fields.items())
    parts += '--b\r\nContent-Disposition: form-data; name="file"; filename="made"\r\n\r\n'
    return parts.encode() + body + b"\r\n--b--\r\n"


def send_form(fields, body=b"a form", target=f"/{BUCKET}", headers=()):
    headers = {"content-type": "multipart/form-data; boundary=b", **dict(headers)}
    return send("POST", target, headers, multipart(fields, body))


def signed_form(fields, more=(), version=4, secret=secret, key=key, **of_policy):
    """The fields of a form, with a policy that has conditions on them and more."""
    date = time_of(0)
    scope = f"{date[:8]}/us-east-1/s3/aws4_request"
    if version == 4:
        fields = {**fields, "x-amz-algorithm": ALGORITHM, "x-amz-credential": f"{key}/{scope}",
                  "x-amz-date": date}
    policy = policy_of([["starts-with", f"${name}", value.split("$")[0]]
                        for name, value in fields.items()] + list(more), **of_policy)
    if version == 4:
        return {**fields, "policy": policy,
                "x-amz-signature": signature(date, scope, policy, secret)}
    sha1 = hmac.new(secret.encode(), policy.encode(), hashlib.sha1).digest()
    return {**fields, "policy": policy, "AWSAccessKeyId": key,
            "signature": base64.b64encode(sha1).decode()}


def forms():
    kept = {"key": "kept"}
    for version in (4, 2):
        fields = signed_form({"key": "${filename}", "Content-Type": "text/plain"}, version=version)
        expect("a form", send_form(fields), 204)
        status, _, body = by_header("GET", "made")
        assert (status, body) == (200, b"a form"), body
        for what, other, code in (
            ("another secret", signed_form(kept, version=version, secret=secret + "x"),
             "SignatureDoesNotMatch"),
            ("another key", signed_form(kept, version=version, key="nobody"),
             "InvalidAccessKeyId"),
            ("another policy", {**signed_form(kept, version=version), "policy": policy_of([])},
             "SignatureDoesNotMatch"),
            ("another bucket", signed_form(kept, version=version, bucket="other"), "AccessDenied"),
            ("an expired one", signed_form(kept, version=version,
                                           expiration="2020-01-01T00:00:00Z"), "AccessDenied"),
            ("another field", {**signed_form({"key": "x"}, version=version), **kept},
             "AccessDenied"),
            ("one more field", {**signed_form(kept, version=version), "x-amz-meta-a": "1"},
             "AccessDenied"),
        ):
            refused(f"{what}, version {version}", send_form(other), 403, code)
    refused("nobody's form", send_form(kept), 403, "AccessDenied")
    unsigned = {**signed_form(kept)}
    del unsigned["x-amz-signature"]
    refused("no signature", send_form(unsigned), 400, "InvalidArgument")
    lengths = signed_form(kept, [["content-length-range", 3, 5]])
    refused("a long file", send_form(lengths, b"123456"), 400, "EntityTooLarge")
    refused("a short file", send_form(lengths, b"12"), 400, "EntityTooSmall")
    long = {**signed_form(kept), "x-ignore-a": "x" * 70_000}
    refused("a long form", send_form(long), 400, "MaxPostPreDataLengthExceededError")
    to = f"/{BUCKET}/kept"
    refused("to an object", send_form(signed_form(kept), target=to), 405, "MethodNotAllowed")
    refused("with a query", send_form(signed_form(kept), target=f"/{BUCKET}?delete"),
            400, "InvalidRequest")
    header = Signed("POST", "", path=f"/{BUCKET}").headers["authorization"]
    refused("signed twice", send_form(signed_form(kept), headers={"authorization": header}),
            400, "InvalidArgument")
    told = send_form(signed_form({"key": "made", "success_action_status": "201"}))
    expect("a form with a reply", told, 201)
    assert b"<Key>made</Key>" in told[2], told
    large = b"\r\n--b" [:4] * 200_000
    expect("a large form", send_form(signed_form({"key": "made"}), large), 204)
    assert by_header("GET", "made")[2] == large
    expect("removed", by_header("DELETE", "made"), 204)


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
    expect("a body without a length", put(KEPT).send(is_sized=False), 200)
    refused("without a length, with another hash",
            put(KEPT).changed(body=b"another body").send(is_sized=False),
            400, "XAmzContentSHA256Mismatch")
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
forms()
strangers()
bodies()
if is_tls:
    for is_sized in (True, False):
        expect("no hash", put(KEPT, digest=UNSIGNED).send(is_sized), 200)
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
