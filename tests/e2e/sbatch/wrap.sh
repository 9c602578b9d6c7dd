#= submit sbatch --parsable -n 2 -J wrapped --wrap 'srun -l echo task; echo "$SLURM_JOB_NAME once"'
#= state COMPLETED
#= line wrapped once
#= line 0: task
#= line 1: task
#= once wrapped.*
