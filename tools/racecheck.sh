#!/usr/bin/env bash
# Runs a program under compute-sanitizer's racecheck:
#
#   tools/racecheck.sh SANITIZER PROGRAM ARGUMENT...
#
# Fails where the program fails, where racecheck itself does, and where a hazard lies in a kernel of
# our own. Hazards inside kernels of NVIDIA's libraries are counted and passed over: cuBLASLt's
# products of eight bits have some, their results are right, and nobody here can mend them. (To
# leave such kernels out of the check is no way: the tool then fails to run them.)
#
# Now and then the tool reports a hazard and leaves the place of both accesses empty, so that nobody
# can say whose it is. Then the program runs again, three times at most, and a run without such
# reports decides; a program that has none fails.
set -uo pipefail
sanitizer=$1
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT
libraries='nvjet|cudnn|cutlass|xmma|cublas'
# A hazard is "Race reported between ... access at KERNEL+0x...", or "... hazard detected at ...".
hazard='^=+ .*(Race reported between|hazard detected at)'
for run in 1 2 3; do
  "$sanitizer" --tool racecheck --print-limit 10000 --report-api-errors no "$@" >"$log" 2>&1
  status=$?
  nameless=$(grep -E "$hazard" "$log" | grep -cE ' at *$')
  ((nameless)) || break
  echo "racecheck: run $run: $nameless hazards without a place"
done
hazards=$(grep -cE "$hazard" "$log")
ours=$(grep -E "$hazard" "$log" | grep -cvE "$libraries")
summary=$(grep -cE '^=+ RACECHECK SUMMARY' "$log")
if ((status || ours || !summary || hazards >= 10000)) ||
    grep -q 'Internal Sanitizer Error' "$log"; then
  cat "$log"
  echo "racecheck: FAILED: the program ended with $status, $ours of $hazards hazards are in" \
    "kernels of our own or have no place"
  exit 1
fi
grep -E '^\[|no card here' "$log"
echo "racecheck: ok, $hazards hazards, all of them inside libraries"
