# On the login node: a sweep, what comes after it, and the loops by which scripts follow their jobs.
set -eu
report=chain-report.txt
exec 3>$report
first=$(sbatch --parsable -H -J sweep -a 0-3%2 -o 'sweep-%A_%a.out' --wrap='test $SLURM_ARRAY_TASK_ID != 2')
good=$(sbatch --parsable -J corr -a 0-3 -d aftercorr:$first --kill-on-invalid-dep=yes -o /dev/null --wrap=true)
any=$(sbatch --parsable -J any -d afterany:$first,singleton -o /dev/null --wrap='exit 4')
never=$(sbatch --parsable -J never -d afterok:$first --kill-on-invalid-dep=no -o /dev/null --wrap=true)
late=$(sbatch --parsable -J late --begin=now+1hour -o /dev/null --wrap=true)
soon=$(sbatch --parsable -J soon --begin="$(date +%Y-%m-%dT%H:%M:%S)" -o /dev/null --wrap=true)
squeue -h -j $late -o '%j %T %r' >&3
echo "held $(squeue -h -j $first -o '%i %t %r' | sed "s/$first/A/")" >&3
echo "record $(scontrol show job -o $late | grep -oE '(JobState|Reason|Requeue|Restarts)=[A-Za-z0-9]+' | tr '\n' ' ')end" >&3
scontrol release $first
while true; do  # as workflow programs wait
    left=0
    while IFS='|' read -r id state; do
        case $state in PENDING | RUNNING | COMPLETING | CONFIGURING) left=$((left + 1)) ;; esac
    done < <(squeue -h -o '%i|%T' -j $first,$good,$any,$soon)
    [ $left -gt 0 ] || break
    sleep 1
done
echo "never $(squeue -h -j $never -o '%t %r')" >&3
scancel -n never -u "$(id -un)"
scancel -n late
sacct -X -n -j $first -o JobID%24,State%12,ExitCode | sed "s/$first/A/;s/  */ /g;s/^ /sweep /;s/ $//" | sort >&3
sacct -X -n -P -j $good -o JobName,State | sort | uniq -c | sed 's/^ */corr /' >&3
sacct -X -n -P -j $any --format=JobName,State,ExitCode >&3
sacct -X -n -P -j $soon,$late,$never -o JobName,State | sort >&3
sacct -n -j ${first}_1 -o JobID%16,JobName%4 | sed "s/$first/A/;s/^ *//;s/  */ /g;s/ $//" >&3
code=0
sbatch --wait --parsable -o /dev/null --wrap='exit 6' >/dev/null || code=$?
echo "sbatch --wait ended with $code" >&3
exec 3>&-
sbatch --parsable chain_arrays.sh $report
