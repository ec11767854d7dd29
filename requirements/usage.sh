# Sourced by the shell scripts, before they do anything:
#   source requirements/usage.sh && usage 'tnews|csl|--.*' "$@"
# -h and --help print the script's head comment, as far as it goes. A word that
# does not match the regular expression ends the script with status 2.
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

refuse() { # word, explanation
  echo "ERROR: $1: ${2:-unknown}; see bash ${0##*/} --help" >&2
  exit 2
}
