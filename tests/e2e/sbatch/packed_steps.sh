#!/bin/bash
#SBATCH -N1 -n4 -c1 --time=5
#= state COMPLETED
#= line packed 8
for i in $(seq 8); do
    srun -N1 -n1 -c1 --exact bash -c "echo done > packed-$SLURM_JOB_ID-$i" &
done
wait
echo "packed $(ls packed-$SLURM_JOB_ID-* | wc -l)"
