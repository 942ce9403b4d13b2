# SPDX-License-Identifier: MIT
"""The example of docs/python.md runs as it stands there."""

import os
import re
import shutil
import subprocess
import sys
import tempfile

import sim
import tap


def test_the_example_of_the_guide():
    with open(os.path.join(tap.CHECKOUT, "docs", "python.md"), encoding="utf-8") as text:
        (example,) = re.findall(r"```python\n(# example\n.*?)```", text.read(), flags=re.S)
    assert 8 <= len(example.splitlines()) <= 12
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(sim.EXAMPLES, os.path.join(folder, "examples"))
        env = dict(os.environ, PYTHONPATH=os.path.join(tap.CHECKOUT, "bindings", "python"), STITCH_CACHE_DIR=sim.CACHE)
        out = subprocess.run(
            [sys.executable, "-c", example], check=False, capture_output=True, text=True, cwd=folder, env=env
        )
        assert out.returncode == 0, out.stderr
        assert "correct: True" in out.stdout and os.path.getsize(os.path.join(folder, "mlp.stitch")) > 0, out.stdout


if __name__ == "__main__":
    tap.main(sys.modules[__name__])
