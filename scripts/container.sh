#!/usr/bin/env bash
# Builds the image of Containerfile where no registry of images can be reached, and tries it: as root, with buildah and
# debootstrap (apt-get install buildah debootstrap). The base is made of Debian's packages under the name that
# Containerfile asks for, then hipwright optimises one task in the image, as its user, with the image as the root.
#   scripts/container.sh [further arguments of buildah, such as -v /etc/pip.conf:/etc/pip.conf:ro]
# PIP_ENV="PIP_RETRIES=0 ..." is set in the base, for mirrors of packages.
set -euo pipefail
cd "$(dirname "$0")/.."
export STORAGE_DRIVER=${STORAGE_DRIVER:-vfs} BUILDAH_ISOLATION=${BUILDAH_ISOLATION:-chroot}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
base=$(sed -n 's/^FROM \([^ ]*\)$/\1/p' Containerfile)

if ! buildah inspect --type image "$base" >/dev/null 2>&1; then
    debootstrap --variant=minbase --include=python3,python3-pip,python3-venv,ca-certificates bookworm "$work/root"
    ln -sf python3 "$work/root/usr/bin/python"
    container=$(buildah from scratch)
    buildah copy -q "$container" "$work/root" /
    for setting in PIP_BREAK_SYSTEM_PACKAGES=1 ${PIP_ENV:-}; do
        buildah config --env "$setting" "$container"
    done
    buildah commit -q --rm "$container" "$base"
fi
git archive --prefix=source/ HEAD | tar -x -C "$work"
buildah bud --pull-never "$@" -t hipwright "$work/source"

container=$(buildah from --pull-never localhost/hipwright)
buildah copy -q "$container" examples/bias_gelu.py /work/bias_gelu.py
export IMAGE
IMAGE=$(buildah mount "$container")
unshare --mount --pid --fork bash -euo pipefail -c '
    mount --make-rprivate /
    mount --bind "$IMAGE" "$IMAGE"
    mount -t proc proc "$IMAGE/proc"
    mount --rbind /dev "$IMAGE/dev"
    mkdir -p "$IMAGE/.old"
    cd "$IMAGE"
    pivot_root . .old
    umount -l /.old
    cd /work
    as_user="setpriv --reuid hipwright --regid hipwright --init-groups env -i HOME=/home/hipwright PATH=/usr/local/bin:/usr/bin:/bin"
    $as_user hipwright doctor
    $as_user hipwright optimize bias_gelu.py --budget 1 --out /tmp/out
'
buildah umount "$container" >/dev/null
buildah rm "$container" >/dev/null
