// The example trainers, run as on a command line.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/json.hpp>
#include <xtrain/data/indexed_instructions.hpp>
#include <xtrain/io.hpp>

#include "program.hpp"
#include "scratch.hpp"
#include "trainer_runs.hpp"

TEST_CASE("every trainer explains itself, and help is no error") {
  for (const char* name : {"pretrain", "finetune", "generate", "pretrain_bf16", "finetune_bf16", "generate_bf16"}) {
    const auto result = run(name, {"--help"});
    CAPTURE(name);
    CHECK(result.status == 0);
    CHECK(holds(result.out, "--seed"));
    CHECK(result.err.empty());
  }
}

TEST_CASE("unknown flags are refused with the nearest known one") {
  const auto result = run("pretrain", {"--lerning-rate", "1", "--data", "x"});
  CHECK(result.status == 2);
  CHECK(result.err == "pretrain: unknown flag '--lerning-rate'; did you mean '--learning-rate'?\n");
  const auto two = run("generate", {"--model", "x", "--prompt", "y", "--top_k=4", "--sed", "3"});
  CHECK(two.status == 2);
  CHECK(holds(two.err, "'--top_k'; did you mean '--top-k'?"));
  CHECK(holds(two.err, "'--sed'; did you mean '--seed'?"));
}

TEST_CASE("flags of other systems are answered with ours") {
  for (const auto& [given, ours] : {std::pair{"--lr", "--learning-rate"},
                                    {"--train-iters", "--max-steps"},
                                    {"--per_device_train_batch_size", "--micro-batch-size"},
                                    {"--micro_batch_size", "--micro-batch-size"},
                                    {"--max_seq_len", "--seq-length"},
                                    {"--clip-grad", "--max-grad-norm"},
                                    {"--lr-decay-style", "--lr-scheduler-type"},
                                    {"--ffn-hidden-size", "--intermediate-size"}}) {
    CAPTURE(given);
    const auto result = run("pretrain", {given, "1", "--data", "x"});
    CHECK(result.status == 2);
    CHECK(holds(result.err, (std::string("did you mean '") + ours + "'?").c_str()));
  }
}

