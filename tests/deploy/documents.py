"""Prints the documents of a YAML file as one JSON array. Usage: documents.py FILE"""

import json
import sys

import yaml

with open(sys.argv[1], encoding="utf-8") as file:
    print(json.dumps([document for document in yaml.safe_load_all(file) if document is not None]))
