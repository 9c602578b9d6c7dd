#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4
#SBATCH --gpus-per-node=A100:2 --gpu-bind=single:2
#SBATCH --distribution=plane=2
#SBATCH --mem-per-gpu=64M
#= state COMPLETED
#= line distribution plane of 2
#= line 0: host 0 gpus 1
#= line planes: 0 0 1 1 0 0 1 1
#= line listed: 1 0 0
#= line gpus of host 0: 2
#= line loader of 2
#= line worker 0 of task 1
#= line worker 3 of task 5
#= line rest 7
echo "distribution $SLURM_DISTRIBUTION of $SLURM_DIST_PLANESIZE"
count='n=$(echo $CUDA_VISIBLE_DEVICES | tr , "\n" | grep -c .)'
srun -l bash -c "$count"'; echo "host $SLURM_NODEID gpus $n"' | sort -n > placed-$SLURM_JOB_ID
cat placed-$SLURM_JOB_ID
echo "planes: $(sed 's/.*host \(.\) .*/\1/' placed-$SLURM_JOB_ID | tr '\n' ' ' | sed 's/ $//')"
scontrol show hostnames > names-$SLURM_JOB_ID
{ tail -1 names-$SLURM_JOB_ID; head -1 names-$SLURM_JOB_ID; head -1 names-$SLURM_JOB_ID; } > hosts-$SLURM_JOB_ID
echo "listed: $(SLURM_HOSTFILE=hosts-$SLURM_JOB_ID srun -l bash -c 'echo $SLURM_NODEID' | sort -n | sed 's/.*: //' | tr '\n' ' ' | sed 's/ $//')"
echo "gpus of host 0: $(srun -N1 -n1 --gpu-bind=none bash -c "$count"'; echo $n')"
cat > programs-$SLURM_JOB_ID <<'END'
0,2     echo loader of %t
1,3-6   bash -c 'echo worker $0 of task $SLURM_PROCID' %o
*       echo rest %t
END
srun --gres=none --multi-prog programs-$SLURM_JOB_ID
