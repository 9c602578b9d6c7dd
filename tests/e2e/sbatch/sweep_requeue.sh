#!/bin/bash
#SBATCH --job-name=resume --array=1-3%2 --time=1 --signal=B:USR1@52 --requeue --open-mode=append
#SBATCH --output=resume-%A_%a.out
#= state COMPLETED 3
#= file resume-%j_2.out
#= once trial 2 from step 0
#= once checkpointed at step 5
#= once trial 2 from step 5
#= once trial 2 is done
state=resume-$SLURM_ARRAY_JOB_ID-$SLURM_ARRAY_TASK_ID.step
step=$(cat $state 2>/dev/null || echo 0)
echo "trial $SLURM_ARRAY_TASK_ID from step $step"
checkpoint() {
    kill $child
    echo 5 > $state
    echo "checkpointed at step 5"
    scontrol requeue ${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}
    exit 0
}
trap checkpoint USR1
if [ $step = 0 ]; then
    sleep 600 & child=$!
    wait $child
else
    echo "trial $SLURM_ARRAY_TASK_ID is done"
fi
