# Sourced by every script here; `source env.sh` sets up your shell.
# Uses a python on PATH with TensorFlow 1.15 or 2.15. Otherwise creates, once,
# with pip install -e, .venv with TensorFlow 1.15 and Python 3.7 or, without a
# Python 3.7, .venv-tf2 with TensorFlow 2.15 and Python 3.9 to 3.11.
#   ALBERT_PYTHON    the only interpreter to try
#   ALBERT_PLATFORM  the only platform to try: tf1 or tf2
#   ALBERT_EXTRAS    extras of pyproject.toml to install, such as plot,onnx
# Sets PYTHON, ALBERT_PLATFORM and PATH. Status 69: no suitable Python.
if [[ $0 == "${BASH_SOURCE[0]}" ]]; then
  cd "$(dirname "$0")" && source albert/shell.sh && usage "" "$@"
  refuse "bash $0" "write: source $0"
fi

# Prints PLATFORM PYTHON. A subshell, to leave no variables behind.
albert_python() (
  root=$(cd "$(dirname "${BASH_SOURCE[0]}")" >/dev/null && pwd)
  fail() { echo "ERROR: $1" >&2; exit "${2:-1}"; }

  find_python() { # sets python and version, one of $versions
    for version in $versions; do
      pythons=("python$version" "$(uv python find --system "$version")"
        "${PYENV_ROOT:-${HOME-}/.pyenv}/versions/$version".*/bin/python)
      for python in "${ALBERT_PYTHON:-${pythons[@]}}"; do
        # A shim of pyenv may not start, a Debian Python may have no ensurepip.
        about=$("$python" -c 'import ensurepip, sys; print(sys.version)')
        if [[ $about == "$version".* ]]; then return; fi
      done
    done 2>/dev/null
    return 1
  }
  ready() { # the venv is up to date with pyproject.toml and has these extras
    [[ -x $venv/bin/python && ! -e $venv/unfinished ]] &&
      cmp -s "$root/pyproject.toml" "$venv/pyproject.toml" || return
    for extra in $extras; do
      [[ " $(<"$venv/extras") " == *" $extra "* ]] || return
    done
  }
  install() (
    trap 'exit 130' INT TERM # pip exits with 1 at Ctrl-C, as for an error
    if type -P flock >/dev/null && ! flock -n 9; then # macOS has no flock
      echo "Waiting for another script that installs" && flock 9
    fi
    # An interrupted pip takes half-unpacked packages for complete.
    [[ -x $venv/bin/python && ! -e $venv/unfinished ]] || rm -rf "$venv"
    [[ ! -e $venv || -e $venv/lib/python$version ]] ||
      fail "$venv is not of Python $version: remove it and try again"
    if ready; then exit; fi
    echo "Installing into $venv (Python $version); takes minutes, once"
    mkdir -p "$venv" && touch "$venv/unfinished" || exit
    extras=$(echo $extras $(cat "$venv/extras" 2>/dev/null)) # with earlier ones
    what=$platform
    [[ $platform != tf2 ]] || ! nvidia-smi -L 2>/dev/null | grep -q GPU ||
      what=tf2-gpu
    what=${extras:+${extras// /,},}$what
    [[ -x $venv/bin/python ]] || "$python" -m venv "$venv" &&
      # An old pip does not know the tags of current wheels.
      "$venv/bin/python" -m pip install -qq --upgrade pip &&
      "$venv/bin/python" -m pip install -qq -e "$root[$what]" || {
      [[ $? -gt 128 ]] || rm "$venv/unfinished" # pip itself gave up
      fail "$venv: cannot install $what, for the reason above"
    }
    echo "$extras" >"$venv/extras"
    cp "$root/pyproject.toml" "$venv" && rm "$venv/unfinished"
  ) 9>"$root/.venv.lock"

  extras=${ALBERT_EXTRAS-} extras=${extras//,/ }
  for extra in $extras; do
    grep -q "^$extra = \[" "$root/pyproject.toml" ||
      fail "ALBERT_EXTRAS: pyproject.toml has no $extra"
  done

  # By folder names, because importing TensorFlow takes seconds.
  read -r found python < <(
    "${ALBERT_PYTHON:-$(type -P python || type -P python3)}" -c '
import os, re, sys
names = str([os.listdir(path) for path in sys.path if os.path.isdir(path)])
found = re.search(r"\btensorflow(_[cg]pu)?-([12])\.15\.", names)
if found: print("tf" + found.group(2), sys.executable)' 2>/dev/null)
  if [[ -n $found && ${ALBERT_PLATFORM:-$found} == "$found" &&
    $python != "$root"/.venv* ]]; then
    [[ -z $extras ]] &&
      "$python" -c "import jieba, sentencepiece, tqdm" 2>/dev/null ||
      "$python" -m pip install -qq -e "$root[${extras// /,}]" >&2 ||
      fail "$python: cannot install $root[${extras// /,}], for the reason above"
    echo "$found $python" && exit
  fi
  make_environment() { # prints the result and exits; without a Python, returns
    for platform in ${ALBERT_PLATFORM:-${found:-tf1 tf2}}; do
      case $platform in
        tf1) venv=$root/.venv versions=3.7 ;;
        tf2) venv=$root/.venv-tf2 versions="3.11 3.10 3.9" ;;
        *) fail "ALBERT_PLATFORM=$platform: it can be tf1 or tf2" ;;
      esac
      [[ $platform == tf2 || $(uname -sm) == "Linux x86_64" ]] || continue
      if [[ -n ${ALBERT_PYTHON-} ]] || ! ready; then
        find_python || continue
        install >&2 || exit
      fi
      echo "$platform $venv/bin/python" && exit
    done
  }
  make_environment
  if [[ -z ${ALBERT_PYTHON-} ]] && type -P uv >/dev/null &&
    uv python install "${versions%% *}" >&2; then
    make_environment
  fi
  fail "no Python for ${ALBERT_PLATFORM:-tf1 or tf2}${ALBERT_PYTHON:+: \
$ALBERT_PYTHON does not fit}; tf1 needs 3.7 on Linux x86_64, tf2 3.9 to 3.11.
To get one: apt install python3.11-venv, or install uv (pip install uv), which \
env.sh then uses, or set ALBERT_PYTHON to its path" 69
)

albert_found=$(albert_python) || return
export ALBERT_PLATFORM=${albert_found%% *} PYTHON=${albert_found#* }
export PYTHONUNBUFFERED=${PYTHONUNBUFFERED-1}
export TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL-3}
# The TFLite converter of TensorFlow 1.15 runs a program from there.
PATH=$(dirname "$PYTHON"):$PATH
unset albert_found albert_python
