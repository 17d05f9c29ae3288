#!/usr/bin/env bash
# The same suite of rank tests over MPICH, and trainings of both builds side by side:
#
#   tests/cluster/mpich.sh BUILD BUILD-MPICH [TRANSCRIPT]     exit status 0: everything held; 77:
#                                                             there is no MPICH here
#
# BUILD-MPICH: of `cmake --preset mpich`, with the targets tessera, comm_mpi_test, app_test and
# cluster_test.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${1:?the build folder}") mpich=$(realpath "${2:?the build folder of MPICH}")
transcript=${3:-/dev/null}
command -v mpirun.mpich >/dev/null || {
  echo "mpich.sh: not run: mpirun.mpich not found (Debian: mpich, libmpich-dev)"
  exit 77
}
work=$(mktemp -d /tmp/tessera_mpich.XXXXXX)
trap 'rm -rf "$work"' EXIT
export OMPI_MCA_rmaps_base_oversubscribe=1  # four ranks wherever this runs
. tests/cluster/held.sh
tiny=(--model vit_micro --set model.depth=1 --set data.train_size=512 --set data.test_size=32
  --global-batch 32 --threads 1 --set run.eval_every=0 --set checkpoint.every=20
  --set parallel.hang_s=8 --quiet)
train() { "$1/tessera" train "${tiny[@]}" "${@:2}"; }
same() { cmp -s "$work/$1/weights.safetensors" "$work/$2/weights.safetensors"; }
reached() { [[ -e $1/metrics.jsonl ]] && (($(grep -c '"kind":"step"' "$1/metrics.jsonl") >= $2)); }
wait_for() {  # wait_for SECONDS CONDITION...
  local until=$((SECONDS + $1))
  shift
  until "$@"; do ((SECONDS < until)) || return 1; sleep 0.2; done
}
pid_of() {
  cat "$work/$1"/.ranks-*/rank-"$2" "$work"/.ranks-*/rank-"$2" 2>/dev/null |
    grep -o '"pid":[0-9]*' | head -1 | cut -d: -f2
}

say "$(mpirun.mpich --version | sed -n 's/ *Version: *//p' | head -1 | sed 's/^/MPICH /')," \
  "$("$mpich/tessera" version), $(date -u +%F)"
say; say "== the suite of rank tests"
status=0; ctest --test-dir "$mpich" --output-on-failure --no-tests=error -R '^comm_mpi_' \
  >"$work/suite" 2>&1 || status=$?
tee -a "$transcript" <"$work/suite"
hold "all of them (ctest ends with $status)" test $status = 0

say; say "== ranks, failures and restarts of the program, with MPICH's mpirun first in PATH"
mkdir "$work/bin"
# A link would not find hydra_pmi_proxy.
printf '#!/bin/sh\nexec %s "$@"\n' "$(command -v mpirun.mpich)" >"$work/bin/mpirun"
chmod +x "$work/bin/mpirun"
program() {  # program TEST FILTER
  local status=0
  PATH=$work/bin:$PATH "$mpich/tests/$1" --gtest_brief=1 --gtest_filter="$2" >"$work/program" \
    2>&1 || status=$?
  tee -a "$transcript" <"$work/program"
  return $status
}
hold "app_test Ranks, Failures" program app_test 'Ranks.*:Failures.*'
hold "cluster_test Restarts, Memory, LostHost" program cluster_test 'Restarts.*:Memory.*:LostHost.*'

say; say "== trainings of both MPIs have the same bits"
train "$build" --steps 60 --np 2 --out "$work/open" 2>&1 | tee -a "$transcript"
train "$mpich" --steps 60 --np 2 --out "$work/mpich" 2>&1 | tee -a "$transcript"
hold "dp 2" same open mpich
train "$build" --steps 40 --np 4 --tp 2 --zero 2 --out "$work/open4" 2>&1 | tee -a "$transcript"
train "$mpich" --steps 40 --np 4 --tp 2 --zero 2 --out "$work/mpich4" 2>&1 | tee -a "$transcript"
hold "dp 2 x tp 2, zero 2" same open4 mpich4

say; say "== a request to stop, and a rank that is killed"
train "$mpich" --steps 400 --np 2 --out "$work/whole" 2>&1 | tee -a "$transcript"
"$mpich/tessera" train "${tiny[@]}" --steps 400 --np 2 --out "$work/stop" >"$work/stop.log" 2>&1 &
job=$!
hold "the job has begun" wait_for 180 reached "$work/stop" 30
kill -TERM $job
status=0; wait $job || status=$?
hold "exit status 75 (it is $status)" test $status = 75
"$mpich/tessera" train "${tiny[@]}" --steps 400 --np 2 --restarts 2 --out "$work/stop" \
  >"$work/stop.log" 2>&1 &
job=$!
hold "it goes on" wait_for 180 reached "$work/stop" 150
kill -9 "$(pid_of stop 1)"
status=0; wait $job || status=$?
tee -a "$transcript" <"$work/stop.log"
hold "exit status 0 (it is $status)" test $status = 0
hold "the rank was named, and the job started again" grep -q "restart 1: in step" "$work/stop.log"
hold "the weights of a run that nobody disturbed" same stop whole

say; say "== mpirun.mpich itself"
status=0; mpirun.mpich -np 2 "$mpich/tessera" train "${tiny[@]}" --steps 60 --out "$work/plain" \
  2>&1 | tee -a "$transcript" || status=$?
hold "the same bits" same plain mpich

say
if ((failed)); then say "mpich.sh: FAILED"; else say "mpich.sh: everything held"; fi
exit $failed
