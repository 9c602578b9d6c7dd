#!/bin/bash
#SBATCH -n 3
#= state COMPLETED
#= line server at 0
#= line client 1 of task 1, not %t
#= line client 2 of task 2, not %t
cat > multi-$SLURM_JOB_ID.conf <<'END'
0    echo server at %t
1-2  bash -c 'echo client $SLURM_PROCID of task $0, not %t' %t
END
srun --multi-prog multi-$SLURM_JOB_ID.conf
