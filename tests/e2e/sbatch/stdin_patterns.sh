#!/bin/bash
#SBATCH --job-name=pattern
#SBATCH --array=4-6:2
#SBATCH --nodes=2 --ntasks=3
#SBATCH --output=%x-%A/%a/batch-%N.txt
#SBATCH --error=%x-%A/%a/errors.txt
#SBATCH --export=NONE
#= submit job=$(LOGIN_ONLY=1 sbatch --parsable --hold < stdin_patterns.sh) && mkdir -p pattern-$job/{4,6}/tasks && scontrol release $job && echo $job
#= state COMPLETED 2
#= file pattern-%j/6/report.txt
#= line hidden variable: none
#= line step without --export: none
#= line step with --export=ALL: set here
#= line task 2 of 3, step 2, element 6
#= line files of tasks: 000 001 002
#= line errors: 1
here=pattern-$SLURM_ARRAY_JOB_ID/$SLURM_ARRAY_TASK_ID
exec > $here/report.txt
echo "hidden variable: ${LOGIN_ONLY:-none}"
export MARK="set here"
srun -n1 -N1 bash -c 'echo "step without --export: ${MARK:-none}"'
srun -n1 -N1 --export=ALL bash -c 'echo "step with --export=ALL: ${MARK:-none}"'
export SLURM_EXPORT_ENV=ALL
srun -o "$here/tasks/%s-%3t.txt" bash -c 'echo "task $SLURM_PROCID of $SLURM_NTASKS, step $SLURM_STEP_ID, element $SLURM_ARRAY_TASK_ID"'
cat $here/tasks/2-*.txt
echo "files of tasks: $(cd $here/tasks && ls | sed 's/2-\(.*\).txt/\1/' | tr '\n' ' ' | sed 's/ $//')"
echo "one error" >&2
echo "errors: $(wc -l < $here/errors.txt)"
