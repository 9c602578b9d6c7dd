#!/bin/bash
#SBATCH -J pool -N 2 -n 4 -c 1 -t 10
#= state COMPLETED
#= line 12 of 12
#= line at most 4 at once
# as GNU parallel does: as many steps at once as there are tasks
export here=pool-$SLURM_JOB_ID
mkdir $here
seq 12 | xargs -P $SLURM_NTASKS -I{} srun --exclusive -N1 -n1 -c1 --mem-per-cpu=10M bash -c \
    'touch $here/run-{}; ls $here/run-* | wc -l > $here/count-{}; sleep 0.3; mv $here/run-{} $here/done-{}'
echo "$(ls $here/done-* | wc -l) of 12"
most=$(cat $here/count-* | sort -n | tail -1)
[ $most -le 4 ] && echo "at most 4 at once" || echo "$most at once"