TEST_CASE("errors name the flag and the value, and nothing is left behind") {
  const scratch_folder folder;
  const std::string text = text_file(folder);
  put_file(folder / "empty.txt", "");
  put_file(folder / "broken.jsonl", "{\"text\": \"fine\"}\n{\"text\": oops}\n");
  put_file(folder / "fine.json", "{\"text\": \"fine\"}\n");
  put_file(folder / "config.json", R"({"model_type": "llama", "vocab_size": 100, "hidden_size": 16, "num_hidden_layers": 1,
    "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 16})");
  put_file(folder / "misspelt.json", R"({"model_type": "llama", "vocab_size": 300, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 32, "max_position_embeddings": 16, "rope_scaling": {"rope_type": "linear", "factr": 2.0}})");
  const std::string out = folder / "out";
  const words tune = {"--model", folder.path(), "--tokenizer", "byte", "--data", text, "--output-dir", out};
  struct bad_line {
    std::string program;
    words flags;
    words says;
    int status = 2;  // of a wrong command line; 1: a file that it names is missing or unusable
  };
  const std::vector<bad_line> lines = {
      {"pretrain", {"--max-steps", "many"}, {"--max-steps", "positive whole number", "'many'"}},
      {"pretrain", {"--micro-batch-size", "0"}, {"--micro-batch-size", "positive whole number", "'0'"}},
      {"pretrain", {"--max-steps", "1", "--max-steps", "2"}, {"--max-steps: must be given once; given 2 times"}},
      {"pretrain", {"--learning-rate", "-1"}, {"--learning-rate", "non-negative", "'-1'"}},
      {"pretrain", {"--lr-scheduler-type", "cosin"}, {"--lr-scheduler-type", "constant, linear, cosine", "did you mean 'cosine'?"}},
      {"pretrain", {"--model-type", "lama"}, {"--model-type", "gpt2, llama", "did you mean 'llama'?"}},
      {"pretrain",
       {"--hidden-size", "30", "--num-attention-heads", "4", "--data", text, "--output-dir", out},
       {"--hidden-size 30", "divisible by --num-attention-heads 4"}},
      {"pretrain",
       {"--num-attention-heads", "4", "--num-key-value-heads", "3", "--data", text, "--output-dir", out},
       {"--num-attention-heads 4", "--num-key-value-heads 3"}},
      {"pretrain", tiny + words{"--data", folder / "missing.txt", "--output-dir", out}, {"--data " + (folder / "missing.txt") + ": must be a file"}, 1},
      {"pretrain", tiny + words{"--data", folder / "empty.txt", "--output-dir", out}, {"--data", "empty.txt", "it is empty"}, 1},
      {"pretrain", tiny + words{"--data", folder / "broken.jsonl", "--output-dir", out}, {"--data", "broken.jsonl", "line 2"}, 1},
      {"pretrain", tiny + words{"--data", text, folder / "fine.json", "--output-dir", out},
       {"--data", "fine.json: JSON records must not be beside files of text"}},
      {"pretrain", {"--tokenizer", folder / "nothing", "--data", text, "--output-dir", out}, {"--tokenizer", "nothing"}, 1},
      {"pretrain", {"--config", folder / "config.json", "--data", text, "--output-dir", out}, {"--tokenizer byte", "257", "100", "--config"}},
      {"pretrain", tiny + words{"--data", text}, {"--output-dir: must be given"}},
      {"pretrain", tiny + words{"--output-dir", out}, {"--data: must be given"}},
      {"pretrain", tiny + words{"--data", text, "--output-dir", out, "--max-memory", "lots"}, {"--max-memory lots"}},
      {"pretrain", tiny + words{"--data", text, "--output-dir", out, "--override-config", folder / "config.json"}, {"--override-config", "none is given"}},
      {"pretrain", tiny + words{"--data", text, "--output-dir", out, "--max-restarts", "2"}, {"--max-restarts: needs --output-dir and --save-steps"}},
      {"pretrain", {"--data", text, "--output-dir", out, "--micro-batch-size", "1000000000000"}, {"must fit the host's", "micro_batch_size 1000000000000"}},
      {"pretrain",
       tiny + words{"--data", text, "--output-dir", out, "--gradient-accumulation-steps", "1000000000000"},
       {"must fit the host's", "gradient_accumulation_steps 1000000000000"}},
      {"pretrain", tiny + words{"--data", text, "--output-dir", out, "--learning-rate", "1e38"}, {"--learning-rate", "at most 1000", "'1e38'"}},
      {"pretrain",
       {"--config", folder / "misspelt.json", "--data", text, "--output-dir", out},
       {"--config", "'rope_scaling'", "'factr' is not a setting; did you mean 'factor'?"}},
      {"finetune", {"--model", folder / "none", "--data", text, "--output-dir", out}, {"--model", "none"}, 1},
      {"finetune", {"--model", folder.path(), "--data", text}, {"--output-dir: must be given"}},
      {"finetune", {"--model", folder.path(), "--data", text, "--lora-rank", "-2", "--output-dir", out}, {"--lora-rank", "'-2'"}},
      {"finetune", {"--model", folder.path(), "--data", text, "--lora-alpha", "5", "--output-dir", out}, {"--lora-alpha: needs an adapter; give --lora-rank"}},
      {"finetune", {"--model", folder.path(), "--data", text, "--lora-dropout", "0.1", "--output-dir", out}, {"--lora-dropout: needs an adapter"}},
      {"finetune", {"--model", folder.path(), "--data", text, "--lora-target-modules", "q_proj", "--output-dir", out}, {"--lora-target-modules: needs an"}},
      {"finetune", {"--model", folder.path(), "--data", text, "--lora-modules-to-save", "lm_head", "--output-dir", out}, {"--lora-modules-to-save: needs"}},
      // flags without an effect
      {"pretrain", tiny + words{"--data", text, "--output-dir", out, "--model-type", "baichuan", "--num-key-value-heads", "1"},
       {"baichuan: num_key_value_heads must be 2: config.json of this family has no such setting; given 1"}},
      {"finetune", tune + words{"--eval-steps", "5"}, {"--eval-steps 5: needs data to evaluate; give --eval-data\n"}},
      {"pretrain", tiny + words{"--data", text, "--output-dir", out, "--eval-steps", "5"},
       {"--eval-steps 5: needs data to evaluate; give --eval-data, or --eval-iters with --data-path\n"}},
      {"pretrain", tiny + words{"--data", text, "--output-dir", out, "--async-save"}, {"--async-save: needs --save-steps"}},
      {"pretrain", tiny + words{"--data", text, "--output-dir", out, "--warmup-steps", "5", "--warmup-ratio", "0.1"},
       {"--warmup-ratio 0.1: must be left out with --warmup-steps"}},
      {"pretrain", tiny + words{"--data", text, "--output-dir", out, "--min-lr-ratio", "0.1", "--lr-scheduler-type", "constant"},
       {"--min-lr-ratio: needs a learning rate that falls to a minimum; --lr-scheduler-type is constant"}},
      {"pretrain", tiny + words{"--data", text, "--output-dir", out, "--lr-decay-steps", "9", "--lr-scheduler-type", "inverse_sqrt"},
       {"--lr-decay-steps: needs a learning rate that falls"}},
      {"pretrain", tiny + words{"--data", text, "--output-dir", out, "--text-field", "body"}, {"--data " + text + ": --text-field body needs JSON records"}},
      {"pretrain", {"--model-type", "gpt2", "--config", folder / "config.json", "--data", text, "--output-dir", out},
       {"--model-type gpt2: must be that of --config " + (folder / "config.json") + ", llama"}},
      {"finetune", tune + words{"--format", "alpaca", "--text-field", "body"},
       {"--text-field body: needs --format text; it is alpaca"}},
      {"finetune", tune + words{"--text-field", "body"}, {"--data " + text + ": --text-field needs JSON records"}},
      {"finetune", tune + words{"--packing"}, {"--data " + text + ": --packing needs JSON records"}},
      {"finetune", tune + words{"--overlong", "drop"}, {"--overlong drop: needs samples"}},
      {"generate", {"--model", folder.path(), "--prompt", "x", "--top-p", "2"}, {"--top-p", "'2'"}},
      {"generate", {"--model", folder.path(), "--prompt", "x", "--length-penalty", "2"}, {"--length-penalty: is for a beam search; give --num-beams above 1"}},
      {"generate", {"--prompt", "x"}, {"--model"}},
  };
  for (const bad_line& line : lines) {
    const auto result = run(line.program, line.flags);
    CAPTURE(result.err);
    CHECK(result.status == line.status);
    CHECK(result.out.empty());
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
    for (const std::string& part : line.says) CHECK_MESSAGE(holds(result.err, part), "must say ", part);
  }
  CHECK_FALSE(std::filesystem::exists(out));
}

