"""Speaks S3 to a gateway as programs do, through boto3.

s3.py URL KEY SECRET fill|check|all|virtual|policy [CA]   fill stores what check then finds
"""

import base64
import datetime
import email.utils
import hashlib
import http.client
import random
import re
import sys
import time
import urllib.parse
import urllib.request
import zlib

import boto3
import botocore.config
import botocore.exceptions

url, key, secret, what = sys.argv[1:5]
config = botocore.config.Config(
    signature_version="s3v4", s3={"addressing_style": "path"}, retries={"max_attempts": 1}
)


def tags_are_kept():
    """Tags of objects and buckets: from headers and lists, through copies and uploads."""
    refused("NoSuchTagSet", client.get_bucket_tagging, Bucket="some")
    own = [{"Key": "a b", "Value": "ä/+="}, {"Key": "team", "Value": "red"}]
    client.put_bucket_tagging(Bucket="some", Tagging={"TagSet": own})
    assert client.get_bucket_tagging(Bucket="some")["TagSet"] == own
    client.delete_bucket_tagging(Bucket="some")
    refused("NoSuchTagSet", client.get_bucket_tagging, Bucket="some")

    def of(key):
        tags = client.get_object_tagging(Bucket="some", Key=key)["TagSet"]
        count = client.head_object(Bucket="some", Key=key).get("TagCount", None)
        assert count in (None, len(tags)), count
        return {tag["Key"]: tag["Value"] for tag in tags}

    client.put_object(Bucket="some", Key="tagged", Body=b"x", Tagging="team=red&a%20b=%C3%A4")
    assert of("tagged") == {"team": "red", "a b": "ä"}
    assert client.get_object(Bucket="some", Key="tagged")["TagCount"] == 2
    source = {"Bucket": "some", "Key": "tagged"}
    client.copy_object(Bucket="some", Key="again", CopySource=source)
    assert of("again") == of("tagged")
    client.copy_object(
        Bucket="some", Key="again", CopySource=source, TaggingDirective="REPLACE", Tagging="n=1"
    )
    assert of("again") == {"n": "1"}
    client.put_object_tagging(Bucket="some", Key="again", Tagging={"TagSet": own[1:]})
    assert of("again") == {"team": "red"}
    client.delete_object_tagging(Bucket="some", Key="again")
    assert of("again") == {}
    many = [{"Key": str(n), "Value": ""} for n in range(11)]
    refused(
        "InvalidTag", client.put_object_tagging, Bucket="some", Key="again",
        Tagging={"TagSet": many},
    )
    refused("InvalidTag", client.put_object, Bucket="some", Key="again", Body=b"", Tagging="a&a")
    refused(
        "NoSuchKey", client.put_object_tagging, Bucket="some", Key="none",
        Tagging={"TagSet": own[:1]},
    )
    upload = client.create_multipart_upload(Bucket="some", Key="again", Tagging="n=2")
    part = {"Bucket": "some", "Key": "again", "UploadId": upload["UploadId"]}
    tag = client.upload_part(**part, PartNumber=1, Body=b"y")["ETag"]
    client.complete_multipart_upload(
        **part, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": tag}]}
    )
    assert of("again") == {"n": "2"}
    for key in ("tagged", "again"):
        client.delete_object(Bucket="some", Key=key)


def connect(key, secret):
    return boto3.client(
        "s3", endpoint_url=url, aws_access_key_id=key, aws_secret_access_key=secret,
        region_name="us-east-1", config=config, verify=sys.argv[5] if sys.argv[5:] else None,
    )


client = connect(key, secret)
rng = random.Random(1)
PART = 5 << 20


def data(length):
    return rng.randbytes(length)


def refused(code, call, **arguments):
    try:
        call(**arguments)
    except botocore.exceptions.ClientError as error:
        found = error.response["Error"]["Code"]
        assert found == code, f"{found} instead of {code}"
        return error.response["ResponseMetadata"]["HTTPHeaders"]
    sys.exit(f"{code} was expected")


def body(bucket, key, **more):
    return client.get_object(Bucket=bucket, Key=key, **more)["Body"].read()


def keys(bucket, **more):
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, **more)
    return [entry["Key"] for page in pages for entry in page.get("Contents", [])]


def kept():
    """What outlives the gateway."""
    rng.seed(2)
    return {f"kept/{length}": data(length) for length in (0, 1, 255, 256, 257, 70_000, 300_001)}


def fill():
    client.create_bucket(Bucket="kept")
    for name, bytes_ in kept().items():
        client.put_object(Bucket="kept", Key=name, Body=bytes_, Metadata={"length": name})


def check():
    for name, bytes_ in kept().items():
        assert body("kept", name) == bytes_, name
        assert client.head_object(Bucket="kept", Key=name)["Metadata"] == {"length": name}
    assert sorted(keys("kept")) == sorted(kept())


