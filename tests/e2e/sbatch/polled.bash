# On the login node: the loops by which scripts follow a job until it is COMPLETED.
report=polled-report.txt
exec 3> $report
job=$(sbatch --parsable -J polled -o /dev/null --wrap 'until [ -e polled-$SLURM_JOB_ID.go ]; do sleep 0.1; done')
while true; do
    state=$(squeue -h -j $job -o %T 2> /dev/null)
    [ "$state" = RUNNING ] && echo "it ran" >&3 && touch polled-$job.go && break
    sleep 0.2
done
while [[ $(squeue -h -j $job -o %t 2> /dev/null) =~ ^(PD|CF|R|CG)$ ]]; do sleep 0.5; done
for ((i = 0; i < 120; i++)); do
    state=$(sacct -j $job -X --noheader -o State%20 | tr -d ' ')
    case $state in
    COMPLETED) break ;;
    FAILED* | CANCELLED* | TIMEOUT) break ;;
    esac
    sleep 0.5
done
echo "then $state $(sacct -j $job -X -n -o ExitCode%8 | tr -d ' ')" >&3
bad=$(sbatch --parsable -o /dev/null --wrap 'exit 7')
until sacct -j $bad -X -n -P -o State | grep -qE 'COMPLETED|FAILED'; do sleep 0.5; done
echo "and $(sacct -j $bad -X -n -P -o State,ExitCode | tr '|' ' ')" >&3
squeue -h -t PD,R -j $job | grep -q . || echo "gone from the queue" >&3
sbatch --parsable polled.sh $report
