"""Looks into the JSON on standard input.

fields.py SCHEMA FIELD...   the schema is this one, and each field is there
fields.py --get FIELD       prints a field
"""

import json
import sys

document = json.load(sys.stdin)
if sys.argv[1] == "--get":
    value = document[sys.argv[2]]
    print(json.dumps(value) if isinstance(value, (bool, list, dict)) else value)
else:
    schema, fields = sys.argv[1], sys.argv[2:]
    if document["schema"] != schema:
        sys.exit(f"schema {document['schema']} instead of {schema}")
    missing = [field for field in fields if field not in document]
    if missing:
        sys.exit(f"no {', '.join(missing)} in {sorted(document)}")