def buckets():
    refused("NoSuchBucket", client.list_objects, Bucket="first")
    client.create_bucket(Bucket="first")
    client.create_bucket(Bucket="first")
    refused("AccessControlListNotSupported", client.create_bucket, Bucket="x-1", ACL="public-read")
    refused("InvalidBucketName", client.get_bucket_location, Bucket="Not-A-Bucket")
    client.head_bucket(Bucket="first")
    assert "first" in [one["Name"] for one in client.list_buckets()["Buckets"]]
    client.put_object(Bucket="first", Key="x", Body=b"")
    refused("BucketNotEmpty", client.delete_bucket, Bucket="first")
    client.delete_object(Bucket="first", Key="x")
    client.delete_bucket(Bucket="first")
    refused("404", client.head_bucket, Bucket="first")


def objects():
    client.create_bucket(Bucket="some")
    for length in (0, 1, 256, 1000, 100_000):
        bytes_ = data(length)
        put = client.put_object(
            Bucket="some", Key="a b/ä+%", Body=bytes_, ContentType="text/plain",
            CacheControl="no-cache", Metadata={"colour": "blue"},
        )
        assert put["ETag"].strip('"') == hashlib.md5(bytes_).hexdigest()
        head = client.head_object(Bucket="some", Key="a b/ä+%")
        assert (head["ContentLength"], head["ETag"]) == (length, put["ETag"])
        assert (head["ContentType"], head["CacheControl"]) == ("text/plain", "no-cache")
        assert head["Metadata"] == {"colour": "blue"}
        assert body("some", "a b/ä+%") == bytes_
    # After one that is empty no client waits for a reply that has come.
    began = time.monotonic()
    for length in (0, 1):
        client.put_object(Bucket="some", Key="short", Body=data(length))
    assert time.monotonic() - began < 10
    client.delete_object(Bucket="some", Key="short")
    for text, part in {
        "0-0": slice(0, 1), "255-256": slice(255, 257), "99999-": slice(99_999, None),
        "-300": slice(-300, None), "50000-200000": slice(50_000, None),
    }.items():
        assert body("some", "a b/ä+%", Range=f"bytes={text}") == bytes_[part], text
    refused("InvalidRange", client.get_object, Bucket="some", Key="a b/ä+%", Range="bytes=100000-")
    refused("NoSuchKey", client.get_object, Bucket="some", Key="none")
    refused("404", client.head_object, Bucket="some", Key="none")
    # What clients look for before they copy.
    assert client.get_object_tagging(Bucket="some", Key="a b/ä+%")["TagSet"] == []
    refused("NoSuchKey", client.get_object_tagging, Bucket="some", Key="none")
    tags_are_kept()
    refused("NoSuchBucket", client.get_bucket_tagging, Bucket="none")
    refused(
        "BadDigest", client.put_object, Bucket="some", Key="bad", Body=b"x",
        ContentMD5="1B2M2Y8AsgTpgAmY7PhCfg==",
    )
    refused("404", client.head_object, Bucket="some", Key="bad")
    client.copy_object(Bucket="some", Key="copy", CopySource={"Bucket": "some", "Key": "a b/ä+%"})
    assert body("some", "copy") == bytes_
    assert client.head_object(Bucket="some", Key="copy")["Metadata"] == {"colour": "blue"}
    deleted = client.delete_objects(
        Bucket="some", Delete={"Objects": [{"Key": one} for one in ("copy", "a b/ä+%", "none")]}
    )
    assert len(deleted["Deleted"]) == 3 and "Errors" not in deleted
    assert keys("some") == []


def conditions():
    etag = client.put_object(Bucket="some", Key="c", Body=b"1")["ETag"]
    headers = refused("304", client.get_object, Bucket="some", Key="c", IfNoneMatch=etag)
    assert headers["etag"] == etag and headers["last-modified"].endswith("GMT")
    refused("InvalidPart", client.get_object, Bucket="some", Key="c", PartNumber=2)
    refused("PreconditionFailed", client.get_object, Bucket="some", Key="c", IfMatch='"no"')
    assert body("some", "c", IfMatch=etag) == b"1"
    url = client.generate_presigned_url("get_object", Params={"Bucket": "some", "Key": "c"})
    if url.startswith("http:"):
        assert urllib.request.urlopen(url).read() == b"1"
    request = client.meta.events

    def only_if_new(params, **_):
        params["headers"]["If-None-Match"] = "*"

    request.register("before-call.s3.PutObject", only_if_new)
    headers = refused("PreconditionFailed", client.put_object, Bucket="some", Key="c", Body=b"2")
    # The client has waited with its body. Its next request must not be taken for it.
    assert headers.get("connection") == "close", headers
    request.unregister("before-call.s3.PutObject", only_if_new)
    assert body("some", "c") == b"1"
    client.delete_object(Bucket="some", Key="c")


def listings():
    names = [f"{folder}/{number:03}" for folder in "ab" for number in range(7)] + ["top", "z z/+"]
    for name in names:
        client.put_object(Bucket="some", Key=name, Body=name.encode())
    assert keys("some") == sorted(names)
    for size in (1, 3, 7, 100):
        assert keys("some", PaginationConfig={"PageSize": size}) == sorted(names)
    old = client.get_paginator("list_objects").paginate(
        Bucket="some", Delimiter="/", PaginationConfig={"PageSize": 2}
    )
    seen = [
        entry.get("Key", entry.get("Prefix"))
        for page in old
        for entry in page.get("Contents", []) + page.get("CommonPrefixes", [])
    ]
    assert sorted(seen) == ["a/", "b/", "top", "z z/"], seen
    page = client.list_objects_v2(Bucket="some", Prefix="b/", StartAfter="b/004")
    assert [entry["Key"] for entry in page["Contents"]] == ["b/005", "b/006"]
    for name in names:
        client.delete_object(Bucket="some", Key=name)


