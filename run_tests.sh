#!/usr/bin/env bash
# Lint, then the tests on TensorFlow 1.15 (tf1) and on 2.15 (tf2), as far as
# there is a Python for them, in four processes:
#   bash run_tests.sh [--quick] [--platform=tf1|tf2] [files, flags of pytest]
# --quick leaves out the tests that start scripts, train or read real data.
# Where both platforms are tested, each has one half of the slow tests, and all
# of the others; --platform has all.
#   ALBERT_REAL_DATA     folder of the real data sets; without it, the tests that
#                        read them are skipped
#   ALBERT_TESTS_STRICT  1: a missing platform and a skipped test are failures
set -euo pipefail
cd "$(dirname "$0")"
source requirements/usage.sh && usage ".*" "$@"

platforms="tf1 tf2" arguments=() last=
for word in "$@"; do
  case $word in
    --quick) arguments+=(-m "not slow") ;;
    --platform=tf1 | --platform=tf2) platforms=${word#*=} ;;
    --platform*) refuse "$word" "it can be --platform=tf1 or --platform=tf2" ;;
    *)
      # The value of a short flag, as in -k "name or other", or a file.
      [[ $word == -* || $last == -[kmnpocWr] || -e ${word%%::*} ]] ||
        refuse "$word"
      arguments+=("$word") ;;
  esac
  case $word in # pytest runs a file that is named even on the other platform
    *_tf1.py*) platforms=tf1 ;;
    *_tf2.py*) platforms=tf2 ;;
  esac
  last=$word
done

python_on() ( # platform, arguments
  export ALBERT_PLATFORM=$1 ALBERT_REQUIREMENTS=requirements/tests-$1.txt
  source ./env.sh || exit
  "$PYTHON" "${@:2}"
)

failed=0 tested= not_run= ready=()
for platform in $platforms; do
  status=0
  python_on "$platform" -c "" || status=$?
  case $status in
    0) ready+=("$platform"); continue ;;
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
fi
for platform in ${ready[@]+"${ready[@]}"}; do
  # Built from source, which takes minutes: where it cannot be, its tests are
  # skipped.
  if type -P cmake c++ >/dev/null &&
    ! python_on "$platform" -c "import horovod.tensorflow" 2>/dev/null; then
    echo "== Horovod"
    HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITHOUT_PYTORCH=1 \
      HOROVOD_WITHOUT_MXNET=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_WITH_GLOO=1 \
      python_on "$platform" -m pip install -q --no-build-isolation \
      -r requirements/horovod.txt ||
      echo "Horovod cannot be built here"
  fi
  echo "== pytest on $platform"
  if ((${#ready[@]} == 2)); then
    export ALBERT_TESTS_SHARE=$((${platform#tf} - 1))
  fi
  status=0
  python_on "$platform" -m pytest -q -o testpaths="tests test_changes.py" \
    -o tmp_path_retention_policy=failed -n 4 --dist=loadgroup \
    ${arguments[@]+"${arguments[@]}"} ||
    status=$?
  case $status in
    0) tested=1 ;;
    5) ;;  # None of the selected tests is for this platform.
    *) failed=1 ;;
  esac
done

type -P chromium >/dev/null && type -P chromedriver >/dev/null ||
  not_run+="NOT RUN: the page in a browser (no chromium, chromium-driver)"$'\n'
printf "%s" "$not_run"
if [[ -z $tested && $failed == 0 ]]; then
  echo "No test was run"
  failed=1
fi
exit "$failed"
