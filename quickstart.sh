#!/usr/bin/env bash
# The whole road on the sample data in a few minutes, without a GPU:
# text -> records -> pretrained model -> fine-tuned model -> similarity.
set -euo pipefail
cd "$(dirname "$0")"
source ./env.sh
out=output/quickstart
rm -rf "$out"
model=(--bert_config_file=albert_config/albert_config_tiny_google.json)
vocab=(--vocab_file=albert_config/vocab.txt)
records=(--max_seq_length=64 --max_predictions_per_seq=10)

echo "== 1/5 records from text"
for split in train heldout; do
  "$PYTHON" create_pretraining_data.py "${vocab[@]}" "${records[@]}" \
    --input_file=data/text_$split.txt --output_file=$out/$split.tfrecord \
    --masked_lm_prob=0.15 --dupe_factor=10
done

echo "== 2/5 pretraining a tiny model from scratch, evaluated on held-out text"
"$PYTHON" run_pretraining.py --do_train "${model[@]}" "${records[@]}" \
  --input_file=$out/train.tfrecord --eval_input_file=$out/heldout.tfrecord \
  --output_dir=$out/pretrained --optimizer=adamw --learning_rate=5e-4 \
  --num_train_steps=300 --num_warmup_steps=30 --train_batch_size=16 \
  --save_checkpoints_steps=100 --log_steps=20 --max_eval_steps=20

echo "== 3/5 fine-tuning on sentence pairs"
"$PYTHON" run_classifier.py --task_name=lcqmc --data_dir=data/pairs \
  --do_train --do_eval --do_predict "${model[@]}" "${vocab[@]}" \
  --init_checkpoint=$out/pretrained --output_dir=$out/pairs \
  --max_seq_length=48 --train_batch_size=16 --learning_rate=5e-5 \
  --num_train_epochs=12 --save_checkpoints_steps=80 --log_steps=20

echo "== 4/5 similarity of three pairs (0 different, 1 the same meaning)"
"$PYTHON" similarity.py --model_dir=$out/pairs/best <<'PAIRS'
怎么办理银行卡	银行卡如何办理
今天会下雨吗	今天有雨吗
今天会下雨吗	红烧肉怎么做
PAIRS

echo "== 5/5 summary"
cat <<SUMMARY
made in $out:
  train.tfrecord, heldout.tfrecord  pretraining records
  pretrained/                       checkpoints, eval_history.tsv, best/
  pairs/                            fine-tuned: best/, test_results.tsv
held-out text, step by step (a model that knows nothing has a masked-LM loss of
9.96, the logarithm of 21,128):
$(cut -f 1,3-6 $out/pretrained/eval_history.tsv)
sentence pairs, dev accuracy of the best checkpoint:
  $(grep eval_accuracy $out/pairs/best/eval_results.txt)
So little text teaches frequencies and not much more: scores near 0.5 are what
to expect. Next: your own text with create_pretrain_data.sh and
run_pretraining.sh, or a released model and LCQMC with run_classifier_lcqmc.sh.
SUMMARY