def parts():
    begun = client.create_multipart_upload(Bucket="some", Key="p", Metadata={"of": "parts"})
    upload = {"Bucket": "some", "Key": "p", "UploadId": begun["UploadId"]}
    all_ = [data(PART), data(PART + 1), data(77)]
    etags = [
        client.upload_part(PartNumber=number, Body=bytes_, **upload)["ETag"]
        for number, bytes_ in zip((1, 4, 9), all_)
    ]
    listed = client.list_parts(**upload)["Parts"]
    assert [(one["PartNumber"], one["Size"]) for one in listed] == [
        (1, PART), (4, PART + 1), (9, 77)
    ]
    assert [one["UploadId"] for one in client.list_multipart_uploads(Bucket="some")["Uploads"]] \
        == [begun["UploadId"]]
    wanted = [{"PartNumber": n, "ETag": etag} for n, etag in zip((1, 4, 9), etags)]
    complete = client.complete_multipart_upload
    refused("InvalidPartOrder", complete, MultipartUpload={"Parts": wanted[1::-1]}, **upload)
    wrong = [{"PartNumber": 1, "ETag": etags[1]}]
    refused("InvalidPart", complete, MultipartUpload={"Parts": wrong}, **upload)
    small = [wanted[2] | {"PartNumber": 9}, {"PartNumber": 10, "ETag": etags[2]}]
    client.upload_part(PartNumber=10, Body=all_[2], **upload)
    refused("EntityTooSmall", complete, MultipartUpload={"Parts": small}, **upload)
    done = complete(MultipartUpload={"Parts": wanted}, **upload)
    digest = hashlib.md5(b"".join(hashlib.md5(part).digest() for part in all_)).hexdigest()
    assert done["ETag"].strip('"') == f"{digest}-3"
    whole = b"".join(all_)
    assert body("some", "p") == whole
    assert body("some", "p", Range=f"bytes={PART - 3}-{PART + 3}") == whole[PART - 3 : PART + 4]
    assert body("some", "p", PartNumber=3) == all_[2]
    assert client.head_object(Bucket="some", Key="p")["Metadata"] == {"of": "parts"}
    refused("NoSuchUpload", client.list_parts, **upload)
    copied = client.create_multipart_upload(Bucket="some", Key="q")
    upload = {"Bucket": "some", "Key": "q", "UploadId": copied["UploadId"]}
    etag = client.upload_part_copy(
        PartNumber=1, CopySource="some/p", CopySourceRange="bytes=10-300009", **upload
    )["CopyPartResult"]["ETag"]
    complete(MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]}, **upload)
    assert body("some", "q") == whole[10:300_010]
    begun = client.create_multipart_upload(Bucket="some", Key="r")
    upload = {"Bucket": "some", "Key": "r", "UploadId": begun["UploadId"]}
    client.upload_part(PartNumber=1, Body=b"x", **upload)
    client.abort_multipart_upload(**upload)
    refused("NoSuchUpload", client.upload_part, PartNumber=1, Body=b"x", **upload)
    client.delete_object(Bucket="some", Key="p")
    client.delete_object(Bucket="some", Key="q")


def versions():
    """Each object is the only version of its name, as in a bucket of S3 without versions."""
    names = ["v/1", "v/2", "v/ä b", "w"]
    for name in names:
        client.put_object(Bucket="some", Key=name, Body=name.encode())
    pages = client.get_paginator("list_object_versions").paginate(
        Bucket="some", Prefix="v/", PaginationConfig={"PageSize": 2}
    )
    listed = [one for page in pages for one in page["Versions"]]
    assert [one["Key"] for one in listed] == names[:3]
    assert all(one["VersionId"] == "null" and one["IsLatest"] for one in listed)
    assert listed[0]["ETag"].strip('"') == hashlib.md5(b"v/1").hexdigest()
    rolled = client.list_object_versions(Bucket="some", Prefix="v", Delimiter="/")
    assert [one["Prefix"] for one in rolled["CommonPrefixes"]] == ["v/"]
    refused("NoSuchBucket", client.list_object_versions, Bucket="none")
    refused("InvalidArgument", client.list_object_versions, Bucket="some", VersionIdMarker="null")
    assert body("some", "v/1", VersionId="null") == b"v/1"
    none = "0" * 32
    for wrong, code in (("other", "InvalidArgument"), (none, "NoSuchVersion")):
        refused(code, client.get_object, Bucket="some", Key="v/1", VersionId=wrong)
        source = {"Bucket": "some", "Key": "v/1", "VersionId": wrong}
        refused(code, client.copy_object, Bucket="some", Key="x", CopySource=source)
    refused("404", client.head_object, Bucket="some", Key="v/1", VersionId=none)
    refused("InvalidArgument", client.delete_object, Bucket="some", Key="v/1", VersionId="other")
    client.delete_object(Bucket="some", Key="v/1", VersionId=none)
    some = [{"Key": "v/1", "VersionId": "other"}, {"Key": "v/2", "VersionId": "null"}]
    removed = client.delete_objects(Bucket="some", Delete={"Objects": some})
    assert [one["Key"] for one in removed["Deleted"]] == ["v/2"]
    assert [one["Code"] for one in removed["Errors"]] == ["InvalidArgument"]
    # As tools empty a bucket that may have versions.
    for one in client.list_object_versions(Bucket="some")["Versions"]:
        if one["Key"] in names:
            client.delete_object(Bucket="some", Key=one["Key"], VersionId=one["VersionId"])
    assert not set(names) & set(keys("some"))


