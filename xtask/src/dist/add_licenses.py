"""Adds the texts of licences to a wheel, and to its record: add_licenses.py WHEEL FILE..."""

import base64
import hashlib
import os
import pathlib
import sys
import zipfile

wheel = pathlib.Path(sys.argv[1])
with zipfile.ZipFile(wheel) as old:
    parts = [(info, old.read(info)) for info in old.infolist()]
record = next(info for info, _ in parts if info.filename.endswith(".dist-info/RECORD"))
folder = record.filename.removesuffix("RECORD") + "licenses/"
lines = next(text for info, text in parts if info is record).decode()
for file in map(pathlib.Path, sys.argv[2:]):
    info = zipfile.ZipInfo(folder + file.name, record.date_time)
    info.compress_type, info.external_attr = record.compress_type, record.external_attr
    text = file.read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b"=").decode()
    lines += f"{info.filename},sha256={digest},{len(text)}\n"
    parts.append((info, text))
new = wheel.with_suffix(".part")
with zipfile.ZipFile(new, "w") as out:
    for info, text in parts:
        if info is not record:
            out.writestr(info, text)
    # The record comes last, as PEP 427 advises.
    out.writestr(record, lines)
os.replace(new, wheel)
