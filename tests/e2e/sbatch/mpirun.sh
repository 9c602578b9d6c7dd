#!/bin/bash
#SBATCH --job-name=cfd
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=1
#SBATCH --time=30
#SBATCH --output=cfd-%j.out
#= state COMPLETED
#= file cfd-%j.out
#= line rank 0 of 4 on z1h[1-3]
#= line rank 3 of 4 on z1h[1-3]
#= line 2 hosts, 4 ranks
#= line done
module purge 2> /dev/null; module load openmpi/4.1 2> /dev/null
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
mpirun -np $SLURM_NTASKS bash -c 'echo "rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $(hostname)"' | tee ranks-$SLURM_JOB_ID
echo "$(awk '{ print $6 }' ranks-$SLURM_JOB_ID | sort -u | wc -l) hosts, $(wc -l < ranks-$SLURM_JOB_ID) ranks"
mpirun true && echo done
