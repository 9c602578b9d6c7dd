# On the login node: a job that waits is changed, held, released.
set -u
report=changed-report.txt
job=$(sbatch --parsable -H -J first --comment=normal_prio -N2 -t 10 -o /dev/null --wrap true)
exec 3> $report
echo "before $(squeue -h -j $job -o '%j %k %l')" >&3
scontrol update JobId=$job JobName=second Comment=low_prio TimeLimit=20 NumNodes=1
echo "after $(squeue -h -j $job -o '%j %k %l')" >&3
for name in JobName Comment NumNodes TimeLimit; do
    scontrol -o show job $job | grep -oE "\b$name=[^ ]+" | head -1
done | paste -sd' ' >&3
echo "held $(squeue -h -j $job -o %r) $(scontrol -o show job $job | grep -oE 'Priority=0')" >&3
scontrol update JobId=999999 TimeLimit=5 2> /dev/null
echo "update of nothing ended with $?" >&3
scontrol release $job
until [ "$(sacct -n -X -P -j $job -o State)" = COMPLETED ]; do sleep 0.5; done
sbatch --parsable changed.sh $report
