#!/usr/bin/env bash
# A real Slurm of two nodes on this machine, in a folder of its own, and what a training must do under it (root only):
#
#   tests/cluster/slurm.sh BUILD [TRANSCRIPT]     exit status 0: everything held; 77: there is no Slurm here
#
# srun over both nodes gives the bits of `--np`; sbatch with --signal=USR1@ saves, ends with 75 and goes on when it is requeued; a job of
# a partition with precedence preempts one that goes on afterwards; scancel loses nothing. Everything that was started ends with the script.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${1:?the build folder}")
transcript=${2:-/dev/null}
for tool in munged slurmctld slurmd sbatch srun scontrol; do
  PATH=$PATH:/usr/sbin command -v $tool >/dev/null || { echo "slurm.sh: not run: $tool not found (Debian: slurm-wlm, munge)"; exit 77; }
done
((EUID == 0)) || { echo "slurm.sh: not run: slurmd needs root"; exit 77; }
export PATH=$PATH:/usr/sbin
work=$(mktemp -d /tmp/tessera_slurm.XXXXXX)
chmod 755 "$work"
host=$(hostname -s)
daemons=()
failed=0

say() { echo "$*" | tee -a "$transcript"; }
run() { say "\$ $*"; "$@" 2>&1 | tee -a "$transcript"; return "${PIPESTATUS[0]}"; }
hold() {  # hold WHAT CONDITION...
  local what=$1
  shift
  if "$@"; then say "held: $what"; else say "FAILED: $what"; failed=1; fi
}
finish() {
  scancel --user=root 2>/dev/null || true
  sleep 1
  for ((i = ${#daemons[@]} - 1; i >= 0; --i)); do kill "${daemons[$i]}" 2>/dev/null || true; done
  for pid in "${daemons[@]}"; do wait "$pid" 2>/dev/null || true; done
  rm -rf "$work"
}
trap finish EXIT

start_cluster() {
  mkdir "$work/state" "$work/n1" "$work/n2" "$work/tmp-n1" "$work/tmp-n2" "$work/munge"
  dd if=/dev/urandom of="$work/munge/key" bs=1024 count=1 status=none
  chmod 400 "$work/munge/key"
  munged --foreground --force --key-file="$work/munge/key" --socket="$work/munge/socket" --pid-file="$work/munge/pid" \
    --log-file="$work/munge/log" --seed-file="$work/munge/seed" &
  daemons+=($!)
  cat >"$work/slurm.conf" <<CONF
ClusterName=tessera
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/%n
SlurmctldPidFile=$work/ctld.pid
SlurmdPidFile=$work/%n.pid
SlurmctldLogFile=$work/ctld.log
SlurmdLogFile=$work/%n.log
TmpFS=$work/tmp-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
ReturnToService=2
KillWait=30
SchedulerParameters=requeue_setup_env_fail,bf_interval=5,sched_interval=5
SlurmctldPort=16817
MpiDefault=pmix
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=17001 CPUs=2 State=UNKNOWN
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=17002 CPUs=2 State=UNKNOWN
PartitionName=low Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=60
PartitionName=high Nodes=n1,n2 MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
CONF
  export SLURM_CONF=$work/slurm.conf
  slurmctld -D >"$work/ctld.out" 2>&1 &
  daemons+=($!)
  for node in n1 n2; do
    slurmd -D -N $node >"$work/$node.out" 2>&1 &
    daemons+=($!)
  done
  for ((i = 0; i < 60; ++i)); do
    [[ $(sinfo -h -N -o %T 2>/dev/null | sort -u) == idle ]] && break
    sleep 0.5
  done
  run sinfo -N -o "%N %P %T %c"
}

state_of() { scontrol show job "$1" 2>/dev/null | sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p'; }
wait_for() {  # wait_for SECONDS CONDITION...
  local until=$((SECONDS + $1))
  shift
  until "$@"; do ((SECONDS < until)) || return 1; sleep 0.3; done
}
steps_in() { [[ -e $1/metrics.jsonl ]] && (($(grep -c '"kind":"step"' "$1/metrics.jsonl") >= $2)); }
in_state() { [[ $(state_of "$1") == "$2" ]]; }
same() { cmp -s "$1/weights.safetensors" "$2/weights.safetensors"; }
restarted() { (($(scontrol show job "$1" | sed -n 's/.*Restarts=\([0-9]*\).*/\1/p') >= $2)); }
