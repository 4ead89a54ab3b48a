"""Unpacks Helm out of a Python package that contains it: there is no package of Helm alone.

Usage: helm.py MODULE FILE, with the name of the package's module below `aws_cdk`.
"""

import importlib.util
import io
import os
import sys
import tarfile
import zipfile
from pathlib import Path

module, file = sys.argv[1:]
# Found, not imported: the packages that it depends on are not installed.
spec = importlib.util.find_spec("aws_cdk")
folder = Path(next(iter(spec.submodule_search_locations))) / module / "_jsii"
archive = next(folder.glob("*.tgz"))
with tarfile.open(archive) as package:
    layer = package.extractfile("package/lib/layer.zip").read()
with zipfile.ZipFile(io.BytesIO(layer)) as contents:
    program = contents.read("helm/helm")
# Whole or not at all: an interrupted run must not leave half a program.
part = Path(f"{file}.part")
part.write_bytes(program)
part.chmod(0o755)
os.replace(part, file)
