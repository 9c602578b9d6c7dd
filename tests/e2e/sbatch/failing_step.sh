#!/bin/bash
#SBATCH -n 3
#= state FAILED
#= line srun ended with (5|143)
srun --kill-on-bad-exit=1 bash -c 'if [ $SLURM_PROCID = 1 ]; then exit 5; fi; sleep 600'
code=$?
echo "srun ended with $code"
exit $code
