# On the login node: allocations with a command, their codes, and steps that are signalled there.
report=salloc-report.txt
exec 3>$report
salloc -Q -N2 -n2 srun -l bash -c 'echo "on $SLURM_NNODES hosts"; exit $((SLURM_PROCID + 3))' >&3 2>/dev/null
echo "salloc of srun ended with $?" >&3
salloc -Q -n1 bash -c 'test -n "$SLURM_JOB_ID" && test "$SLURM_NTASKS" = 1 && exit 9'
echo "salloc of a shell ended with $?" >&3
salloc -Q -n1 -t 1 no-such-program 2>/dev/null
echo "salloc of nothing ended with $?" >&3
salloc -I1 -N64 true 2>/dev/null
echo "salloc beyond the cluster ended with $?" >&3
cat > signalled.sh <<'X'
#!/bin/bash
trap 'echo batch got USR1; kill %1' USR1
srun -n2 -N2 -l bash -c 'trap "echo step got USR2; exit 0" USR2; touch ready-$SLURM_PROCID-$SLURM_JOB_ID; while :; do sleep 0.1; done'
code=$?
sleep 600 &
echo "srun ended with $code"
wait $!
true
X
job=$(sbatch --parsable -n2 -N2 -o signalled.out signalled.sh)
until [ -e ready-0-$job ] && [ -e ready-1-$job ]; do sleep 0.2; done
scancel --signal=USR2 $job
until grep -q 'srun ended' signalled.out; do sleep 0.2; done
scancel --signal=USR1 --batch $job
until [ -z "$(squeue -h -j $job -o %i -t R,CG)" ]; do sleep 0.5; done
cat signalled.out >&3
sacct -n -P -j $job -o JobID,State,ExitCode | sed "s/$job/J/" >&3
srun -Q -n2 bash -c 'exit $((SLURM_PROCID * 7))' 2>/dev/null
echo "srun ended with $?" >&3
exec 3>&-
sbatch --parsable salloc_codes.sh $report
