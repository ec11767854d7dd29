# Sourced by scripts that fine-tune a model of a size. From SIZE (tiny by
# default) and MODEL_DIR, it sets model, batch, rate and epochs, where to begin
# with each size, and fetches the model unless MODEL_DIR names a folder.
case ${SIZE:=tiny} in
  tiny) model=albert_tiny batch=32 rate=1e-4 epochs=3 ;;
  small) model=albert_small_zh_google batch=32 rate=1e-4 epochs=3 ;;
  base) model=albert_base_zh batch=32 rate=3e-5 epochs=2 ;;
  large) model=albert_large_zh batch=24 rate=2e-5 epochs=2 ;;
  xlarge) model=albert_xlarge_zh_183k batch=24 rate=2e-5 epochs=2 ;;
  xxlarge) model="" batch=16 rate=1e-5 epochs=2 ;;
  *)
    echo "ERROR: SIZE=$SIZE: tiny, small, base, large, xlarge, xxlarge" >&2
    exit 1 ;;
esac
if [[ -n ${MODEL_DIR-} ]]; then
  model=$MODEL_DIR
elif [[ -z $model ]]; then
  echo "ERROR: no $SIZE model is known to fetch: set MODEL_DIR" >&2
  exit 1
else
  "$PYTHON" download.py --item="$model" --target="$model"
fi
