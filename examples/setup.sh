# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Shared by examples/train.sh and tests/run.sh: list what will be installed, install it, configure, build. Sourced.
#
#     need cmake               cmake                  # a command, and the Debian package that contains it
#     need_header CLI/CLI.hpp  libcli11-dev           # a header, and its package
#     wish bible               bible-kjv              # like need, but optional
#     install_packages                                # lists what it would install, asks, installs it

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
needed=()
wished=()
assume_yes=no

die() {
    echo "${0##*/}: $*" >&2
    exit 2
}

need() { command -v "$1" >/dev/null 2>&1 || needed+=("$2"); }
wish() { command -v "$1" >/dev/null 2>&1 || wished+=("$2"); }

need_header() {
    local folder
    for folder in /usr/include /usr/local/include; do
        if [[ -e $folder/$1 ]]; then return; fi
    done
    needed+=("$2")
}

# g++ 12 or any clang++; CXX, where it is set, is the user's own choice.
need_compiler() {
    local version
    if [[ -n ${CXX:-} ]]; then
        command -v "${CXX%% *}" >/dev/null 2>&1 || die "CXX names the compiler $CXX, which is not there"
        return
    fi
    if version=$(g++ -dumpversion 2>/dev/null) && ((${version%%.*} >= 12)); then
        export CXX=g++
    elif command -v g++-12 >/dev/null 2>&1; then
        export CXX=g++-12
    elif command -v clang++ >/dev/null 2>&1; then
        export CXX=clang++
    elif grep -qs '^VERSION_ID="22.04"' /etc/os-release; then
        needed+=(g++-12)  # its g++ is version 11
        export CXX=g++-12
    else
        needed+=(g++)
        export CXX=g++
    fi
}

as_root() {
    if ((EUID == 0)); then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo "$@"
    else
        die "installing needs root and there is no sudo; install ${needed[*]} and start this again"
    fi
}

install_packages() {
    local answer package
    if ((${#needed[@]} + ${#wished[@]} == 0)); then
        echo "Nothing is to be installed."
        return
    fi
    if ! command -v apt-get >/dev/null 2>&1; then
        if ((${#needed[@]})); then
            die "there is no apt-get here; install by hand what Debian calls: ${needed[*]}"
        fi
        echo "Nothing can be installed here, as there is no apt-get; going on without: ${wished[*]}"
        return
    fi
    echo "About to install with apt-get:${needed[*]:+ ${needed[*]}}${wished[*]:+ ${wished[*]} (where it is to be had)}"
    if [[ $assume_yes == no && -t 0 ]]; then
        read -r -p "Go on? [Y/n] " answer || answer=n
        case $answer in
            '' | [Yy]*) ;;
            *) die "nothing was installed" ;;
        esac
    fi
    # A list that could not be renewed may still do; if it does not, the installation says so.
    as_root apt-get update -q </dev/null || echo "The package lists could not be renewed; trying with those at hand."
    if ((${#needed[@]})); then
        apt_install "${needed[@]}" || die "apt-get could not install: ${needed[*]}"
    fi
    for package in "${wished[@]}"; do
        apt_install "$package" || echo "The package $package could not be installed; going on without."
    done
}

apt_install() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@" </dev/null
}

# Jobs that neither the processors nor the memory (1.5 GiB for a compiler) forbid.
job_count() {
    local count room
    count=$(nproc 2>/dev/null || echo 1)
    if room=$(awk '/^MemAvailable:/ { print int($2 / 1572864) }' /proc/meminfo 2>/dev/null) && [[ -n $room ]]; then
        if ((room < count)); then count=$room; fi
    fi
    echo $((count > 0 ? count : 1))
}

# configure FOLDER ARGUMENT...: a Release build in the folder; a folder configured earlier keeps its generator.
configure() {
    local folder=$1 generator=()
    shift
    if [[ ! -e $folder/CMakeCache.txt ]] && command -v ninja >/dev/null 2>&1; then
        generator=(-G Ninja)
    fi
    cmake -S "$root" -B "$folder" "${generator[@]}" "$@"
}