def switch(bucket, status):
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": status})
    assert client.get_bucket_versioning(Bucket=bucket)["Status"] == status


def put(bucket, key, bytes_, **more):
    return client.put_object(Bucket=bucket, Key=key, Body=bytes_, **more).get("VersionId")


def listed(bucket, **more):
    """Keys and versions, the newest first; a delete marker ends with a cross."""
    pages = client.get_paginator("list_object_versions").paginate(Bucket=bucket, **more)
    found = []
    for page in pages:
        found += [(one["Key"], one["VersionId"], "", one["LastModified"])
                  for one in page.get("Versions", [])]
        found += [(one["Key"], one["VersionId"], "x", one["LastModified"])
                  for one in page.get("DeleteMarkers", [])]
    return {(key, version, mark) for key, version, mark, _ in found}


def versioning():
    """Versions that stay, markers that hide them, and what comes back."""
    client.create_bucket(Bucket="versioned")
    assert "Status" not in client.get_bucket_versioning(Bucket="versioned")
    assert put("versioned", "k", b"before") is None
    switch("versioned", "Enabled")
    first, second = put("versioned", "k", b"first"), put("versioned", "k", b"second")
    assert body("versioned", "k") == b"second"
    for version, bytes_ in ((first, b"first"), (second, b"second"), ("null", b"before")):
        reply = client.get_object(Bucket="versioned", Key="k", VersionId=version)
        assert (reply["Body"].read(), reply["VersionId"]) == (bytes_, version)
    marker = client.delete_object(Bucket="versioned", Key="k")
    assert marker["DeleteMarker"] and marker["VersionId"] not in (first, second)
    headers = refused("NoSuchKey", client.get_object, Bucket="versioned", Key="k")
    assert headers["x-amz-delete-marker"] == "true"
    assert headers["x-amz-version-id"] == marker["VersionId"]
    of_marker = {"Bucket": "versioned", "Key": "k", "VersionId": marker["VersionId"]}
    refused("MethodNotAllowed", client.get_object, **of_marker)
    assert keys("versioned") == []
    everything = {("k", first, ""), ("k", second, ""), ("k", "null", ""),
                  ("k", marker["VersionId"], "x")}
    assert listed("versioned") == listed("versioned", PaginationConfig={"PageSize": 1})
    assert listed("versioned") == everything
    refused("BucketNotEmpty", client.delete_bucket, Bucket="versioned")
    source = {"Bucket": "versioned", "Key": "k", "VersionId": first}
    copied = client.copy_object(Bucket="versioned", Key="copy", CopySource=source)
    assert copied["CopySourceVersionId"] == first and body("versioned", "copy") == b"first"
    tags = {"TagSet": [{"Key": "a", "Value": "b"}]}
    of_first = {"Bucket": "versioned", "Key": "k", "VersionId": first}
    assert client.put_object_tagging(**of_first, Tagging=tags)["VersionId"] == first
    assert client.get_object_tagging(**of_first)["TagSet"] == tags["TagSet"]
    removed = client.delete_object(**of_marker)
    assert removed["DeleteMarker"] and removed["VersionId"] == marker["VersionId"]
    assert body("versioned", "k") == b"second"
    client.delete_object(Bucket="versioned", Key="k", VersionId=second)
    assert body("versioned", "k") == b"first"
    switch("versioned", "Suspended")
    assert put("versioned", "k", b"after") is None
    refused_version = {"Bucket": "versioned", "Key": "k", "VersionId": second}
    refused("NoSuchVersion", client.get_object, **refused_version)
    assert body("versioned", "k", VersionId="null") == b"after"
    assert listed("versioned", Prefix="k") == {("k", first, ""), ("k", "null", "")}
    upload = client.create_multipart_upload(Bucket="versioned", Key="m")["UploadId"]
    part = {"Bucket": "versioned", "Key": "m", "UploadId": upload}
    etag = client.upload_part(**part, PartNumber=1, Body=b"z" * 5_300_000)["ETag"]
    switch("versioned", "Enabled")
    done = client.complete_multipart_upload(
        **part, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]}
    )
    assert body("versioned", "m", VersionId=done["VersionId"]) == b"z" * 5_300_000
    several = [{"Key": key, "VersionId": version} for key, version, _ in listed("versioned")]
    assert "Errors" not in client.delete_objects(Bucket="versioned", Delete={"Objects": several})
    assert listed("versioned") == set()
    client.delete_bucket(Bucket="versioned")


