#!/usr/bin/env bash
# Installs the system packages named as arguments (bubblewrap, g++, chromium, postgresql) if they are missing and apt can be used;
# otherwise says what to do. Never fails: what needs a missing package says so itself.
set -uo pipefail

present() {
    case "$1" in
        bubblewrap) command -v bwrap ;;
        chromium) command -v chromium || command -v chromium-browser || command -v google-chrome ;;
        postgresql) command -v initdb || ls /usr/lib/postgresql/*/bin/initdb ;;
        *) command -v "$1" ;;
    esac >/dev/null 2>&1
}

missing=()
for package in "$@"; do
    present "$package" || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if command -v apt-get >/dev/null && [ "$(id -u)" -eq 0 ]; then
    export DEBIAN_FRONTEND=noninteractive
    log=$(mktemp)
    install() { apt-get install -y --no-install-recommends "${missing[@]}" >"$log" 2>&1; }
    echo "installing ${missing[*]} with apt-get" >&2
    install || { apt-get update >/dev/null 2>&1 && install; } || {
        tail -n 3 "$log" >&2
        echo "could not install ${missing[*]}; the parts that need them will say so" >&2
    }
    rm -f "$log"
else
    echo "missing: ${missing[*]}. Install with: sudo apt-get install ${missing[*]} (or your system's package manager)" >&2
fi
exit 0