TEST_CASE("a plan shows memory by role and allocates none of it; a run that cannot fit is refused with the numbers") {
  const scratch_folder folder;
  // ten thousand times this machine's memory
  const auto plan = run("pretrain", {"--plan", "--num-layers", "400", "--hidden-size", "65536", "--num-attention-heads", "512", "--seq-length", "2048",
                                     "--max-memory", "100000000G"});
  CAPTURE(plan.err);
  CHECK(plan.status == 0);
  for (const char* role : {"parameters", "weights", "gradients", "optimizer", "stash", "workspace", "operations"})
    CHECK(holds(plan.out, role));
  const auto refused = run("pretrain", pretrain_flags(folder, "out") + words{"--max-steps", "2", "--max-memory", "100K"});
  CHECK(refused.status == 2);
  CHECK(holds(refused.err, "must fit 100.00 KiB; it needs"));
  CHECK(holds(refused.err, ":\nparameters "));
  CHECK(holds(refused.err, "optimizer"));
  CHECK_FALSE(std::filesystem::exists(folder / "out"));
}

TEST_CASE("a model is trained, continued by finetune, adapted, and writes; the record and the folders are what they should be") {
  const scratch_folder folder;
  const auto trained =
      run("pretrain", pretrain_flags(folder, "model") + words{"--max-steps", "300", "--eval-data", text_file(folder), "--eval-steps", "150",
                                                              "--metrics", folder / "run.jsonl", "--tensorboard-dir", folder / "events"});
  CAPTURE(trained.err);
  REQUIRE(trained.status == 0);
  CHECK(trained.out.empty());
  CHECK(last_number(trained.err, "perplexity ") < 3.0);  // of 257 at the start
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"})
    CHECK(std::filesystem::exists(folder / "model" + "/" + name));
  CHECK(last_number(get_file(folder / "run.jsonl"), "\"loss\": ") < 2.0);

  const words write = {"--model", folder / "model", "--prompt", "one two", "--max-new-tokens", "9", "--temperature", "0"};
  const auto text = run("generate", write);
  REQUIRE(text.status == 0);
  CHECK(text.out == " three fo");
  CHECK(holds(text.err, "tokens/s"));
  const auto ids = run("generate", write + words{"--ids"});
  CHECK(ids.out == "32 116 104 114 101 101 32 102 111");

  put_file(folder / "answers.json", R"([{"instruction": "Say one.", "input": "", "output": "one"}])");
  const words finetune = {"--model", folder / "model", "--data", text_file(folder), "--max-steps",
                          "5",       "--micro-batch-size",        "2",      "--learning-rate", "1e-3"};
  const auto full = run("finetune", finetune + words{"--output-dir", folder / "tuned"});
  CAPTURE(full.err);
  CHECK(full.status == 0);
  CHECK(run("generate", {"--model", folder / "tuned", "--prompt", "one two", "--max-new-tokens", "4", "--temperature", "0"}).out == " thr");
  const auto adapted =
      run("finetune", finetune + words{"--output-dir", folder / "adapter", "--lora-rank", "2", "--lora-target-modules", "q_proj,up_proj"});
  CAPTURE(adapted.err);
  CHECK(adapted.status == 0);
  CHECK(std::filesystem::exists(folder / "adapter" + "/adapter_model.safetensors"));
  CHECK(run("generate", write + words{"--adapter", folder / "adapter"}).status == 0);

  // the adapter's tokenizer has the tokens added in training
  const auto taught = run("finetune", finetune + words{"--output-dir", folder / "taught", "--lora-rank", "2", "--lora-target-modules", "q_proj", "--add-tokens",
                                                       "<tool>", "--lora-modules-to-save", "embed_tokens"});
  REQUIRE_MESSAGE(taught.status == 0, taught.err);
  const words tool = {"--model", folder / "model", "--adapter", folder / "taught", "--prompt", "<tool>", "--max-new-tokens", "1", "--temperature", "0"};
  CHECK(holds(run("generate", tool + words{"--resize-token-embeddings", "258"}).err, "prompt: 1 tokens"));
  CHECK(holds(run("generate", tool + words{"--resize-token-embeddings", "258", "--tokenizer", folder / "model"}).err, "prompt: 6 tokens"));
  CHECK(holds(run("generate", tool).err, "prompt: 1 tokens"));  // the adapter holds the resized embedding

  // another model's weights, which would remain next to the saved ones
  std::filesystem::create_directory(folder / "used");
  put_file(folder / "used/pytorch_model-00001-of-00002.bin", "");
  put_file(folder / "used/pytorch_model.bin.index.json", "{}");
  const auto beside = run("finetune", finetune + words{"--output-dir", folder / "used"});
  CHECK(beside.status == 0);
  CHECK(holds(beside.err, "warning: " + folder / "used" + " also holds files of another model, which other programs might load with it or instead of it: "
                                                          "pytorch_model-00001-of-00002.bin, pytorch_model.bin.index.json"));

  const auto too_long =
      run("finetune", {"--model", folder / "model", "--data", folder / "answers.json", "--format", "alpaca", "--output-dir", folder / "x"});
  CHECK(too_long.status == 1);
  CHECK(holds(too_long.err, "16"));  // max_position_embeddings; the prompt alone is longer
  const auto mismatch = run("generate", {"--model", folder / "model", "--adapter", folder / "tuned", "--prompt", "x"});
  CHECK(mismatch.status == 1);  // it has no adapter_config.json
  CHECK(holds(mismatch.err, "--adapter " + folder / "tuned"));
}

