# The part that the scripts of this folder share: they say what held, and run lines of the README.
# Convention: the caller sets `transcript` and `work`; `failed` becomes 1 when something did not
# hold.
failed=0
say() { echo "$*" | tee -a "$transcript"; }
hold() {  # hold WHAT CONDITION...
  local what=$1
  shift
  if "$@"; then say "held: $what"; else say "FAILED: $what"; failed=1; fi
}
readme_run() {  # readme_run BATCH: writes the run.toml of the README's lines, a short one
  cat >"$work/run.toml" <<TOML
model = { name = "vit_micro", depth = 1 }
data = { train_size = 96, test_size = 16 }
batch = { global = $1 }
run = { threads = 1, steps = 6, eval_every = 0 }
TOML
}
# readme_line PATTERN SED: the README's command that has it, changed by SED; status 1: none has
readme_line() {
  local line
  line=$(grep -m1 -e "$1" README.md | sed "s| *#.*||; s|run.toml|$work/run.toml|; $2") || return 1
  [[ $line ]] && echo "$line"
}
