"""Writes the configuration of ceph/s3-tests, and the keys of a gateway that knows its users.

configure.py SAMPLE PORT CONFIGURATION KEYS
"""

import configparser
import sys

sample, port, configuration, keys = sys.argv[1:]
config = configparser.ConfigParser(interpolation=None)
config.read(sample)
config["DEFAULT"]["host"] = "127.0.0.1"
config["DEFAULT"]["port"] = port
secrets = {}
for section in map(config.__getitem__, config.sections()):
    if "access_key" in section:
        secrets[section["access_key"]] = section["secret_key"]
        # A gateway knows its clients by their keys, and by no other names.
        section["user_id"] = section["display_name"] = section["access_key"]
with open(configuration, "w") as out:
    config.write(out)
with open(keys, "w") as out:
    out.writelines(f"{key} {secret}\n" for key, secret in secrets.items())