TEST_CASE("settings of the folder are replaced, and words are added, for a run and for what it saves") {
  const scratch_folder folder;
  REQUIRE(run("pretrain", pretrain_flags(folder, "model") + words{"--max-steps", "2"}).status == 0);
  const words finetune = {"--model", folder / "model", "--data", text_file(folder), "--max-steps", "1", "--micro-batch-size", "2"};
  put_file(folder / "other.json", R"({"attention_dropout": 0.5, "rope_theta": 5000.0, "colour": "red"})");
  const auto replaced = run("finetune", finetune + words{"--override-config", folder / "other.json", "--output-dir", folder / "replaced"});
  CAPTURE(replaced.err);
  REQUIRE(replaced.status == 0);
  CHECK(holds(replaced.err, "rope_theta: 5000.0, was 10000.0"));
  CHECK(holds(replaced.err, "'colour' is not a setting of this model; ignored"));
  CHECK(xtrain::read_sizes<xtrain::llama_family>(folder / "replaced").attention_dropout == 0.5);
  put_file(folder / "other.json", R"({"num_hidden_layers": "one"})");
  const auto wrong = run("finetune", finetune + words{"--override-config", folder / "other.json", "--output-dir", folder / "x"});
  CHECK(wrong.status == 2);
  CHECK(holds(wrong.err, "--override-config " + folder / "other.json"));
  CHECK(holds(wrong.err, "'num_hidden_layers' must be a number"));

  // custom sizes from a config.json, some overridden
  put_file(folder / "other.json", R"({"num_hidden_layers": 2, "vocab_size": 300})");
  const auto fresh = run("pretrain", {"--config", folder / "model/config.json", "--override-config", folder / "other.json", "--data", text_file(folder),
                                      "--max-steps", "1", "--micro-batch-size", "2", "--output-dir", folder / "fresh"});
  CAPTURE(fresh.err);
  REQUIRE(fresh.status == 0);
  CHECK(xtrain::read_sizes<xtrain::llama_family>(folder / "fresh").num_layers == 2);
  CHECK(xtrain::read_sizes<xtrain::llama_family>(folder / "fresh").vocab_size == 300);

  const auto more = run("finetune", finetune + words{"--add-tokens", "two,<tool>", "--make-vocab-size-divisible-by", "8", "--output-dir", folder / "more"});
  CAPTURE(more.err);
  REQUIRE(more.status == 0);
  CHECK(xtrain::read_sizes<xtrain::llama_family>(folder / "more").vocab_size == 264);  // 257 and two, rounded up
  const auto ids = run("generate", {"--model", folder / "more", "--prompt", "one <tool>", "--max-new-tokens", "1", "--ids"});
  CHECK(ids.status == 0);
  CHECK(holds(get_file(folder / "more/tokenizer.json"), "<tool>"));
}

namespace {

/// A model with room for a conversation in bytes.
void make_chat_model(const scratch_folder& folder) {
  const auto result = run("pretrain", words{"--tokenizer", "byte", "--num-layers", "1", "--hidden-size", "32", "--num-attention-heads", "2",
                                            "--seq-length", "256", "--micro-batch-size", "2", "--max-steps", "1", "--data",
                                            text_file(folder), "--output-dir", folder / "model"});
  REQUIRE_MESSAGE(result.status == 0, result.err);
}

}  // namespace

TEST_CASE("conversations of every format are trained on, and the model keeps the template that was given") {
  const scratch_folder folder;
  make_chat_model(folder);
  const std::vector<std::pair<const char*, std::string>> formats = {
      {"messages", R"({"messages": [{"role": "user", "content": "Say."}, {"role": "assistant", "content": "one"}]})"},
      {"conversations", R"({"conversations": [{"from": "human", "value": "Say."}, {"from": "gpt", "value": "one"}]})"},
      {"instruction", R"({"instruction": "Human: Say.\nAssistant: one\nHuman: More.", "input": "", "output": "two"})"},
      {"moss", R"({"meta_instruction": "S", "chat": {"turn_1": {"Human": "<|Human|>: Say.<eoh>\n", "MOSS": "<|MOSS|>: one<eom>\n"}}})"},
      {"chat", R"([{"messages": [{"role": "user", "content": "Say."}, {"role": "assistant", "content": "one"}]}, {"instruction": "Say.", "output": "one"}])"}};
  for (const auto& [format, records] : formats) {
    CAPTURE(format);
    const std::string data = folder / (std::string(format) + ".json"), out = folder / (std::string(format) + "-tuned");
    put_file(data, records);
    const words flags = {"--model", folder / "model", "--data", data, "--format", format, "--max-steps", "2", "--micro-batch-size", "1"};
    const auto tuned = run("finetune", flags + words{"--chat-template", "chatml", "--output-dir", out});
    CAPTURE(tuned.err);
    REQUIRE(tuned.status == 0);
    CHECK(holds(tuned.err, std::string(format) == "chat" ? "trainable; 2 samples" : "trainable; 1 samples"));
    CHECK(holds(get_file(out + "/chat_template.jinja"), "<|im_start|>"));
    for (const words& more : {words{"--packing"}, words{"--train-on-input"}, words{"--lora-rank", "2"}}) {
      const auto other = run("finetune", flags + more + words{"--chat-template", "llama2", "--output-dir", out + more.front()});
      CAPTURE(other.err);
      CHECK(other.status == 0);
      CHECK(holds(get_file(out + more.front() + "/chat_template.jinja"), "[INST]"));
    }
  }
}

