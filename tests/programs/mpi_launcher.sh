# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2034  # what the sourcing script uses
# The MPI with which a test begins processes: that of the folder MPI_HOME, with bin/mpirun and bin/mpicxx, or of PATH. Open MPI,
# MPICH and Intel MPI. Sourced; gives, or ends with 77,
#
#     mpi_name              openmpi, mpich or intel
#     mpi_launch            the beginning of a command, behind which `-n 4 PROGRAM` comes
#     mpi_compile           the arguments for a C++ compiler
#     mpi_rank              the variable of the environment that has a process's rank
#     mpi_line_of_killed N  a regular expression for the line about the killed rank N

if [[ -n ${MPI_HOME:-} ]]; then
    export PATH=$MPI_HOME/bin:$PATH LD_LIBRARY_PATH=$MPI_HOME/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
for tool in mpirun mpicxx; do
    command -v "$tool" >/dev/null 2>&1 || { echo "skipped: there is no $tool"; exit 77; }
done
mpi_launch=(mpirun)
case $(mpirun --version 2>&1) in
    *"Open MPI"*)
        mpi_name=openmpi mpi_rank=OMPI_COMM_WORLD_RANK
        mpi_launch+=(--oversubscribe --allow-run-as-root)
        mpi_line_of_killed() { echo "rank $1 .*(killed|exited on|Killed)"; }
        ;;
    *Intel*)
        # It names each rank, the first one of its choice included, that it ended thereafter.
        mpi_name=intel mpi_rank=PMI_RANK
        mpi_line_of_killed() { echo "RANK $1 PID [0-9]+ RUNNING AT"; }
        ;;
    *HYDRA*)
        # It tells that a process was killed, and not which.
        mpi_name=mpich mpi_rank=PMI_RANK
        mpi_line_of_killed() { echo "EXIT STRING: Killed \(signal 9\)"; }
        ;;
    *)
        echo "skipped: mpirun is not that of Open MPI, MPICH or Intel MPI"
        exit 77
        ;;
esac
# Intel's wrapper leaves a place for its folder.
mapfile -t mpi_compile < <(mpicxx -show | sed "s|I_MPI_SUBSTITUTE_INSTALLDIR|${MPI_HOME:-${I_MPI_ROOT:-}}|g" | xargs -n 1 | tail -n +2 | sed 's|^-I|-isystem|')
