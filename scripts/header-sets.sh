#!/usr/bin/env bash
# Fetches AMD's own HIP headers and hipRTC libraries into a folder, for tests (docs/toolchain.md): four releases from
# Debian's archive by apt-get, another from triton's wheel by pip. Nothing is installed, and root is not needed.
#   scripts/header-sets.sh [FOLDER]         FOLDER: .header-sets by default; PYTHON: the interpreter that has pip
# Never fails: what cannot be fetched is named, and the tests of it are skipped with that reason.
set -uo pipefail

root=$(realpath -m "${1:-.header-sets}")
work=$root/.work
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
mkdir -p "$root" "$work"

missing() {
    echo "$1: $2" >&2
    rm -rf "${root:?}/$1"
    echo "$2" >"$root/$1.missing"
}

debian() { # NAME "SUITE..." PACKAGE...: the packages, of the last suite, with all that they depend on, unpacked
    local name=$1 suites=$2 state=$work/$1
    shift 2
    [ -d "$root/$name" ] && return
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || { missing "$name" "needs apt-get and dpkg-deb"; return; }
    [ -f "$keyring" ] || { missing "$name" "needs $keyring (package debian-archive-keyring)"; return; }
    mkdir -p "$state"/lists/partial "$state"/cache/archives/partial
    touch "$state/status"
    for suite in $suites; do echo "deb [arch=amd64 signed-by=$keyring] $mirror $suite main"; done >"$state/sources.list"
    local options=(-qq -t "${suites##* }" -o Dir::Etc::sourcelist="$state/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o Dir::State::lists="$state/lists" -o Dir::State::status="$state/status" -o Dir::Cache="$state/cache"
        -o APT::Architecture=amd64 -o APT::Architectures=amd64 -o APT::Sandbox::User=root -o Debug::NoLocking=true)
    if ! apt-get "${options[@]}" update >"$state/log" 2>&1 ||
        ! apt-get "${options[@]}" install -y --no-install-recommends --download-only "$@" >>"$state/log" 2>&1; then
        missing "$name" "apt-get cannot fetch it: $(grep -m 1 '^E:' "$state/log")"
        return
    fi
    for package in "$state"/cache/archives/*.deb; do
        dpkg-deb -x "$package" "$work/$name.new" || { missing "$name" "cannot unpack $package"; return; }
    done
    find "$work/$name.new" \( -name '*.a' -o -name 'libclang*.so*' \) -delete
    rm -rf "$work/$name.new"/usr/share "$work/$name.new"/usr/bin "$work/$name.new"/usr/sbin
    rm -rf "$state"
    mv "$work/$name.new" "$root/$name"
    rm -f "$root/$name.missing"
}

triton() { # the headers of triton's wheel, which lacks those of half types: they are added from Debian's newest
    [ -d "$root/triton" ] && return
    local state=$work/triton
    rm -rf "$state"
    mkdir -p "$state"
    if ! "${PYTHON:-python3}" -m pip download --quiet --no-deps --disable-pip-version-check -d "$state" triton >"$state/log" 2>&1; then
        missing triton "pip cannot fetch triton's wheel: $(tail -n 1 "$state/log")"
        return
    fi
    "${PYTHON:-python3}" - "$state" "$root/triton" "$root/debian-7.2" <<'PY' || { missing triton "its wheel has no headers"; return; }
import shutil, sys, zipfile
from pathlib import Path

state, out, debian = map(Path, sys.argv[1:])
with zipfile.ZipFile(next(state.glob("*.whl"))) as wheel:
    inside = "triton/backends/amd/"
    wanted = [n for n in wheel.namelist() if n.startswith(f"{inside}include/hip/") and not n.endswith("/")]
    for name in wanted:
        path = out / "usr" / name.removeprefix(inside)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(wheel.read(name))
added = []
for stem in ("fp16", "bf16", "bfloat16", "math_constants", "complex"):
    for path in (f"hip/hip_{stem}.h", f"hip/amd_detail/amd_hip_{stem}.h", f"hip/amd_detail/hip_{stem}_gcc.h"):
        source, target = debian / "usr/include" / path, out / "usr/include" / path
        if source.is_file() and not target.exists():
            shutil.copy(source, target)
            added.append(path)
(out / "added.txt").write_text("\n".join(added) + "\n")
sys.exit(0 if wanted else 1)
PY
    rm -rf "$state"
    rm -f "$root/triton.missing"
}

debian debian-5.2 bookworm libamdhip64-dev libamdhip64-5 libhiprtc-builtins5 libclang-common-15-dev
debian debian-5.7 trixie libamdhip64-dev libamdhip64-5 libhiprtc-builtins5 libclang-common-17-dev
debian debian-6.4 forky libamdhip64-dev libhiprtc6 libhiprtc-builtins6 libclang-common-21-dev
debian debian-7.2 "sid experimental" libamdhip64-dev libhiprtc7 libhiprtc-builtins7 libclang-common-21-dev
triton
rmdir "$work" 2>/dev/null
exit 0