TEST_CASE("a chat template is a name, a file, or that of the folder; without one, conversations are refused") {
  const scratch_folder folder;
  make_chat_model(folder);
  put_file(folder / "chats.jsonl",
           "{\"messages\": [{\"role\": \"user\", \"content\": \"Say.\"}, {\"role\": \"assistant\", \"content\": \"one\"}]}\n"
           "{\"messages\": [{\"role\": \"user\", \"content\": \"" +
               std::string(300, 'x') + "\"}, {\"role\": \"assistant\", \"content\": \"two\"}]}\n");
  put_file(
      folder / "own.jinja",
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}");
  const words data = {"--model", folder / "model",     "--data", folder / "chats.jsonl", "--max-steps",
                      "2",       "--micro-batch-size", "1",      "--output-dir",         folder / "out"};
  const words chats = data + words{"--format", "messages", "--overlong", "drop"};
  const auto refused = [&](const words& flags, const std::string& part, int status = 2) {
    const auto result = run("finetune", flags);
    CAPTURE(result.err);
    CHECK(result.status == status);
    CHECK(holds(result.err, part));
    CHECK_FALSE(std::filesystem::exists(folder / "out/model.safetensors"));
  };
  refused(chats, "finetune: --chat-template: must be given, a Jinja file or one of alpaca, llama2, ");
  refused(chats, "there is no chat template in " + folder / "model" + "\n");
  refused(chats + words{"--chat-template", "chatmll"}, "--chat-template chatmll: chat template: must be one of alpaca, llama2, ");
  refused(chats + words{"--chat-template", "chatmll"}, "Did you mean 'chatml'?");
  refused(chats + words{"--chat-template", folder / "none.jinja"}, "none.jinja", 1);
  refused(chats + words{"--conversation-template", "chatml"}, "did you mean '--chat-template'?");
  refused(data + words{"--format", "alpaca", "--chat-template", "chatml"}, "--chat-template chatml: needs a --format of conversations");
  refused(data + words{"--format", "text", "--train-on-input"}, "--train-on-input: needs a --format with prompts");
  refused(data + words{"--format", "message"}, "did you mean 'messages'?");
  refused(data + words{"--format", "messages", "--chat-template", "chatml"}, "256", 1);  // the second is too long for the model
  put_file(folder / "bad.jinja", "{% if %}");
  refused(chats + words{"--chat-template", folder / "bad.jinja"}, "bad.jinja: line 1: ");

  const auto tuned = run("finetune", chats + words{"--chat-template", folder / "own.jinja"});
  CAPTURE(tuned.err);
  REQUIRE(tuned.status == 0);
  CHECK(get_file(folder / "out/chat_template.jinja") == get_file(folder / "own.jinja"));
  // the folder's template, and what the model sees of it
  const words again = {"--model", folder / "out", "--data", folder / "chats.jsonl", "--max-steps", "2", "--micro-batch-size", "1", "--overlong", "drop"};
  const auto more = run("finetune", again + words{"--format", "chat", "--output-dir", folder / "more"});
  CAPTURE(more.err);
  CHECK(more.status == 0);
  CHECK(holds(more.err, "warning: 1 of 2 samples are left out: too long for the sequence length of"));
  CHECK(get_file(folder / "more/chat_template.jinja") == get_file(folder / "own.jinja"));
  words cut = again + words{"--format", "chat", "--output-dir", folder / "cut"};
  *std::find(cut.begin(), cut.end(), "drop") = "truncate";
  const auto without_answer = run("finetune", cut);
  CAPTURE(without_answer.err);
  CHECK(without_answer.status == 0);
  CHECK(holds(without_answer.err, "warning: 1 of 2 samples have no target within the sequence length of"));
  CHECK(holds(without_answer.err, "loss nan"));
  CHECK(holds(without_answer.err, "warning: 1 of 2 steps had no target: it has no loss (nan), and gradients of 0"));
  const words ask = {"--prompt", "Say.", "--max-new-tokens", "1", "--echo", "--temperature", "0"};
  const auto answer = run("generate", words{"--model", folder / "more", "--chat", "--system", "S"} + ask);
  CAPTURE(answer.err);
  CHECK(answer.status == 0);
  CHECK(answer.out.starts_with("<system>S<|endoftext|><user>Say.<|endoftext|><assistant>"));
  const auto named = run("generate", words{"--model", folder / "more", "--chat", "--chat-template", "chatml"} + ask);
  CHECK(named.out.starts_with("<|im_start|>user\nSay.<|im_end|>\n<|im_start|>assistant\n"));
  // string prompts and completions need no template; unread fields are reported once
  put_file(folder / "texts.jsonl", R"({"prompt": "Say.", "completion": " one"})");
  const words small = {"--model", folder / "model", "--max-steps", "1", "--micro-batch-size", "1", "--format", "chat"};
  const auto texts = run("finetune", small + words{"--data", folder / "texts.jsonl", "--output-dir", folder / "texts"});
  CAPTURE(texts.err);
  CHECK(texts.status == 0);
  put_file(folder / "names.jsonl", R"({"messages": [{"role": "user", "content": "Say.", "name": "n"}, {"role": "assistant", "content": "one", "name": "m"}]})");
  const auto names = run("finetune", small + words{"--data", folder / "names.jsonl", "--chat-template", "chatml", "--output-dir", folder / "names"});
  CHECK(names.status == 0);
  const std::string told = "names.jsonl: line 1: the chat template does not read 'name', which a message of role 'user' has: it is left out\n";
  CHECK(holds(names.err, told));
  CHECK(names.err.find("does not read") == names.err.rfind("does not read"));
  const auto nothing = run("generate", words{"--model", folder / "model", "--chat"} + ask);
  CHECK(nothing.status == 2);
  CHECK(holds(nothing.err, "generate: --chat-template: must be given, a Jinja file or one of alpaca, llama2, "));
  // here a turn's end is several tokens: beam search does not detect it
  const auto searched = run("generate", words{"--model", folder / "more", "--chat", "--chat-template", "chatml", "--num-beams", "2"} + ask);
  CHECK(searched.status == 2);
  CHECK(searched.err.find("tokens: a beam search ends at single ones") != std::string::npos);
  const auto unread = run_program({"/bin/sh", "-c", EXAMPLES "/generate --model " + folder / "more" + " --prompt one --max-new-tokens 2 > /dev/full"});
  CHECK(unread.status == 1);
  CHECK(unread.err.find("standard output: must be writable; No space left on device") != std::string::npos);
  CHECK(run("generate", words{"--model", folder / "more", "--system", "S"} + ask).status == 2);
  CHECK(run("generate", words{"--model", folder / "more", "--chat", "--format", "alpaca"} + ask).status == 2);
}

