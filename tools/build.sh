#!/usr/bin/env bash
# Configures and builds, for ./demo and ./check: tools/build.sh PRESET FOLDER [TARGET...]
#
# A folder made here compiles two dozen sources at a time (a unity build: less than half of the
# time, but a file changed means two dozen); `cmake --preset release` does not. The choice stays in
# the folder: cmake -DCMAKE_UNITY_BUILD=OFF build
#
# On a terminal ninja shows its own line; elsewhere there is one line every 30 seconds, so that
# nobody thinks it hangs. ccache is used where it is.
#   TESSERA_JOBS=N   compile N files at a time (default: one per core)
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1 folder=$2
shift 2
launcher=()
command -v ccache >/dev/null &&
  launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
unity=()
[[ $preset != fuzz && $preset != debug && ! -e $folder/CMakeCache.txt ]] &&
  unity=(-DCMAKE_UNITY_BUILD=ON)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
cmake --preset "$preset" "${launcher[@]}" "${unity[@]}" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }

run=(ninja -C "$folder" -j "${TESSERA_JOBS:-$(nproc)}" "$@")
if [[ -t 1 ]]; then
  "${run[@]}"
  exit
fi
rarely() {  # what is not progress (errors above all), and of the progress a line every 30 s
  local next=$((SECONDS + 30)) line
  while IFS= read -r line; do
    case $line in
      '@'*)
        if ((SECONDS >= next)); then
          printf '  building: %s\n' "${line#@}"
          next=$((SECONDS + 30))
        fi
        ;;
      'ninja: Entering directory'* | 'ninja: no work to do.') ;;
      *) printf '%s\n' "$line" ;;
    esac
  done
}
NINJA_STATUS='@%p (%f of %t) ' "${run[@]}" 2>&1 | rarely
