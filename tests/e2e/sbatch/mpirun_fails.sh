#!/bin/bash
#SBATCH -N 2 --tasks-per-node 1
#= state FAILED
#= code 9:0
#= line mpirun ended with 9
mpirun bash -c 'test $OMPI_COMM_WORLD_RANK = 0 || exit 9'
code=$?
echo "mpirun ended with $code"
exit $code