def locks():
    """Versions that nothing removes before their time."""
    client.create_bucket(Bucket="locked", ObjectLockEnabledForBucket=True)
    assert client.get_bucket_versioning(Bucket="locked")["Status"] == "Enabled"
    suspended = {"Status": "Suspended"}
    refused("InvalidBucketState", client.put_bucket_versioning, Bucket="locked",
            VersioningConfiguration=suspended)
    soon = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=5)
    soon = soon.replace(microsecond=0)
    late = soon + datetime.timedelta(days=1)

    def remove(version, **more):
        return client.delete_object(Bucket="locked", Key="k", VersionId=version, **more)

    def denied(version, **more):
        refused("AccessDenied", remove, version=version, **more)

    strict = put("locked", "k", b"1", ObjectLockMode="COMPLIANCE", ObjectLockRetainUntilDate=soon)
    loose = put("locked", "k", b"2", ObjectLockMode="GOVERNANCE", ObjectLockRetainUntilDate=late)
    held = put("locked", "k", b"3", ObjectLockLegalHoldStatus="ON")
    head = client.head_object(Bucket="locked", Key="k", VersionId=loose)
    assert head["ObjectLockMode"] == "GOVERNANCE"
    assert head["ObjectLockRetainUntilDate"] == late
    for version in (strict, loose, held):
        denied(version)
    denied(strict, BypassGovernanceRetention=True)
    denied(held, BypassGovernanceRetention=True)
    several = [{"Key": "k", "VersionId": version} for version in (strict, loose, held)]
    removed = client.delete_objects(Bucket="locked", Delete={"Objects": several})
    assert [one["Code"] for one in removed["Errors"]] == ["AccessDenied"] * 3
    of = {"Bucket": "locked", "Key": "k"}
    mode = {"Mode": "GOVERNANCE", "RetainUntilDate": soon}
    refused("AccessDenied", client.put_object_retention, **of, VersionId=loose, Retention=mode)
    mode["RetainUntilDate"] = late + datetime.timedelta(days=1)
    client.put_object_retention(**of, VersionId=loose, Retention=mode)
    found = client.get_object_retention(**of, VersionId=loose)["Retention"]
    assert found["Mode"] == "GOVERNANCE" and found["RetainUntilDate"] > late
    remove(loose, BypassGovernanceRetention=True)
    assert client.get_object_legal_hold(**of, VersionId=held)["LegalHold"] == {"Status": "ON"}
    client.put_object_legal_hold(**of, VersionId=held, LegalHold={"Status": "OFF"})
    remove(held)
    # A marker hides it, and does not remove it.
    marker = client.delete_object(**of)["VersionId"]
    denied(strict)
    rule = {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 1}}
    lock = {"ObjectLockEnabled": "Enabled", "Rule": rule}
    client.put_object_lock_configuration(Bucket="locked", ObjectLockConfiguration=lock)
    found = client.get_object_lock_configuration(Bucket="locked")["ObjectLockConfiguration"]
    assert found == lock, found
    kept_a_day = put("locked", "k", b"4")
    denied(kept_a_day)
    refused("BucketNotEmpty", client.delete_bucket, Bucket="locked")
    refused("InvalidRequest", client.put_object, Bucket="some", Key="x", Body=b"",
            ObjectLockMode="GOVERNANCE", ObjectLockRetainUntilDate=late)
    refused("ObjectLockConfigurationNotFoundError", client.get_object_lock_configuration,
            Bucket="some")
    remove(kept_a_day, BypassGovernanceRetention=True)
    remove(marker)
    while datetime.datetime.now(datetime.timezone.utc) <= soon:
        time.sleep(0.1)
    remove(strict)
    client.delete_bucket(Bucket="locked")


def lifecycle():
    """Rules that are due are carried out soon after they come."""
    client.create_bucket(Bucket="fleeting")
    switch("fleeting", "Enabled")
    for key in ("old/1", "old/2", "new/1"):
        put("fleeting", key, b"x")
    none = "NoSuchLifecycleConfiguration"
    refused(none, client.get_bucket_lifecycle_configuration, Bucket="fleeting")
    past = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
    rule = {"ID": "a", "Status": "Enabled", "Filter": {"Prefix": "old/"},
            "Expiration": {"Date": past}}
    client.put_bucket_lifecycle_configuration(
        Bucket="fleeting", LifecycleConfiguration={"Rules": [rule]}
    )
    found = client.get_bucket_lifecycle_configuration(Bucket="fleeting")["Rules"]
    assert found == [rule], found
    for _ in range(100):
        if keys("fleeting") == ["new/1"]:
            break
        time.sleep(0.1)
    assert keys("fleeting") == ["new/1"]
    assert sorted(mark for _, _, mark in listed("fleeting")) == ["", "", "", "x", "x"]
    rule["Expiration"] = {"Days": 2}
    client.put_bucket_lifecycle_configuration(
        Bucket="fleeting", LifecycleConfiguration={"Rules": [rule]}
    )
    of = {"Bucket": "fleeting", "Key": "old/3"}
    header = client.put_object(**of, Body=b"x")["Expiration"]
    date, by = re.fullmatch(r'expiry-date="(.+)", rule-id="(.+)"', header).groups()
    date = email.utils.parsedate_to_datetime(date)
    assert by == "a" and (date.hour, date.minute, date.second) == (0, 0, 0), header
    days = (date - datetime.datetime.now(datetime.timezone.utc)) / datetime.timedelta(days=1)
    assert 1.99 < days < 3.01, header
    assert client.head_object(**of)["Expiration"] == client.get_object(**of)["Expiration"] == header
    assert "Expiration" not in client.head_object(Bucket="fleeting", Key="new/1")
    client.delete_bucket_lifecycle(Bucket="fleeting")
    assert "Expiration" not in client.head_object(**of)
    refused(none, client.get_bucket_lifecycle_configuration, Bucket="fleeting")
    rule["Transitions"] = [{"Days": 1, "StorageClass": "GLACIER"}]
    refused("NotImplemented", client.put_bucket_lifecycle_configuration, Bucket="fleeting",
            LifecycleConfiguration={"Rules": [rule]})
    several = [{"Key": key, "VersionId": version} for key, version, _ in listed("fleeting")]
    client.delete_objects(Bucket="fleeting", Delete={"Objects": several})
    client.delete_bucket(Bucket="fleeting")


