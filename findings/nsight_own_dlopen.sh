#!/usr/bin/env bash
# guess: the library that Nsight Compute preloads is closed in itself: a preload before it may export dlopen, if it hands each call on.
# found (2026-11-30, nsight-compute-target 2024.1.1.4~12.4.1-2 of Debian 13): libcuda-injection.so exports a dlopen, and reads the address
#   of dlopen from a table that the loader fills (R_X86_64_GLOB_DAT; not -Bsymbolic). So the address is that of the first preload's
#   dlopen. Nsight Compute asks dladdr for its file, to answer a dlopen of libcuda with itself: it opened the other library instead, and
#   its look-ups of CUDA failed.
. "$(dirname "$0")/install.sh"
name=nsight-compute-target_2024.1.1.4~12.4.1-2_amd64.deb
curl -sSf -o "$work/$name" "https://deb.debian.org/debian/pool/non-free/n/nvidia-cuda-toolkit/$name" >&2 || exit 2
dpkg -x "$work/$name" "$work/root" || exit 2
library=$(find "$work/root" -name libcuda-injection.so)
echo 'void *dlopen(const char *file, int mode) { return 0; }' | cc -xc -shared -fPIC -o "$work/first.so" -
bound() { # whose dlopen the loader puts into the library's table
    LD_DEBUG=bindings LD_PRELOAD=$1 /bin/true 2>&1 |
        sed -n "s|.*binding file .*/libcuda-injection.so \[0\] to .*/\(.*\) \[0\]: normal symbol .dlopen'.*|its dlopen is that of \1|p" | head -1
}
{
    echo "exports: $(nm -D --defined-only "$library" | awk '$3 == "dlopen" { print $3 }')"
    echo "symbolic: $(readelf -d "$library" | grep -c SYMBOLIC || true)"
    readelf -rW "$library" | awk '$5 == "dlopen" { print "relocation: " $3 }'
    bound "$library"
    bound "$work/first.so:$library"
} | same "exports: dlopen
symbolic: 0
relocation: R_X86_64_GLOB_DAT
its dlopen is that of libcuda-injection.so
its dlopen is that of first.so"
