#!/bin/bash -l
#SBATCH --job-name=bootstrap
#SBATCH --array=1-2
#SBATCH --cpus-per-task=2
#SBATCH --mem=100M
#SBATCH --mail-type=NONE
#SBATCH --output=r-%A_%a.out
#= state COMPLETED 2
#= file r-%j_2.out
#= line R runs boot\.R with seed 2 on 2 threads
#= line no modules here
unset -f module 2> /dev/null
module load R/4.2.1 2> /dev/null || echo "no modules here"
module purge > /dev/null 2>&1
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
srun --ntasks=1 bin/Rscript --vanilla boot.R $SLURM_ARRAY_TASK_ID
