# Sourced by the shell scripts, before they do anything:
#   source albert/shell.sh && usage 'tnews|csl|--.*' "$@"
# -h and --help print the script's leading comment. An argument that does not
# match the regular expression ends the script with status 2.
usage() {
  local known=$1 word
  shift
  for word; do
    if [[ $word == -h || $word == --help ]]; then
      awk '/^#!/ { next } !sub(/^# ?/, "") { exit } { print }' "${0##*/}"
      exit
    fi
  done
  for word; do
    [[ $word =~ ^($known)$ ]] || refuse "$word"
  done
}

# Sets, by SIZE, `size`, `name` (of the released model), `max_batch` and
# `size_rate` (empty for tiny, whose rate is the task's).
read_size() {
  local -A sizes=(
    [tiny]="albert_tiny 64"
    [small]="albert_small_zh_google 64 1e-4"
    [base]="albert_base_zh 32 3e-5"
    [large]="albert_large_zh 24 2e-5"
    [xlarge]="albert_xlarge_zh_183k 24 2e-5"
    [xxlarge]="albert_xxlarge_zh_google 16 1e-5")
  size=${SIZE:-tiny}
  [[ -n ${sizes[$size]-} ]] || refuse "SIZE=$size" \
    "it can be tiny, small, base, large, xlarge or xxlarge"
  read -r name max_batch size_rate <<<"${sizes[$size]}"
}

# Sets `model`, a folder: MODEL, which may also be the name of a released model,
# or the released model of that size. Without MODEL and SIZE, if albert_tiny
# cannot be downloaded, it is the starter, and `notice` is a text to show above
# the results.
find_model() {
  notice= model=${MODEL:-${MODEL_DIR-}}
  if [[ -n $model && -e $model ]]; then return; fi
  if [[ -n $model${SIZE-} ]]; then
    model=${model:-$name}
    "$PYTHON" -m albert.download --item="$model" --target="$model"
    return
  fi
  model=$("$PYTHON" -m albert.download --or_starter --item="$name" \
    --target="$name")
  if [[ $model != "$name" ]]; then
    notice="
======================================================================
  $name cannot be downloaded. These are the results of $model,
  the small model bundled with this project, not those of $name.
======================================================================"
    echo "$notice"
  fi
}

# Prints NAME = VALUE of a results file, as "VALUE".
result() { # name, file
  awk -v name="$1" '$1 == name { print $3 }' "$2"
}

refuse() { # word, explanation
  echo "ERROR: $1: ${2:-unknown}; see bash ${0##*/} --help" >&2
  exit 2
}