def forms():
    """A page uploads with what boto3 signs for it."""
    where = {"Bucket": "some", "Key": "from a page/${filename}"}
    tags = "<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag></TagSet></Tagging>"
    fields = {"Content-Type": "text/plain", "x-amz-meta-colour": "blue", "tagging": tags,
              "success_action_redirect": "http://localhost/done?x=1"}
    conditions = [{name: value} for name, value in fields.items()]
    conditions.append(["content-length-range", 1, 100_000])
    signed = client.generate_presigned_post(**where, Fields=fields, Conditions=conditions)
    at = urllib.parse.urlsplit(signed["url"])

    def upload(bytes_, **changes):
        text = "".join(
            f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
            for name, value in {**signed["fields"], **changes}.items()
        ) + '--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
        to = http.client.HTTPConnection(at.netloc)
        to.request("POST", at.path, text.encode() + bytes_ + b"\r\n--b--\r\n",
                   {"Content-Type": "multipart/form-data; boundary=b"})
        reply = to.getresponse()
        return reply.status, reply.getheader("Location"), reply.read()

    bytes_ = data(70_000)
    status, location, _ = upload(bytes_)
    tag = hashlib.md5(bytes_).hexdigest()
    assert status == 303 and location == (
        f"http://localhost/done?x=1&bucket=some&key=from%20a%20page/a.txt&etag=%22{tag}%22"
    ), location
    of = {"Bucket": "some", "Key": "from a page/a.txt"}
    found = client.get_object(**of)
    assert found["Body"].read() == bytes_
    assert (found["ContentType"], found["Metadata"]) == ("text/plain", {"colour": "blue"})
    assert client.get_object_tagging(**of)["TagSet"] == [{"Key": "a", "Value": "1"}]
    for bytes_, changes in (b"", {}), (data(100_001), {}), (b"x", {"x-amz-meta-colour": "red"}):
        status, _, text = upload(bytes_, **changes)
        assert status in (400, 403) and b"<Error>" in text, (status, text)
    client.delete_object(**of)


def checksums():
    """Checksums that clients announce are kept, and compared."""
    of = {"Bucket": "some", "Key": "sums"}
    bytes_ = data(70_000)
    digest = base64.b64encode(hashlib.sha256(bytes_).digest()).decode()
    assert client.put_object(**of, Body=bytes_, ChecksumSHA256=digest)["ChecksumSHA256"] == digest
    assert client.head_object(**of, ChecksumMode="ENABLED")["ChecksumSHA256"] == digest
    assert "ChecksumSHA256" not in client.head_object(**of)
    wanted = ["Checksum", "ETag", "ObjectSize", "StorageClass", "ObjectParts"]
    found = client.get_object_attributes(**of, ObjectAttributes=wanted)
    assert found["Checksum"]["ChecksumSHA256"] == digest, found
    assert found["ObjectSize"] == 70_000 and "ObjectParts" not in found
    copy = client.copy_object(Bucket="some", Key="copied", CopySource="some/sums")
    assert copy["CopyObjectResult"]["ChecksumSHA256"] == digest
    parts = [data(5 << 20), data(1000)]
    begun = client.create_multipart_upload(**of, ChecksumAlgorithm="CRC32")
    upload = {**of, "UploadId": begun["UploadId"]}
    sums = [zlib.crc32(part).to_bytes(4, "big") for part in parts]
    sent = [client.upload_part(**upload, PartNumber=n, Body=part, ChecksumAlgorithm="CRC32")
            for n, part in enumerate(parts, 1)]
    assert [base64.b64decode(one["ChecksumCRC32"]) for one in sent] == sums
    of_parts = [{"PartNumber": n, "ETag": one["ETag"], "ChecksumCRC32": one["ChecksumCRC32"]}
                for n, one in enumerate(sent, 1)]
    wrong = [of_parts[0], of_parts[1] | {"ChecksumCRC32": "AAAAAA=="}]
    refused("InvalidPart", client.complete_multipart_upload, **upload,
            MultipartUpload={"Parts": wrong})
    for _ in ("the first time", "as by a client that got no reply"):
        done = client.complete_multipart_upload(**upload, MultipartUpload={"Parts": of_parts})
    whole = base64.b64encode(zlib.crc32(b"".join(sums)).to_bytes(4, "big")).decode()
    assert done["ChecksumCRC32"] == whole + "-2", done
    assert body("some", "sums", ChecksumMode="ENABLED") == b"".join(parts)
    found = client.get_object_attributes(**of, ObjectAttributes=["ObjectParts"])["ObjectParts"]
    assert [one["Size"] for one in found["Parts"]] == [5 << 20, 1000]
    assert [base64.b64decode(one["ChecksumCRC32"]) for one in found["Parts"]] == sums
    for key in ("sums", "copied"):
        client.delete_object(Bucket="some", Key=key)


