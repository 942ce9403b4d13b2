# SPDX-License-Identifier: MIT
"""Runs the functions whose names begin with test_, prints TAP. A test raises Skip(reason) where it cannot run."""

import contextlib
import gc
import importlib
import os
import sys
import traceback

CHECKOUT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(CHECKOUT, "bindings", "python"))


class Skip(Exception):
    pass


def numpy():
    """NumPy: this Python's, or that of the virtual environment in which tests/run.sh puts what is missing."""
    venv = os.environ.get("STITCH_TEST_VENV")
    packages = venv and os.path.join(venv, "lib", "python%d.%d" % sys.version_info[:2], "site-packages")
    for folder in [None, packages]:
        if folder:
            sys.path.append(folder)
        try:
            return importlib.import_module("numpy")
        except ImportError:
            pass
    raise Skip("NumPy is not installed")


@contextlib.contextmanager
def raises(kind, *words):
    """The block raises `kind`, and its text has all the words. The exception is yielded[0] afterwards."""
    caught = []
    try:
        yield caught
    except kind as e:
        for word in words:
            assert word in str(e), f"'{word}' is not in: {e}"
        caught.append(e.with_traceback(None))
        return
    raise AssertionError(f"{kind.__name__} was not raised")


def main(module):
    tests = [(name, value) for name, value in vars(module).items() if name.startswith("test_")]
    print(f"1..{len(tests)}")
    bad = 0
    for number, (name, function) in enumerate(tests, 1):
        text = name[len("test_") :].replace("_", " ")
        try:
            function()
            print(f"ok {number} - {text}", flush=True)
        except Skip as e:
            print(f"ok {number} - {text} # SKIP {e}", flush=True)
        except BaseException:  # pylint: disable=broad-except
            bad += 1
            print(f"not ok {number} - {text}")
            for line in traceback.format_exc().splitlines():
                print("# " + line, flush=True)
        gc.collect()
    sys.exit(1 if bad else 0)
