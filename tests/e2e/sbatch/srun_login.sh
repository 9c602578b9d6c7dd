#!/bin/bash
#= submit bash srun_login.bash
#= state COMPLETED
#= line 0: on 2 of 2
#= line 1: on 2 of 2
#= line kept once
#= line kept twice
#= line first 0 of two
#= line second 1 of two
#= line srun --mpi=foo ended with 1
#= line srun -N x ended with 255
#= line a step ignores what is the job's
cat "$1"
srun -n1 -L none_such --reservation=none --signal=USR1@5 -T 2 echo "a step ignores what is the job's" 2> /dev/null