TEST_CASE("an answer that was learned ends where its turn does, at a token or at a text") {
  const scratch_folder folder;
  make_chat_model(folder);
  put_file(folder / "chat.json", R"({"messages": [{"role": "user", "content": "Say."}, {"role": "assistant", "content": "one <two>"}]})");
  for (const char* form : {"chatml", "llama2"}) {  // a byte tokenizer has no token <|im_end|>; its end-of-text token is </s>
    CAPTURE(form);
    const std::string out = folder / form;
    const auto tuned =
        run("finetune", {"--model", folder / "model", "--data", folder / "chat.json", "--format", "messages", "--chat-template", form,
                         "--max-steps", "200", "--micro-batch-size", "1", "--learning-rate", "1e-2", "--output-dir", out});
    CAPTURE(tuned.err);
    REQUIRE(tuned.status == 0);
    const auto answer = run("generate", {"--model", out, "--chat", "--prompt", "Say.", "--max-new-tokens", "60", "--temperature", "0"});
    CAPTURE(answer.err);
    CHECK(answer.status == 0);
    CHECK(answer.out == (std::string(form) == "chatml" ? "one <two>" : " one <two> "));
  }
}

TEST_CASE("pretrain and finetune read Megatron's indexed datasets") {
  const scratch_folder folder;
  for (const char* name : {"a", "b"}) {
    xtrain::indexed_writer writer(folder / name, xtrain::indexed_dtype::u16);
    for (xtrain::token d = 0; d < 40; ++d) writer.add_document(std::vector<xtrain::token>(static_cast<std::size_t>(d) % 23 + 1, d + 97));
    writer.finish();
  }
  const words blend = {"--data-path", "0.3", folder / "a", "0.7", folder / "b", "--split", "8,2"};
  const words flags = words{"--max-steps", "6", "--save-steps", "3", "--eval-iters", "2", "--output-dir", folder / "out"};
  const auto whole = run("pretrain", tiny + blend + flags);
  CAPTURE(whole.err);
  REQUIRE(whole.status == 0);
  CHECK(holds(whole.err, ": 12 samples to train on, 4 to evaluate on\n"));
  CHECK(holds(whole.err, "held-out loss"));
  const auto weights = bytes_of_weights(folder / "out");
  std::filesystem::remove_all(folder / "out/checkpoint-6");
  const auto rest = run("pretrain", tiny + blend + flags + words{"--resume"});
  CAPTURE(rest.err);
  REQUIRE(rest.status == 0);
  CHECK(holds(rest.err, "resuming after step 3\n"));
  CHECK(bytes_of_weights(folder / "out") == weights);

  const auto epochs = run("pretrain", tiny + words{"--data-path", folder / "a", "--num-train-epochs", "2", "--output-dir", folder / "epochs"});
  CHECK(holds(epochs.err, ": 50 samples to train on"));  // 39 documents of 412 tokens: (2 * 412 - 1) / 16 = 51 samples, of which steps of two take 50
  const auto refused = [&](const words& given, const std::string& message) {
    const auto result = run("pretrain", tiny + given + words{"--output-dir", folder / "refused"});
    CAPTURE(result.err);
    CHECK(result.status != 0);
    CHECK(holds(result.err, message));
  };
  refused({"--data-path", "0.3", folder / "a", "0.7", folder / "b"}, "need --max-steps");
  refused({"--data-path", folder / "a", folder / "b"}, "by turns");
  refused({"--data-path", folder / "none"}, "none.idx: must be a readable file");
  refused({"--data-path", folder / "a", "--data", text_file(folder)}, "excludes");
  refused({"--data-path", folder / "a", "--max-steps", "2", "--eval-iters", "1", "--eval-data", text_file(folder)}, "--eval-iters");
  refused({"--data-path", folder / "a", "--max-steps", "2", "--eval-iters", "1", "--split", "1"}, "the validation part of the split 1 must have documents");

  {
    xtrain::instruction_writer writer(folder / "alpaca_packed");
    for (xtrain::token d = 0; d < 8; ++d) writer.add_document(std::vector<xtrain::token>(5, d + 97), [](std::size_t i) { return i > 2; });
    writer.finish();
  }
  const words tune = {"--model", folder / "epochs", "--data", folder / "alpaca", "--format", "indexed", "--micro-batch-size", "2"};
  const auto tuned = run("finetune", tune + words{"--max-steps", "2", "--packing", "--output-dir", folder / "tuned"});
  CAPTURE(tuned.err);
  CHECK(tuned.status == 0);
  CHECK(holds(tuned.err, "; 8 samples\n"));
  CHECK(run("finetune", tune + words{"--train-on-input", "--output-dir", folder / "no"}).status == 2);
}

