#!/bin/bash
# On the login node: prepare, train twice, evaluate what trained well, clean up in any case.
set -euo pipefail
jid() { sbatch "$@" | awk '{print $NF}'; }  # "Submitted batch job 42"
prep=$(jid -J prep -o /dev/null --wrap "mkdir -p pipeline-data")
one=$(jid -J train_1 -o /dev/null --dependency=afterok:$prep --wrap "touch pipeline-data/model_1")
two=$(jid -J train_2 -o /dev/null --dependency=afterok:$prep --wrap "python3 -c 'raise SystemExit(9)'")
eval_=$(jid -J eval -o /dev/null -d afterok:$one:$two --kill-on-invalid-dep=yes --wrap "touch pipeline-data/score")
cleanup=$(jid -J cleanup -o /dev/null -d afterany:$one,afterany:$two --wrap "rm -r pipeline-data")
while squeue -h -j "$prep,$one,$two,$eval_,$cleanup" -t PENDING,RUNNING,COMPLETING,CONFIGURING 2>/dev/null | grep -q .; do sleep 1; done
sacct -j $prep,$one,$two,$eval_,$cleanup -X --noheader --format=JobName%-10,State%-12 | sed 's/ *$//;s/  */ /g' > pipeline-report.txt
echo "report of $(sacct -n -X -P -j $prep -o State | grep -c COMPLETED) COMPLETED" >> pipeline-report.txt
sbatch --parsable pipeline.sh pipeline-report.txt
