"""Adds the texts of licences to a wheel, and takes the folder of its sources out of its bill of
materials: finish_wheel.py WHEEL SOURCES FILE..."""

import base64
import hashlib
import os
import pathlib
import sys
import zipfile

wheel, sources = pathlib.Path(sys.argv[1]), os.path.realpath(sys.argv[2])
with zipfile.ZipFile(wheel) as old:
    parts = [(info, old.read(info)) for info in old.infolist()]
record = next(info for info, _ in parts if info.filename.endswith(".dist-info/RECORD"))
folder = record.filename.removesuffix("RECORD")


def without_sources(name, text):
    """Replaces the folder of the sources in a bill of materials."""
    if not name.startswith(folder + "sboms/"):
        return text
    text = text.replace(f"path+file://{sources}/".encode(), b"path+file:///traceless/")
    if sources.encode() in text:
        raise SystemExit(f"{name} names the folder {sources}")
    return text


parts = [(info, without_sources(info.filename, text)) for info, text in parts if info is not record]
for file in map(pathlib.Path, sys.argv[3:]):
    info = zipfile.ZipInfo(f"{folder}licenses/{file.name}", record.date_time)
    info.compress_type, info.external_attr = record.compress_type, record.external_attr
    parts.append((info, file.read_bytes()))
lines = ""
new = wheel.with_suffix(".part")
with zipfile.ZipFile(new, "w") as out:
    for info, text in parts:
        out.writestr(info, text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b"=").decode()
        lines += f"{info.filename},sha256={digest},{len(text)}\n"
    # The record comes last, as PEP 427 advises.
    out.writestr(record, lines + f"{record.filename},,\n")
os.replace(new, wheel)
