#!/usr/bin/env bash
# A demo of the bundled model on the sample data, in minutes without a GPU.
# Writes to output/quickstart.
set -euo pipefail
cd "$(dirname "$0")"
source albert/shell.sh && usage "" "$@"
source ./env.sh
out=output/quickstart
rm -rf "$out"
mkdir -p "$out"
starter=albert_tiny_starter

echo "== 1/4 the most likely characters for [MASK]"
"$PYTHON" predict.py --model_dir=$starter --top_k=3 \
  我[MASK]知道他在哪里。 一年有十二个[MASK]，春夏秋冬四个季节。 \
  他从家里[MASK]出来，往学校走去。 爸爸的妈妈，我叫她奶[MASK]。 |
  tee $out/masks.tsv

echo "== 2/4 further pretraining on the sample text"
for split in train heldout; do
  "$PYTHON" create_pretraining_data.py --vocab_file=$starter/vocab.txt \
    --input_file=data/text_$split.txt --output_file=$out/$split.tfrecord \
    --max_seq_length=128 --max_predictions_per_seq=19 --masked_lm_prob=0.15
done
"$PYTHON" run_pretraining.py --do_eval --init_checkpoint=$starter \
  --input_file=$out/heldout.tfrecord --output_dir=$out/before
"$PYTHON" run_pretraining.py --do_train --init_checkpoint=$starter \
  --input_file=$out/train.tfrecord --eval_input_file=$out/heldout.tfrecord \
  --output_dir=$out/pretrained --optimizer=adamw --learning_rate=1e-4 \
  --num_train_steps=100 --num_warmup_steps=10 --train_batch_size=16 \
  --save_checkpoints_steps=50 --log_steps=20

echo "== 3/4 topics of short texts, from the starter weights and from scratch"
topics() { # folder to make, flags
  "$PYTHON" run_classifier.py --task_name=tsv --data_dir=data/topics \
    --do_train --do_eval --do_predict --output_dir="$out/$1" \
    --max_seq_length=80 --train_batch_size=16 --num_train_epochs=8 \
    --learning_rate=1e-4 --save_checkpoints_steps=60 --log_steps=60 "${@:2}"
}
topics topics --init_checkpoint=$starter
topics scratch --vocab_file=$starter/vocab.txt \
  --bert_config_file=albert_config/albert_config_tiny_google.json

echo "== 4/4 sentences with the same meaning, by the starter weights"
# Each first sentence with each second one; only the file's pairs are printed.
awk -F '\t' '{ a[NR] = $1; b[NR] = $2 }
  END { for (i = 1; i <= NR; i++) for (j = 1; j <= NR; j++)
    print a[i] "\t" b[j] }' data/alike.tsv >$out/grid_pairs.tsv
"$PYTHON" similarity.py --unsupervised --model_dir=$starter \
  --reference_file=data/text_train.txt --input_file=$out/grid_pairs.tsv \
  --output_file=$out/grid.tsv
grep -Ff data/alike.tsv $out/grid.tsv | sort -rn
"$PYTHON" -m albert.report $out

accuracy() { awk '/accuracy = / { printf "%.3f", $3 }' "$out/$1"; }
echo "== in short
held-out sample text      masked-LM loss  accuracy
$(awk '
  /masked_lm_/ { value[FILENAME, $1] = $3 }
  END { for (i = 1; i < ARGC; i++)
    printf "  %s the training    %.2f            %.3f\n", i == 1 ? "before" : "after ",
      value[ARGV[i], "masked_lm_loss"], value[ARGV[i], "masked_lm_accuracy"] }' \
  $out/before/eval_results.txt $out/pretrained/eval_results.txt)
six topics                dev accuracy    test accuracy
  from the starter        $(accuracy topics/best/eval_results.txt)           $(accuracy topics/test_results.txt)
  from scratch            $(accuracy scratch/best/eval_results.txt)           $(accuracy scratch/test_results.txt)
Everything is in $out. Next: your own data, by (a), (b) and (c) of README.md.
Report: $out/report.html"
