# Sourced by every script here. Finds a Python 3.7 for TensorFlow 1.15, else a
# Python 3.9 to 3.11 for TensorFlow 2.15, installs the requirements once (into
# .venv or .venv-tf2) and puts that python first on PATH, also as $PYTHON. An
# active environment that has one of these TensorFlows is used as it is.
#
# Settings, none of them needed:
#   ALBERT_PYTHON        an interpreter to use; no other one is tried
#   ALBERT_PLATFORM      tf1 or tf2; the other one is not tried
#   ALBERT_REQUIREMENTS  one more requirements file, relative to this folder
# Ends with status 69 where no fitting Python is found, 1 where set-up fails.

# Prints PLATFORM PYTHON. A subshell: it leaves nothing behind in the caller.
albert_python() (
  set +e
  trap 'exit 130' INT TERM
  root=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
  pyenv=${PYENV_ROOT:-${HOME-}/.pyenv}
  machine=$(uname -sm)
  export PIP_DISABLE_PIP_VERSION_CHECK=1

  say() { echo "$*" >&2; }
  fail() { say "ERROR: $1"; exit "${2:-1}"; }
  wanted() { [[ ${ALBERT_PLATFORM:-$1} == "$1" ]]; }

  choose_platform() {
    platform=$1
    case $platform in
      tf1)
        tensorflow="TensorFlow 1.15" versions="3.7" venv=$root/.venv
        requirements=("$root/requirements.txt") ;;
      tf2)
        tensorflow="TensorFlow 2.15" versions="3.11 3.10 3.9"
        venv=$root/.venv-tf2 requirements=("$root/requirements/tf2.txt") ;;
      *) fail "ALBERT_PLATFORM=$platform: it can be tf1 or tf2" ;;
    esac
    if [[ -n ${ALBERT_REQUIREMENTS-} ]]; then
      [[ -f $root/$ALBERT_REQUIREMENTS ]] || fail "ALBERT_REQUIREMENTS=\
$ALBERT_REQUIREMENTS: there is $(cd "$root" && echo requirements/*.txt)"
      requirements+=("$root/$ALBERT_REQUIREMENTS")
    fi
  }

  # Fails where $1 does not start, as pyenv's shim of an unselected version.
  version_of() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
  }
  can_make_venv() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

  # Prints the platform whose TensorFlow $1 imports, and the path of $1. Not for
  # the venvs made here, which ready() knows: this import takes seconds.
  own_tensorflow() {
    "$1" -c 'import importlib.util, os, sys
if (importlib.util.find_spec("tensorflow") is None
    or os.path.dirname(os.path.realpath(sys.prefix)) == sys.argv[1]):
  sys.exit(1)
import tensorflow
print({"1.15": "tf1", "2.15": "tf2"}[tensorflow.__version__[:4]],
      sys.executable)' "$root" 2>/dev/null
  }

  # $venv/installed has a checksum for each set of requirements that is there.
  checksum() { cat "$@" | cksum; }
  installed() { grep -qsxF "$(checksum "$@")" "$venv/installed"; }
  ready() {
    local version
    [[ ! -e $venv/unfinished ]] && installed "${requirements[0]}" &&
      installed "${requirements[@]}" &&
      version=$(version_of "$venv/bin/python") &&
      [[ -z ${ALBERT_PYTHON-} || $(version_of "$ALBERT_PYTHON") == "$version" ]]
  }

  candidates() {
    if [[ -n ${ALBERT_PYTHON-} ]]; then type -P "$ALBERT_PYTHON"; return; fi
    type -ap "python$1"
    if [[ $platform == tf2 ]]; then type -ap python3; fi
    ls "$pyenv/versions/$1".*/bin/"python$1" 2>/dev/null
  }

  fetch_with_conda() {
    local conda=${CONDA_EXE:-$(type -P conda)} prefix=$root/.conda-py37 log
    [[ $platform == tf1 && -n $conda ]] || return
    if ! can_make_venv "$prefix/bin/python"; then
      say "Fetching Python 3.7 with conda into .conda-py37"
      rm -rf "$prefix"
      if ! log=$("$conda" create -y -q -p "$prefix" python=3.7 2>&1); then
        say "That failed:" && tail -n 5 <<<"$log" >&2
        return 1
      fi
    fi
    echo "$prefix/bin/python"
  }

  fetch_with_uv() {
    local version
    type -P uv >/dev/null || return
    for version in $versions; do
      uv python find --system "$version" && return
      uv python install "$version" >&2 &&
        uv python find --system "$version" && return
    done 2>/dev/null
    return 1
  }

  find_python() {
    local version python
    [[ $platform == tf2 || $machine == "Linux x86_64" ]] || return
    for version in $versions; do
      while read -r python; do
        [[ $(version_of "$python") == "$version" ]] || continue
        if can_make_venv "$python"; then echo "$python" && return; fi
        say "$python lacks the venv module" \
          "(Debian, Ubuntu: apt install python$version-venv)"
      done < <(candidates "$version")
    done
    [[ -z ${ALBERT_PYTHON-} ]] || return
    # Once TensorFlow 2.15 is set up, do not try to fetch 3.7 at each start.
    if wanted tf2 && (choose_platform tf2 && ready); then return 1; fi
    fetch_with_conda || fetch_with_uv
  }

  adapted_requirements() {
    local name=tensorflow-cpu
    if [[ $machine != "Linux x86_64" ]]; then
      name=tensorflow
    elif nvidia-smi -L 2>/dev/null | grep -q GPU; then
      name='tensorflow[and-cuda]'
    fi
    sed "s/^tensorflow-cpu==/$name==/" "${requirements[@]}"
  }

  install() {
    [[ -x $venv/bin/python ]] || "$1" -m venv "$venv" || return
    # Horovod is built against the TensorFlow that is there.
    if [[ ${requirements[*]} == *horovod* ]]; then
      export PIP_NO_BUILD_ISOLATION=0
    fi
    adapted_requirements >"$venv/requirements.txt" &&
      # An old pip does not know the tags of current wheels.
      "$venv/bin/python" -m pip install -q --upgrade pip &&
      "$venv/bin/python" -m pip install -q -r "$venv/requirements.txt"
  }

  set_up() (
    if type -P flock >/dev/null && ! flock -n 9; then
      say "Waiting for another script that sets up ${venv##*/}"
      flock 9
    fi
    if ready; then exit; fi
    # What pip was interrupted in unpacking, it would take for whole.
    if [[ -e $venv/unfinished ]] || ! old=$(version_of "$venv/bin/python"); then
      rm -rf "$venv"
      old=
    fi
    new=$(version_of "$1")
    if [[ ${old:-$new} != "$new" ]]; then
      fail "$venv has Python $old, not $new: remove that folder and try again"
    fi
    what="${venv##*/} (Python $new, $tensorflow)"
    say "Setting up $what; takes a few minutes the first time"
    mkdir -p "$venv" && touch "$venv/unfinished" || exit
    log=$(install "$1" 2>&1) || {
      # Where pip itself gave up, what was complete before still is.
      if [[ $? -lt 128 && -e $venv/installed ]]; then rm "$venv/unfinished"; fi
      say "ERROR: setting up $what failed:" && tail -n 5 <<<"$log" >&2
      if [[ $platform == tf1 ]] && wanted tf2; then
        say "ALBERT_PLATFORM=tf2 tries TensorFlow 2.15 instead"
      fi
      exit 1
    }
    if ! installed "${requirements[0]}"; then
      checksum "${requirements[0]}" >"$venv/installed"
    fi
    checksum "${requirements[@]}" >>"$venv/installed"
    rm "$venv/unfinished"
  ) 9>"$root/.venv.lock"

  # TensorFlow brought its own protobuf.
  install_missing() {
    local missing log
    missing=$(sed '' "${requirements[@]}" | "$1" -c 'import importlib.util
import re, sys
for line in sys.stdin:
  name = re.match(r"\w*", line).group()
  if name not in ("", "protobuf") and importlib.util.find_spec(name) is None:
    print(line.strip())')
    [[ -n $missing ]] || return 0
    say "Installing into the environment of $1:" $missing
    log=$("$1" -m pip install -q -r /dev/stdin 2>&1 <<<"$missing") ||
      fail "that failed: $(tail -n 5 <<<"$log")"
  }

  use() {
    if [[ $platform == tf2 && -z ${ALBERT_PLATFORM-} ]]; then
      say "Using $tensorflow with $1${2-}"
    fi
    echo "$platform $1"
    exit
  }

  python=${ALBERT_PYTHON:-$(type -P python || type -P python3)}
  if [[ -n ${ALBERT_PYTHON-} ]]; then
    version=$(version_of "$python") ||
      fail "ALBERT_PYTHON=$ALBERT_PYTHON does not start" 69
  fi
  if [[ ${VIRTUAL_ENV-} == "$root/.venv-tf2" ]]; then
    ALBERT_PLATFORM=${ALBERT_PLATFORM:-tf2}
  fi
  choose_platform "${ALBERT_PLATFORM:-tf1}"
  if [[ -n ${ALBERT_PYTHON-}${VIRTUAL_ENV-}${CONDA_PREFIX-} ]] || ! ready; then
    own=$(own_tensorflow "$python")
    if [[ -n $own ]] && wanted "${own%% *}"; then
      choose_platform "${own%% *}"
      install_missing "${own#* }"
      use "${own#* }"
    fi
  fi

  for platform in ${ALBERT_PLATFORM:-tf1 tf2}; do
    choose_platform "$platform"
    if ! ready; then
      python=$(find_python) || continue
      set_up "$python" || exit
    fi
    use "$venv/bin/python" " (found no Python 3.7 on Linux x86_64 for 1.15)"
  done

  needs="TensorFlow 1.15 (tf1) needs Python 3.7 on Linux x86_64, "
  needs+="TensorFlow 2.15 (tf2) Python 3.9, 3.10 or 3.11"
  for=${ALBERT_PLATFORM:+ for ALBERT_PLATFORM=$ALBERT_PLATFORM}
  if [[ -n ${ALBERT_PYTHON-} ]]; then
    fail "ALBERT_PYTHON is Python $version, which does not fit$for: $needs" 69
  fi
  say "ERROR: no Python found$for: $needs."
  say "One of these gets it:"
  say "  pyenv install 3.7"
  say "  conda, if it is on PATH: this script then fetches 3.7 with it"
  say "  apt install python3.11 python3.11-venv    (Debian 12)"
  say "For one in another place: export ALBERT_PYTHON=/path/to/python3.7"
  exit 69
)

albert_found=$(albert_python) || {
  albert_found=$?
  # exit would close an interactive shell.
  if [[ $- == *i* ]]; then return $albert_found; else exit $albert_found; fi
}
export ALBERT_PLATFORM=${albert_found%% *} PYTHON=${albert_found#* }
export PYTHONUNBUFFERED=${PYTHONUNBUFFERED-1}
export TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL-3}
# The TFLite converter of TensorFlow 1.15 runs a program that is in there.
PATH=$(dirname "$PYTHON"):$PATH
unset albert_found
unset -f albert_python
