# SPDX-License-Identifier: MIT
"""`stitch` and `python -m stitch`: the command line, a program of its own that the package carries."""

import os
import sys

from ._library import program


def main() -> int:
    """Becomes that program: its exit status, signals and streams are the process's."""
    try:
        path = program("stitch")
    except FileNotFoundError as e:
        print(f"stitch: {e}", file=sys.stderr)
        return 127
    os.environ.setdefault("STITCH_PYTHON", sys.executable)  # which runs tasks that are PyTorch modules
    os.execv(path, ["stitch", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