TEST_CASE("weights that are not finite are not saved") {
  const scratch_folder folder;
  const auto result = run("pretrain", tiny + words{"--data", text_file(folder), "--output-dir", folder / "out", "--weight-decay", "1e38", "--learning-rate",
                                                   "1000", "--max-steps", "1"});
  CAPTURE(result.err);
  CHECK(result.status == 1);
  CHECK(holds(result.err, "pretrain: training: weights must be finite to be saved; "));
  CHECK_FALSE(std::filesystem::exists(folder / "out/model.safetensors"));
}

TEST_CASE("the folder of the model is not written to, whatever it is called") {
  const scratch_folder folder;
  REQUIRE(run("pretrain", pretrain_flags(folder, "model") + words{"--max-steps", "1"}).status == 0);
  const auto before = bytes_of_weights(folder / "model");
  std::filesystem::create_directory_symlink(folder / "model", folder / "link");
  for (const char* output : {"model", "model/", "link", "link/", "../model/."}) {
    const std::string path = output[0] == '.' ? folder / "model" + "/" + output : folder / output;
    for (const words& more : {words{}, words{"--add-tokens", "<tool>"}}) {
      const auto result = run("finetune", words{"--model", folder / "model", "--data", text_file(folder), "--max-steps", "1", "--output-dir", path} + more);
      CAPTURE(result.err);
      CHECK(result.status == 2);
      CHECK(result.err == "finetune: --output-dir " + path + ": must not be the folder of --model, which would be overwritten\n");
    }
  }
  CHECK(bytes_of_weights(folder / "model") == before);
  CHECK_FALSE(holds(get_file(folder / "model/tokenizer.json"), "<tool>"));
}

TEST_CASE("a fine-tuned model keeps how its base samples texts, and says what it comes from") {
  const scratch_folder folder;
  REQUIRE(run("pretrain", pretrain_flags(folder, "model") + words{"--max-steps", "1"}).status == 0);
  CHECK(holds(get_file(folder / "model/README.md"), "library_name: transformers\n"));
  CHECK_FALSE(holds(get_file(folder / "model/README.md"), "base_model"));
  put_file(folder / "model/generation_config.json", R"({"do_sample": true, "temperature": 0.6})");
  auto config = xtrain::read_json(folder / "model/config.json");
  config.erase("eos_token_id");
  put_file(folder / "model/config.json", config.dump());
  const words finetune = {"--model", folder / "model", "--data", text_file(folder), "--max-steps", "1", "--micro-batch-size", "2"};
  for (const words& more : {words{}, words{"--tokenizer", "byte"}, words{"--tokenizer", folder / "model"}, words{"--add-tokens", "<tool>"}}) {
    const std::string out = folder / ("tuned" + std::to_string(more.size()) +
                                      (more.empty()                      ? ""
                                       : more.back().substr(0, 1) == "<" ? "t"
                                       : more.back().substr(0, 1) == "b" ? "b"
                                                                         : "m"));
    const auto result = run("finetune", finetune + more + words{"--output-dir", out});
    CAPTURE(result.err);
    REQUIRE(result.status == 0);
    const auto generation = xtrain::read_json(out + "/generation_config.json");
    CHECK(generation.value("do_sample", false));
    CHECK(generation.value("temperature", 0.0) == 0.6);
    // config.json names no end token: the tokenizer's and the class's apply
    CHECK(generation.at("eos_token_id") == xtrain::json::array({256, 2}));
    CHECK(xtrain::read_json(out + "/config.json").at("eos_token_id") == 256);
    CHECK(holds(get_file(out + "/README.md"), "base_model: \"" + folder / "model" + "\"\n"));
  }
  const auto adapted = run("finetune", finetune + words{"--lora-rank", "2", "--output-dir", folder / "adapter"});
  CAPTURE(adapted.err);
  REQUIRE(adapted.status == 0);
  const std::string card = get_file(folder / "adapter/README.md");
  CHECK(card.starts_with("---\nbase_model: "));
  CHECK(holds(card, "library_name: peft\n"));
  CHECK(holds(card, "- \"base_model:adapter:" + folder / "model" + "\"\n"));
  CHECK(holds(card, "- \"lora\"\n"));
}

TEST_CASE("answers that reinforcement learning generates end at the tokens of generation_config.json") {
  const scratch_folder folder;
  const words shape = {"--tokenizer",           "byte", "--num-layers", "1",  "--hidden-size",      "16",
                       "--num-attention-heads", "2",    "--seq-length", "32", "--micro-batch-size", "2"};
  REQUIRE(run("pretrain", shape + words{"--data", text_file(folder), "--output-dir", folder / "model", "--max-steps", "1"}).status == 0);
  const auto length = [&] {
    const auto result = run("grpo", {folder / "model", "--steps", "1"});
    CAPTURE(result.err);
    REQUIRE(result.status == 0);
    return last_number(result.out, "length ");
  };
  CHECK(length() > 8);
  xtrain::json every = xtrain::json::array();
  for (int i = 0; i < 257; ++i) every.push_back(i);
  put_file(folder / "model/generation_config.json", xtrain::json{{"eos_token_id", every}}.dump());
  CHECK(length() == 1);
}

