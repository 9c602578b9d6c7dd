#!/bin/bash
#SBATCH -J monitored -N 2 --ntasks-per-node=2 --gpus-per-node=2 -t 10
#= state COMPLETED
#= line 0: trains
#= line 3: trains
#= line monitors of 2 hosts
# every host is watched while the training step has all of it
srun --overlap --ntasks-per-node=1 --ntasks=$SLURM_NNODES --gpus=0 --output=monitored-$SLURM_JOB_ID-%N.log \
    bash -c 'until [ -e monitored-$SLURM_JOB_ID.over ]; do echo "$(date +%s) $(hostname)"; sleep 0.2; done' &
monitor=$!
srun -l bash -c 'sleep 1; echo trains'
touch monitored-$SLURM_JOB_ID.over
wait $monitor
echo "monitors of $(ls monitored-$SLURM_JOB_ID-z*.log | wc -l) hosts"
