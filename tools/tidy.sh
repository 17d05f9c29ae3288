#!/usr/bin/env bash
# Runs clang-tidy with the checks of .clang-tidy: tools/tidy.sh [FILE...] (default: every source of
# src).
#
# It reads the compile commands of the release preset, file by file, from a folder of its own
# (build-tidy), where nothing is built.
#   TESSERA_JOBS=N   look at N files at a time (default: one per core)
set -euo pipefail
cd "$(dirname "$0")/.."

command -v clang-tidy >/dev/null || { echo "tidy: clang-tidy is not here; ./setup --fuzz installs it" >&2; exit 1; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
cmake --preset release -B build-tidy -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DCMAKE_UNITY_BUILD=OFF >"$log" 2>&1 || { cat "$log" >&2; exit 1; }

files=("$@")
if ((${#files[@]} == 0)); then
  # Sources that this machine compiles: the database leaves out back ends that are not here.
  # Of CUDA clang 14 knows too little.
  mapfile -t files < <(sed -n 's/^ *"file": "\(.*\)",\{0,1\}$/\1/p' build-tidy/compile_commands.json | grep "^$PWD/src/.*\.cpp\$" | sort -u)
fi
((${#files[@]})) || { echo "tidy: no sources in build-tidy/compile_commands.json" >&2; exit 1; }
# Flags of g++ that clang does not know are no finding.
printf '%s\0' "${files[@]}" |
  xargs -0 -n 4 -P "${TESSERA_JOBS:-$(nproc)}" clang-tidy -p build-tidy --quiet --extra-arg=-Wno-unknown-warning-option 2>"$log" || {
  grep -v 'warnings\{0,1\} generated\|Suppressed\|^Use -' "$log" >&2 || true
  echo "tidy: findings above; .clang-tidy lists the checks" >&2
  exit 1
}
echo "tidy: ${#files[@]} files, no findings"