TEST_CASE("generate reads a prefix beside the model, in PEFT's format and in ChatGLM's") {
  struct prefix_run : xtrain::defaults {
    using adapter = xtrain::prefix_tuning;
  };
  const scratch_folder folder;
  REQUIRE(run("pretrain", pretrain_flags(folder, "base") + words{"--max-steps", "2"}).status == 0);
  const words flags = {"--model", folder / "base", "--prompt", "abc", "--temperature", "0", "--max-new-tokens", "8", "--ids"};
  const auto plain = run("generate", flags);
  for (const bool counts : {true, false}) {
    auto model = xtrain::llama<prefix_run>::from_pretrained(folder / "base", {}, {.adapter = {.length = 3, .counts_in_positions = counts}});
    const std::string prefix = folder / (counts ? "peft" : "chatglm");
    xtrain::save_pretrained(model, prefix);
    xtrain::generator generator(model);
    std::string expected;
    for (const xtrain::token t : generator.generate(std::vector<xtrain::token>{'a', 'b', 'c'}, {.max_new_tokens = 8, .sampling = {.temperature = 0}}))
      expected += xtrain::concat(expected.empty() ? "" : " ", t);
    const auto result = run("generate", flags + words{"--adapter", prefix});
    CAPTURE(result.err);
    CHECK(result.status == 0);
    CHECK(result.out == expected);
    CHECK(result.out != plain.out);
  }
}

TEST_CASE("a run does not go on with another model, and an adapter not with other weights") {
  const scratch_folder folder;
  const auto flags = [&](const std::string& output) { return pretrain_flags(folder, output) + words{"--max-steps", "2", "--save-steps", "2"}; };
  const auto refused = [&](const std::string& program, const words& all, const std::string& part) {
    const auto result = run(program, all);
    CAPTURE(result.err);
    CHECK(result.status == 2);
    CHECK(holds(result.err, part));
  };
  REQUIRE(run("pretrain", flags("one")).status == 0);
  REQUIRE(run("pretrain", flags("two") + words{"--seed", "7"}).status == 0);
  refused("pretrain", flags("one") + words{"--resume", "--model-type", "mistral"}, "its model_type was \"llama\", now it is \"mistral\"");
  auto heads = flags("one") + words{"--resume"};
  for (std::size_t i = 0; i < heads.size(); ++i)
    if (heads[i] == "--num-attention-heads") heads[i + 1] = "4";
  refused("pretrain", heads, "a resumed run must have the same model; its head_dim was 8, now it is 4");

  const words adapter = {"--data", text_file(folder), "--lora-rank", "2", "--max-steps", "2", "--save-steps", "2", "--output-dir", folder / "adapter"};
  const auto of = [&](const std::string& model) { return words{"--model", folder / model} + adapter; };
  REQUIRE(run("finetune", of("one")).status == 0);
  CHECK(run("finetune", of("one") + words{"--resume"}).status == 0);
  refused("finetune", of("two") + words{"--resume"}, "must train the adapter of the same weights; those of " + folder / "two");
  put_file(folder / "theta.json", R"({"rope_theta": 500.0})");
  refused("finetune", of("one") + words{"--resume", "--override-config", folder / "theta.json"}, "its rope_theta was 10000.0, now it is 500.0");
  const auto dropout = run("finetune", of("one") + words{"--resume", "--lora-dropout", "0.5"});
  CHECK(dropout.status == 0);
  CHECK(holds(dropout.err, "lora_dropout is 0.5, it was 0.0"));
}

TEST_CASE("a real model writes its known text, and learns from other text") {
  const std::string model = test_data("models/stories260K/hf"), tokenizer = test_data("models/stories260K/tok512.model");
  const std::string golden = test_data("models/stories260K/golden_greedy_200.txt"), text = test_data("text/tinyshakespeare.txt");
  if (model.empty() || text.empty()) {
    MESSAGE("skipped: XTRAIN_TEST_DATA does not lead to stories260K");
    return;
  }
  const auto story =
      run("generate", {"--model", model, "--tokenizer", tokenizer, "--prompt", "", "--max-new-tokens", "200", "--temperature", "0"});
  CAPTURE(story.err);
  REQUIRE(story.status == 0);
  std::string expected = get_file(golden);
  while (expected.ends_with("\n")) expected.pop_back();
  CHECK(story.out == expected);

  const scratch_folder folder;
  const std::string whole = get_file(text);
  put_file(folder / "train.txt", whole.substr(0, 200000));
  put_file(folder / "held_out.txt", whole.substr(200000, 20000));
  const words flags = {"--model",   model, "--tokenizer", tokenizer, "--data", folder / "train.txt", "--eval-data", folder / "held_out.txt",
                       "--seq-length", "128", "--micro-batch-size",     "8"};
  // evaluation after one step with a tiny rate: the model's own loss
  const auto before = run("finetune", flags + words{"--max-steps", "1", "--learning-rate", "1e-12", "--output-dir", folder / "same"});
  REQUIRE(before.status == 0);
  const double own = last_number(before.err, "held-out loss ");
  for (const char* program : {"finetune", "finetune_bf16"}) {
    const auto full = run(program, flags + words{"--max-steps", "60", "--learning-rate", "1e-3", "--output-dir", folder / program});
    REQUIRE(full.status == 0);
    const auto lora = run(program, flags + words{"--max-steps", "60", "--learning-rate", "5e-3", "--lora-rank", "8", "--output-dir",
                                                 folder / (std::string(program) + "_lora")});
    REQUIRE(lora.status == 0);
    const double full_loss = last_number(full.err, "held-out loss "), lora_loss = last_number(lora.err, "held-out loss ");
    MESSAGE(std::string(program), ": held-out loss ", own, ", after full fine-tuning ", full_loss, ", after LoRA ", lora_loss);
    CHECK(full_loss < own - 0.5);
    CHECK(lora_loss < own - 0.3);
  }
}
