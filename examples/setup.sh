# SPDX-License-Identifier: MIT
# Shared by examples/quickstart.sh and tests/run.sh: installs what is missing and builds into build/. Meant to be sourced:
#     . examples/setup.sh; stitch_setup; stitch_build
# Set up once, it needs no network. STITCH_NO_INSTALL=1 only says what is missing.

stitch_say() {
    printf '%s\n' "$*" >&2
}

stitch_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
        sudo -n "$@"
    else
        return 1
    fi
}

# Debian packages: what a command or a header stands for.
stitch_missing_packages() {
    missing=
    command -v cc >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
    command -v c++ >/dev/null 2>&1 || missing="$missing g++"
    command -v pkg-config >/dev/null 2>&1 || missing="$missing pkg-config"
    command -v ninja >/dev/null 2>&1 || missing="$missing ninja-build"
    command -v python3 >/dev/null 2>&1 || missing="$missing python3"
    python3 -c 'import ensurepip' 2>/dev/null || missing="$missing python3-venv"
    pkg-config --exists jansson 2>/dev/null || missing="$missing libjansson-dev"
    pkg-config --exists libcurl 2>/dev/null || missing="$missing libcurl4-openssl-dev"
    pkg-config --exists openblas 2>/dev/null || missing="$missing libopenblas-dev"
    command -v meson >/dev/null 2>&1 || [ -x build/venv/bin/meson ] || missing="$missing meson"
    printf '%s' "$missing"
}

stitch_venv() {
    [ -x build/venv/bin/python3 ] || python3 -m venv build/venv
}

stitch_setup() {
    mkdir -p build
    missing=$(stitch_missing_packages)
    if [ -n "$missing" ]; then
        if [ "${STITCH_NO_INSTALL:-0}" = 1 ] || ! command -v apt-get >/dev/null 2>&1; then
            stitch_say "missing Debian packages:$missing"
        else
            stitch_say "installing Debian packages:$missing"
            # shellcheck disable=SC2086
            stitch_root sh -c "apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing" \
                >build/setup.log 2>&1 || stitch_say "could not install them (see build/setup.log); going on with what is there"
        fi
    fi
    # Meson from PyPI where the distribution's is missing or too old.
    version=$(meson --version 2>/dev/null || echo 0)
    if [ ! -x build/venv/bin/meson ] && ! printf '0.61.0\n%s\n' "$version" | sort -C -V; then
        stitch_say "installing meson into build/venv"
        stitch_venv && build/venv/bin/python3 -m pip install -q meson
    fi
    [ -x build/venv/bin/meson ] && PATH="$PWD/build/venv/bin:$PATH" && export PATH
    # CUDA headers and NVRTC from Python wheels where no toolkit is found.
    [ -x build/venv/bin/python3 ] && VIRTUAL_ENV="$PWD/build/venv" && export VIRTUAL_ENV
    if ! python3 lib/find_cuda_headers.py >/dev/null 2>&1; then
        stitch_say "no CUDA toolkit found: installing headers, NVRTC and cuBLAS into build/venv"
        stitch_venv && build/venv/bin/python3 -m pip install -q nvidia-cuda-runtime nvidia-cuda-nvrtc nvidia-cublas nvidia-cuda-cccl
        VIRTUAL_ENV="$PWD/build/venv" && export VIRTUAL_ENV
    fi
}

# The build folder is configured once; later calls only build what changed.
stitch_build() {
    if [ ! -f build/build.ninja ]; then
        meson setup build >build/configure.log 2>&1 || {
            rm -f build/build.ninja
            cat build/configure.log >&2
            return 1
        }
    fi
    ninja -C build >build/build.log 2>&1 || {
        cat build/build.log >&2
        return 1
    }
}
