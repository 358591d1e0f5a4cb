"""Makes wheels reproducible: by default, setuptools writes the time of the build into them."""

import os

from setuptools import setup

os.environ.setdefault("SOURCE_DATE_EPOCH", "1577836800")  # seconds: 2020-01-01
setup()
