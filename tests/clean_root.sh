#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
set -euo pipefail

help() {
    cat <<'TEXT'
tests/clean_root.sh [--suite NAME] [--cuda FOLDER] [--keep] [COMMAND [ARGUMENT...]]

Tests the README's two commands on a fresh Debian: creates a root file system with Debian's minimum and git, clones the commit of this
repository into it, and runs the command there, by default examples/train.sh and then tests/run.sh. Packages come from the sources of
this machine's apt. Needs root and debootstrap.

    --suite NAME   the Debian release, bookworm by default
    --cuda FOLDER  a CUDA toolkit, which is mounted read-only as /usr/local/cuda, with its bin in PATH
    --keep         keep the root file system, and print its path
    --help         this text
TEXT
}

die() {
    echo "clean_root.sh: $*" >&2
    exit 2
}

# Inside a mount namespace of its own, where all mounts end with this process.
if [[ ${1:-} == --inside ]]; then
    where=$2
    shift 2
    mount -t proc proc "$where/proc"
    mount --rbind /dev "$where/dev"
    mount -t tmpfs tmpfs "$where/tmp"
    path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    if [[ -n ${CLEAN_ROOT_CUDA:-} ]]; then
        mkdir -p "$where/usr/local/cuda"
        mount --bind "$CLEAN_ROOT_CUDA" "$where/usr/local/cuda"
        mount -o remount,bind,ro "$where/usr/local/cuda"
        path=/usr/local/cuda/bin:$path
    fi
    environment=(HOME=/root PATH="$path" TERM=dumb)
    for name in http_proxy https_proxy no_proxy; do
        if [[ -n ${!name:-} ]]; then environment+=("$name=${!name}"); fi
    done
    exec env -i "${environment[@]}" chroot "$where" sh -c 'cd /root/halftone 2>/dev/null || cd /root; exec "$@"' sh "$@" \
        </dev/null
fi

suite=bookworm
keep=no
while (($#)); do
    case $1 in
        --suite)
            (($# > 1)) || die "--suite needs a name"
            suite=$2
            shift
            ;;
        --cuda)
            (($# > 1)) || die "--cuda needs a folder"
            [[ -x $2/bin/nvcc ]] || die "$2 holds no bin/nvcc"
            CLEAN_ROOT_CUDA=$(realpath "$2")
            export CLEAN_ROOT_CUDA
            shift
            ;;
        --keep) keep=yes ;;
        --help | -h)
            help
            exit 0
            ;;
        -*) die "unknown argument $1; --help tells what there is" ;;
        *) break ;;
    esac
    shift
done
((EUID == 0)) || die "needs root"
command -v debootstrap >/dev/null 2>&1 || die "needs debootstrap"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=debian.sh
source "$here/debian.sh"
where=$(mktemp -d)
chmod 755 "$where"
finish() {
    if [[ $keep == yes ]]; then
        echo "The root stays in $where"
    else
        rm -rf --one-file-system "$where"
    fi
}
trap finish EXIT

inside() { unshare --mount --propagation private bash "${BASH_SOURCE[0]}" --inside "$where" "$@"; }

mirror=$(debian_archive) || die "apt knows of no Debian archive here"

include=git
if [[ $mirror == https:* ]]; then include+=,ca-certificates; fi
echo "Making a $suite root"
debootstrap --variant=minbase --include="$include" "$suite" "$where" "$mirror" >"$where.log" 2>&1 ||
    { tail -n 20 "$where.log"; rm -f "$where.log"; die "debootstrap failed"; }
rm -f "$where.log"

# What lets apt reach its archive from this machine: names, and options of transport.
cp /etc/resolv.conf /etc/hosts "$where/etc/"
apt-config dump | grep -E '^Acquire::(http|https|ftp|Check|Retries|Proxy)' >"$where/etc/apt/apt.conf.d/99transport" || true
echo "deb $mirror $suite main" >"$where/etc/apt/sources.list"

git -C "$here" bundle create --quiet "$where/root/halftone.bundle" HEAD
inside git -c advice.detachedHead=false -c init.defaultBranch=main clone --quiet /root/halftone.bundle /root/halftone
echo "Cloned $(git -C "$here" describe --always --dirty='; what is not committed stays behind')"

if (($#)); then
    SECONDS=0
    inside "$@"
    echo "$1 took $SECONDS s"
else
    for command in examples/train.sh tests/run.sh; do
        SECONDS=0
        inside "$command"
        echo "$command took $SECONDS s"
    done
fi