def rights():
    """Rights that only access control lists give are refused, and not ignored."""
    of = {"Bucket": "some", "Key": "own"}
    client.put_object(**of, Body=b"", ACL="private")
    refused("AccessControlListNotSupported", client.put_object, **of, Body=b"", ACL="public-read")
    refused("AccessControlListNotSupported", client.put_object_acl, **of, ACL="public-read")
    refused("AccessControlListNotSupported", client.put_bucket_acl, Bucket="some",
            GrantRead="id=bob")
    client.put_object_acl(**of, ACL="private")
    found = client.get_object_acl(**of)
    same = {"Owner": found["Owner"], "Grants": found["Grants"]}
    client.put_object_acl(**of, AccessControlPolicy=same)
    same["Grants"][0]["Permission"] = "READ"
    refused("AccessControlListNotSupported", client.put_object_acl, **of, AccessControlPolicy=same)
    client.put_bucket_acl(Bucket="some", ACL="bucket-owner-full-control")
    assert client.get_object_acl(**of)["Grants"][0]["Permission"] == "FULL_CONTROL"
    rules = client.get_bucket_ownership_controls(Bucket="some")["OwnershipControls"]["Rules"]
    assert rules == [{"ObjectOwnership": "BucketOwnerEnforced"}]
    refused("NoSuchPublicAccessBlockConfiguration", client.get_public_access_block, Bucket="some")
    block = {"BlockPublicAcls": True, "IgnorePublicAcls": True, "BlockPublicPolicy": False,
             "RestrictPublicBuckets": True}
    client.put_public_access_block(Bucket="some", PublicAccessBlockConfiguration=block)
    found = client.get_public_access_block(Bucket="some")
    assert found["PublicAccessBlockConfiguration"] == block
    client.delete_public_access_block(Bucket="some")
    client.delete_object(**of)


def cors():
    """A browser asks without a signature what a page from elsewhere may do."""
    page = "https://page.example.com"
    signed = client.generate_presigned_url("get_object", Params={"Bucket": "some", "Key": "c"})
    signed = urllib.parse.urlsplit(signed)

    def reply_to(method, **headers):
        to = http.client.HTTPConnection(signed.hostname, signed.port)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        to.request(method, f"{signed.path}?{signed.query}", headers=named)
        reply = to.getresponse()
        reply.read()
        found = {name.lower(): value for name, value in reply.getheaders()}
        return reply.status, {
            name.removeprefix("access-control-"): value for name, value in found.items()
            if name.startswith("access-control-")
        }

    def ask(**headers):
        return reply_to("OPTIONS", **headers)

    asks = {"Origin": page, "Access_Control_Request_Method": "GET"}
    client.put_object(Bucket="some", Key="c", Body=b"blue")
    refused("NoSuchCORSConfiguration", client.get_bucket_cors, Bucket="some")
    assert ask() == ask(Origin=page) == (400, {})
    assert ask(**asks) == (403, {}) and reply_to("GET", Origin=page) == (200, {})
    rules = [
        {"AllowedMethods": ["PUT"], "AllowedOrigins": ["*"]},
        {"ID": "pages", "AllowedMethods": ["GET", "HEAD"], "AllowedHeaders": ["Range", "x-amz-*"],
         "AllowedOrigins": ["https://*.example.com"], "ExposeHeaders": ["ETag"],
         "MaxAgeSeconds": 600},
    ]
    client.put_bucket_cors(Bucket="some", CORSConfiguration={"CORSRules": rules})
    assert client.get_bucket_cors(Bucket="some")["CORSRules"] == rules
    allowed = {"allow-origin": page, "allow-credentials": "true", "allow-methods": "GET, HEAD",
               "expose-headers": "ETag"}
    asked = {**allowed, "max-age": "600"}
    assert ask(**asks) == (200, asked)
    headers = {"Access_Control_Request_Headers": "Range, X-Amz-Date"}
    assert ask(**asks, **headers) == (200, {**asked, "allow-headers": "range, x-amz-date"})
    assert ask(**asks, Access_Control_Request_Headers="x-other") == (403, {})
    assert ask(**{**asks, "Origin": "https://example.com.org"}) == (403, {})
    assert ask(**{**asks, "Access_Control_Request_Method": "DELETE"}) == (403, {})
    put = {"Origin": "http://any", "Access_Control_Request_Method": "PUT"}
    assert ask(**put) == (200, {"allow-origin": "*", "allow-methods": "PUT"})
    assert reply_to("GET", Origin=page) == (200, allowed)
    assert reply_to("GET") == (200, {})
    # What is refused says so to the page, too.
    assert reply_to("HEAD", Origin=page) == (403, allowed)
    for wrong in [{"AllowedMethods": ["PATCH"]}, {"AllowedOrigins": ["a*b*"]},
                  {"AllowedOrigins": ["a b"]}, {"MaxAgeSeconds": -1}]:
        configuration = {"CORSRules": [{**rules[0], **wrong}]}
        refused("InvalidRequest", client.put_bucket_cors, Bucket="some",
                CORSConfiguration=configuration)
    assert client.get_bucket_cors(Bucket="some")["CORSRules"] == rules
    client.delete_bucket_cors(Bucket="some")
    assert ask(**asks) == (403, {})
    client.delete_object(Bucket="some", Key="c")


