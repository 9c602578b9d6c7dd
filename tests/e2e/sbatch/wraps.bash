# On the login node: one job for each learning rate, by --wrap and by a here-document.
set -eu
export SECRET=others SEED=1
jobs=()
for lr in 0.1 0.01; do
    jobs+=($(LR=$lr sbatch --parsable -J run_$lr -o wraps-$lr.txt --export=ALL,LR --wrap='echo "lr $LR seed $SEED name $SLURM_JOB_NAME"'))
done
jobs+=($(sbatch --parsable --export=NONE -o wraps-none.txt --wrap='echo "no variable of others${SECRET:+: $SECRET}"'))
jobs+=($(sbatch --parsable <<END
#!/bin/bash
#SBATCH -o wraps-typed.txt
seq 42 | wc -l | sed 's/\$/ lines in/'
END
))
sbatch --parsable -d afterok:$(IFS=:; echo "${jobs[*]}") wraps.sh
