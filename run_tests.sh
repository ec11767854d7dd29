#!/usr/bin/env bash
# Lint and types, then the tests on TensorFlow 1.15 (tf1) and 2.15 (tf2), if
# there is a suitable Python:
#   bash run_tests.sh [--quick|--all] [--platform=tf1|tf2] [files, pytest flags]
#   --quick    tests that need no script, no training and no real data
#   --default  these, and every script, head and export once, for a few steps
#   --all      all tests; installs PyTorch, transformers and Beam, builds Horovod
# Tests that do not depend on TensorFlow run on the first platform only.
#   ALBERT_REAL_DATA     folder of the real data sets; without it, tests that
#                        need them are skipped
#   ALBERT_TESTS_STRICT  1: a missing platform and a skipped test are failures
set -euo pipefail
cd "$(dirname "$0")"
source albert/shell.sh && usage ".*" "$@"
unset PYTHONDONTWRITEBYTECODE # processes share compiled modules

tier=default platforms="tf1 tf2" arguments=() last=
for word in "$@"; do
  case $word in
    --quick | --default | --all) tier=${word#--} ;;
    --platform=tf1 | --platform=tf2) platforms=${word#*=} ;;
    --platform*) refuse "$word" "it can be --platform=tf1 or --platform=tf2" ;;
    *)
      # The value of a short flag, as in -k "name or other", or a file.
      [[ $word == -* || $last == -[kmnpocWr] || -e ${word%%::*} ]] ||
        refuse "$word"
      arguments+=("$word") ;;
  esac
  case $word in # pytest runs a named file even on the wrong platform
    *_tf1.py*) platforms=tf1 ;;
    *_tf2.py*) platforms=tf2 ;;
  esac
  last=$word
done

python_on() ( # platform, arguments
  export ALBERT_PLATFORM=$1 ALBERT_EXTRAS=tests
  [[ $tier != all ]] || ALBERT_EXTRAS+=,tests-all
  source ./env.sh || exit
  "$PYTHON" "${@:2}"
)

failed=0 tested= not_run= ready=()
for platform in $platforms; do
  status=0
  python_on "$platform" -c "" || status=$?
  case $status in
    0) ready+=("$platform") ;;
    69)
      case $platform in tf1) versions=3.7 ;; tf2) versions="3.9 to 3.11" ;; esac
      not_run+="NOT RUN: $platform (no Python $versions found)"$'\n'
      failed=$((failed || ${ALBERT_TESTS_STRICT:-0})) ;;
    *)
      not_run+="NOT RUN: $platform (set-up failed)"$'\n'
      failed=1 ;;
  esac
done

if ((${#ready[@]})); then
  echo "== ruff"
  python_on "${ready[0]}" -m ruff check . || failed=1
  python_on "${ready[0]}" -m ruff format --check --quiet . || failed=1
fi
if [[ " ${ready[*]-} " == *" tf2 "* ]]; then # it needs a newer Python than 3.7
  echo "== mypy"
  python_on tf2 -m mypy || failed=1
fi
ALBERT_TESTS_SUMMARY=$(mktemp)
export ALBERT_TESTS_SUMMARY
trap 'rm "$ALBERT_TESTS_SUMMARY"' EXIT
second=() processes=3
[[ $tier != all ]] || processes=4 # its tests wait more
for platform in ${ready[@]+"${ready[@]}"}; do
  # Built from source, which takes minutes; if that fails, its tests are
  # skipped.
  if [[ $tier == all ]] && type -P cmake c++ >/dev/null &&
    ! python_on "$platform" -c "import horovod.tensorflow" 2>/dev/null; then
    echo "== Horovod"
    HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITHOUT_PYTORCH=1 \
      HOROVOD_WITHOUT_MXNET=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_WITH_GLOO=1 \
      python_on "$platform" -m pip install -q --no-build-isolation \
      horovod==0.28.1 ||
      echo "Horovod cannot be built here"
  fi
  echo "== pytest on $platform"
  status=0
  python_on "$platform" -m pytest -q -rs --tier=$tier \
    -o testpaths="tests test_changes.py" \
    -o tmp_path_retention_policy=failed -n $processes --dist=loadgroup --durations=25 \
    ${second[@]+"${second[@]}"} ${arguments[@]+"${arguments[@]}"} ||
    status=$?
  case $status in
    0) tested=1 ;;
    5) ;; # None of the selected tests is for this platform.
    *) failed=1 ;;
  esac
  second=(--second_platform)
done

if [[ $tier == all ]] && ! type -P chromium chromedriver >/dev/null; then
  not_run+="NOT RUN: the page in a browser (no chromium, chromium-driver)"$'\n'
fi
echo "== $tier tests"
cat "$ALBERT_TESTS_SUMMARY"
printf "%s" "$not_run"
if [[ -z $tested && $failed == 0 ]]; then
  echo "No test was run"
  failed=1
fi
exit "$failed"