def owners():
    """Clients that know the owner of a bucket are told if it is another one."""
    client.put_object(Bucket="some", Key="c", Body=b"blue", ExpectedBucketOwner=key)
    of = {"Bucket": "some", "Key": "c"}
    assert client.get_object(**of, ExpectedBucketOwner=key)["Body"].read() == b"blue"
    refused("AccessDenied", client.get_object, **of, ExpectedBucketOwner="another")
    refused("403", client.head_object, **of, ExpectedBucketOwner="another")
    refused("AccessDenied", client.delete_object, **of, ExpectedBucketOwner="another")
    refused("AccessDenied", client.put_object, **of, Body=b"", ExpectedBucketOwner="another")
    refused("AccessDenied", client.list_objects_v2, Bucket="some", ExpectedBucketOwner="another")
    refused("NoSuchBucket", client.list_objects_v2, Bucket="none", ExpectedBucketOwner="another")
    copy = {"Bucket": "some", "Key": "d", "CopySource": "some/c"}
    client.copy_object(**copy, ExpectedSourceBucketOwner=key)
    refused("AccessDenied", client.copy_object, **copy, ExpectedSourceBucketOwner="another")
    assert [one["Key"] for one in client.list_objects_v2(Bucket="some")["Contents"]] == ["c", "d"]
    for one in "cd":
        client.delete_object(Bucket="some", Key=one)


def strangers():
    refused("SignatureDoesNotMatch", connect(key, secret + "x").list_buckets)
    refused("InvalidAccessKeyId", connect("nobody", secret).list_buckets)
    anonymous = botocore.config.Config(signature_version=botocore.UNSIGNED)
    nobody = boto3.client("s3", endpoint_url=url, config=anonymous, region_name="us-east-1")
    refused("AccessDenied", nobody.get_object, Bucket="some", Key="c")


def policy():
    """The key may read `kept` and do anything to `own`."""
    assert [one["Name"] for one in client.list_buckets()["Buckets"]] == ["kept"]
    check()
    refused("AccessDenied", client.put_object, Bucket="kept", Key="x", Body=b"")
    refused("AccessDenied", client.delete_object, Bucket="kept", Key="kept/1")
    refused("AccessDenied", client.list_objects, Bucket="some")
    refused("AccessDenied", client.create_bucket, Bucket="other")
    client.create_bucket(Bucket="own")
    client.copy_object(Bucket="own", Key="mine", CopySource="kept/kept/257")
    assert body("own", "mine") == kept()["kept/257"]
    refused("AccessDenied", client.copy_object, Bucket="own", Key="mine", CopySource="some/p")


def virtual():
    """The address of a request names the bucket; it is sent to this machine all the same."""
    style = config.merge(botocore.config.Config(s3={"addressing_style": "virtual"}))
    named = boto3.client(
        "s3", endpoint_url=url.replace("127.0.0.1", "localhost"), aws_access_key_id=key,
        aws_secret_access_key=secret, region_name="us-east-1", config=style,
    )
    client.create_bucket(Bucket="hosted")
    for method, operation, sent, status in [
        ("PUT", "put_object", b"blue", 200), ("GET", "get_object", None, 200),
        ("DELETE", "delete_object", None, 204), ("GET", "get_object", None, 404),
    ]:
        place = {"Bucket": "hosted", "Key": "a b/ä"}
        signed = urllib.parse.urlsplit(named.generate_presigned_url(operation, place))
        assert signed.hostname == "hosted.localhost", signed
        to = http.client.HTTPConnection("127.0.0.1", signed.port)
        to.request(method, f"{signed.path}?{signed.query}", sent, {"Host": signed.netloc})
        reply = to.getresponse()
        answer = reply.read()
        assert reply.status == status, (method, reply.status, answer)
        assert (method, status) != ("GET", 200) or answer == b"blue"
    client.delete_bucket(Bucket="hosted")


def all_():
    buckets()
    objects()
    conditions()
    listings()
    parts()
    versions()
    versioning()
    locks()
    lifecycle()
    checksums()
    rights()
    owners()
    if not sys.argv[5:]:
        forms()
        cors()
        strangers()
    client.delete_bucket(Bucket="some")


{"fill": fill, "check": check, "all": all_, "virtual": virtual, "policy": policy}[what]()
