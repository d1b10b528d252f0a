#!/bin/sh
# Runs run.sh without a GPU, with programs that answer like real ones: every stage ends, and the summary reports it.
#
#   rehearse.sh <checkout> <folder for results>
set -eu
run="$1/tests/gpu/run.sh"
folder="$2"
rm -rf "$folder"
mkdir -p "$folder"
demand() { grep -q "$2" "$1" || { echo "the summary must have: $2; it has:"; cat "$1"; exit 1; }; }

printf '#!/bin/sh\n[ $# -gt 0 ] && echo "cuda: an NVIDIA driver must be installed"\nexit 3\n' > "$folder/refuses"
cat > "$folder/answers" << 'END'
#!/bin/sh
[ $# -gt 0 ] || exit 2
[ "$1" != speed ] || echo "cuDNN 9.19.0"
echo "xtrain   $*"
[ "$2" != fp16 ] || exit 1
[ "$1" != parity ] || sleep 60
END
printf '#!/bin/sh\necho "there is no PyTorch"\nexit 4\n' > "$folder/python"
chmod +x "$folder/refuses" "$folder/answers" "$folder/python"
export XTRAIN_GPU_PYTHON="$folder/python" XTRAIN_GPU_MODELS="gpt2_small 2 64 2"

XTRAIN_GPU_PROGRAM="$folder/refuses" OUT="$folder/refused" sh "$run" > /dev/null
demand "$folder/refused/summary.txt" "^build: a program is at hand"
demand "$folder/refused/summary.txt" "^conformance bf16: no GPU, .*cuda: an NVIDIA driver must be installed"
demand "$folder/refused/summary.txt" "^speed gpt2_small captured: no GPU"
demand "$folder/refused/summary.txt" "^musa parity: no GPU, .*no GPU"
demand "$folder/refused/summary.txt" "^speed gpt2_small eager: not here, .*there is no PyTorch"

XTRAIN_GPU_SECONDS=8 XTRAIN_GPU_PROGRAM="$folder/answers" OUT="$folder/answered" sh "$run" conformance parity speed > /dev/null
demand "$folder/answered/summary.txt" "^conformance bf16: ok"
demand "$folder/answered/summary.txt" "^conformance fp16: FAILED (1)"
demand "$folder/answered/summary.txt" "^parity: stopped after [5-8] s"
demand "$folder/answered/summary.txt" "^speed gpt2_small captured: no time left"
demand "$folder/answered/conformance.txt" "^xtrain   conformance fp32"

XTRAIN_GPU_PROGRAM="$folder/answers" OUT="$folder/fast" sh "$run" speed > /dev/null
demand "$folder/fast/summary.txt" "^xtrain   speed gpt2_small 2 64 2 captured"
demand "$folder/fast/summary.txt" "^speed gpt2_small our attention: ok"
demand "$folder/fast/summary.txt" "^cuDNN 9.19.0"

XTRAIN_MUSA_PROGRAM="$folder/answers" XTRAIN_GPU_PROGRAM="$folder/none" OUT="$folder/musa" sh "$run" musa > /dev/null
demand "$folder/musa/summary.txt" "^musa parity: ok, .*xtrain   musa"

XTRAIN_GPU_PROGRAM="$folder/none" OUT="$folder/without" sh "$run" conformance parity > /dev/null
demand "$folder/without/summary.txt" "^program: none that starts"
echo "rehearsed"
