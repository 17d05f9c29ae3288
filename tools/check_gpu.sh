# The part of ./check --gpu, which sources it: builds with the CUDA executor, runs what needs a
# card, and writes down what ran. Convention: build-cuda/gpu holds what has passed (name, seconds)
# and one report per test, for the sources and the card named in `key`.

state=build-cuda/gpu
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
card=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1)
kind=gpu
[[ $sanitize ]] && kind=sanitize

sources() {
  find src tests cmake tools check CMakeLists.txt CMakePresets.json -type f -print0 |
    LC_ALL=C sort -z | xargs -0 sha1sum | sha1sum | cut -c1-12
}

remember() {  # reads what ctest says, writes down what passed and what was skipped, and hands it on
  local line skipped
  while IFS= read -r line; do
    # Tests that were skipped are none of them.
    if [[ $line =~ ^(.*tests\ failed\ out\ of\ )([0-9]+)$ ]]; then
      skipped=$(grep -c . "$state/skipped.$kind")
      line=${BASH_REMATCH[1]}$((BASH_REMATCH[2] - skipped))
    fi
    printf '%s\n' "$line"
    if [[ $line =~ Test\ +#[0-9]+:\ ([a-z0-9_]+)\ .*[\ .]Passed\ +([0-9.]+)\ sec ]]; then
      echo "${BASH_REMATCH[1]} ${BASH_REMATCH[2]}" >>"$state/passed"
    elif [[ $line =~ Test\ +#[0-9]+:\ ([a-z0-9_]+)\ .*Skipped ]]; then
      echo "${BASH_REMATCH[1]}" >>"$state/skipped.$kind"
    fi
  done
}

remaining() {  # ctest's arguments for what has not passed yet
  local passed
  passed=$(cut -d' ' -f1 "$state/passed" | paste -sd'|')
  printf '%s\n' --test-dir build-cuda -L "^$kind\$" ${passed:+-E "^($passed)\$"}
}

on_card() {
  local -a arguments
  mapfile -t arguments < <(remaining)
  # A few at a time: most of a test is the host's part, and the card is shared.
  ctest "${arguments[@]}" --output-on-failure --no-tests=error -j "$(((jobs + 3) / 4))" | remember
}

property() {  # property FILE NAME: the sum of a number that tests wrote into their report
  sed -n 's/.*"'"$2"'": "\{0,1\}\([0-9]*\)"\{0,1\},\{0,1\}$/\1/p' "$1" 2>/dev/null |
    awk '{ sum += $1 } END { if (NR) print sum }'
}

write_results() {
  local out=bench/results/gpu_tests.md commit name seconds report
  commit=$(git rev-parse --short=12 HEAD 2>/dev/null) &&
    [[ -n $(git status --porcelain -- src tests cmake CMakeLists.txt check) ]] &&
    commit+=" with changes"
  {
    echo "# Tests on a card"
    echo
    echo "Written by \`./check --gpu\`: the last run on a real card. Whoever changes" \
      "src/exec/cuda runs it again and commits this file."
    echo
    echo "- commit: ${commit:-${TESSERA_COMMIT:-unknown}} (sources $(cut -d' ' -f1 "$state/key"))"
    echo "- date: $(date -u +%Y-%m-%dT%H:%MZ), duration:" \
      "$(awk '{ sum += $1 } END { print sum }' "$state/wall") s of builds and tests"
    build-cuda/tessera version --verbose | sed -n -E '2,${s/^(.{14}) /- \1: /; s/ +: /: /; p}'
    echo "- driver of the system:" \
      "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -1)"
    echo
    echo "A test is one program with one filter; 'cases' are what it went through: op cases times" \
      "element types, layouts, goldens times element types, kills."
    echo
    echo "| test | seconds | tests of the program | cases | outcome |"
    echo "|---|---|---|---|---|"
    while read -r name seconds; do
      report=$state/$name.json
      echo "| $name | $seconds | $(sed -n '2s/[^0-9]//gp' "$report" 2>/dev/null) |" \
        "$(property "$report" cases) | passed |"
    done < <(sort "$state/passed")
    while read -r name; do
      echo "| $name | | | | not run |"
    done < <(cat "$state"/skipped.* | sort -u)
    while read -r name; do
      echo "| $name | | | | FAILED |"
    done < <(cat "$state"/failed.* | sort -u)
  } >"$out"
  echo "check: wrote $out"
}

if [[ ! $nvcc ]]; then
  not_run "the tests on a card" "nvcc was not found (docs/cuda.md says what is needed)"
elif [[ ! $card ]]; then
  not_run "the tests on a card" "nvidia-smi shows no card here"
else
  export PATH=$(dirname "$nvcc"):$PATH
  key="$(sources) $card"
  [[ $again || $(cat "$state/key" 2>/dev/null) != "$key" ]] && rm -rf "$state"
  mkdir -p "$state"
  echo "$key" >"$state/key"
  touch "$state/passed" "$state/skipped.$kind" "$state/failed.$kind" "$state/wall"
  if phase "build (cuda)" tools/build.sh cuda build-cuda tessera ops_test exec_test cuda_test \
      run_test parallel_test app_test nccl; then
    mapfile -t arguments < <(remaining)
    count=$(ctest "${arguments[@]}" -N | sed -n 's/^Total Tests: //p')
    before=$(grep -c . "$state/passed")
    ((before)) &&
      summary+=("$(printf '%-13s  %s' "ok  earlier" \
        "$before test programs on this card, of the same sources (--again forgets them)")")
    : >"$state/skipped.$kind"
    if ((count)); then
      name="tests on the card ($card)"
      [[ $sanitize ]] && name="op cases under compute-sanitizer ($card)"
      phase "$name" on_card
      while read -r skipped; do
        not_run "$skipped" "it said why, above"
      done <"$state/skipped.$kind"
    elif [[ $sanitize ]] && ! grep -q '^memcheck' "$state/passed"; then
      not_run "op cases under compute-sanitizer" "compute-sanitizer was not found beside nvcc"
    fi
    mapfile -t arguments < <(remaining)
    ctest "${arguments[@]}" -N | sed -n 's/^ *Test *#[0-9]*: //p' |
      grep -vxFf "$state/skipped.$kind" >"$state/failed.$kind"
    echo "$SECONDS" >>"$state/wall"
    write_results
  fi
fi
