// The example `convert`, run as on a command line.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/gguf_file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/io.hpp>

#include "gguf_models.hpp"
#include "golden.hpp"
#include "program.hpp"
#include "scratch.hpp"

using namespace xtrain;

namespace {

struct plain : defaults {};
struct four_bits : defaults {
  using adapter = qlora;
};

program_result convert(std::vector<std::string> flags) {
  flags.insert(flags.begin(), EXAMPLES "/convert");
  return run_program(std::move(flags));
}
bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Two sources with the same tensors, bit for bit.
void check_same(const tensor_source& a, const tensor_source& b) {
  REQUIRE(a.tensors().size() == b.tensors().size());
  for (const auto& [name, tensor] : a.tensors()) {
    const std::string& which = name;
    CAPTURE(which);
    const file_tensor* other = b.find(name);
    REQUIRE(other != nullptr);
    REQUIRE(other->shape == tensor->shape);
    REQUIRE(other->dtype == tensor->dtype);
    std::vector<std::byte> x(tensor->size() * bits_of(tensor->dtype) / 8), y(x.size());
    read_elements(*tensor, 0, x);
    read_elements(*other, 0, y);
    CHECK(x == y);
  }
}

void refuses(const std::vector<std::string>& flags, const std::string& words, int status) {
  const auto result = convert(flags);
  CAPTURE(result.err);
  CHECK(result.status == status);
  CHECK(holds(result.err, words));
}

}  // namespace

TEST_CASE("a LLaMA goes to llama2.c and back, a GPT-2 to llm.c and back, and nothing changes") {
  const scratch_folder f;
  save_pretrained(
      llama<plain>({.vocab_size = 11, .hidden_size = 16, .num_layers = 2, .num_heads = 4, .num_kv_heads = 2, .max_position_embeddings = 7}),
      f / "llama");
  save_pretrained(gpt2<plain>({.vocab_size = 150, .hidden_size = 12, .num_layers = 2, .num_heads = 3, .max_position_embeddings = 9}), f / "gpt2");
  for (const auto& [model, format] : {std::pair{"llama", "llama2c"}, {"llama", "llama2c-v1"}, {"gpt2", "llmc"}}) {
    const std::string file = f / (std::string(format) + ".bin"), back = f / (std::string(format) + "-back");
    const auto there = convert({"--from", f / model, "--to", file, "--format", format});
    CAPTURE(there.err);
    REQUIRE(there.status == 0);
    const auto returned = convert({"--from", file, "--to", back});
    REQUIRE(returned.status == 0);
    CHECK(holds(returned.out, "renamed    all"));
    CHECK(!holds(returned.out, "converted"));
    check_same(weight_folder(f / model), weight_folder(back));
  }
  CHECK_NOTHROW((void)llama<plain>::from_pretrained(f / "llama2c-back"));
  CHECK_NOTHROW((void)gpt2<plain>::from_pretrained(f / "llmc-back"));
}

TEST_CASE("a folder is converted to another type, in shards, and the report says what that cost") {
  const scratch_folder f;
  const std::string from = golden::folder("llama_tied");
  const auto result = convert({"--from", from, "--to", f / "narrow", "--dtype", "bf16", "--max-shard-size", "8K"});
  CAPTURE(result.err);
  REQUIRE(result.status == 0);
  CHECK(holds(result.out, "converted  "));
  CHECK(holds(result.out, " tensors from F32 to BF16"));
  CHECK(holds(result.out, "rounding   at most "));
  CHECK(file_exists(f / "narrow" + "/model.safetensors.index.json"));
  const weight_folder before(from), after(f / "narrow");
  rounding_error error;
  for (const auto& [name, tensor] : before.tensors()) {
    measure_rounding(*tensor, "BF16", error);
    std::vector<bf16> expected(tensor->size()), got(tensor->size());
    read_numbers<bf16>(*tensor, 0, expected);
    read_numbers<bf16>(*after.find(name), 0, got);
    CHECK(std::equal(got.begin(), got.end(), expected.begin(), [](bf16 a, bf16 b) { return a.bits == b.bits; }));
  }
  CHECK(holds(result.out, " in " + error.tensor + "\n"));
  const json config = read_json(f / "narrow" + "/config.json");
  CHECK(config.value(config.contains("dtype") ? "dtype" : "torch_dtype", "") == "bfloat16");
  CHECK_NOTHROW((void)llama<plain>::from_pretrained(f / "narrow"));
  // widening loses nothing
  const auto wide = convert({"--from", f / "narrow", "--to", f / "wide", "--dtype", "fp32"});
  CHECK(holds(wide.out, "rounding   none: every number is the same"));
}

TEST_CASE("linear layers are quantized to four bits, as values or packed") {
  const scratch_folder f;
  save_pretrained(llama<plain>({.vocab_size = 11, .hidden_size = 16, .num_layers = 2, .num_heads = 4, .num_kv_heads = 2, .max_position_embeddings = 7,
                                .tie_word_embeddings = false}),
                  f / "llama");
  const std::size_t plain_tensors = weight_folder(f / "llama").tensors().size();
  for (const char* how : {"int4", "int4-weight-only"}) {
    const auto result = convert({"--from", f / "llama", "--to", f / how, "--quantize", how, "--group-size", "8"});
    CAPTURE(result.err);
    REQUIRE(result.status == 0);
    CHECK(holds(result.out, concat("quantized  14 weights of linear layers to ", how, " in groups of 8, stored as the values")));
    CHECK_NOTHROW((void)llama<plain>::from_pretrained(f / how));
  }
  const auto packed = convert({"--from", f / "llama", "--to", f / "packed", "--quantize", "int4", "--group-size", "8", "--packed"});
  CAPTURE(packed.err);
  REQUIRE(packed.status == 0);
  const weight_folder four_bits(f / "packed");
  CHECK(four_bits.tensors().size() == plain_tensors + 2 * 14);
  const file_tensor* codes = four_bits.find("model.layers.0.self_attn.q_proj.weight_packed");
  REQUIRE(codes != nullptr);
  CHECK(codes->shape == std::vector<std::size_t>{16, 2});
  CHECK(four_bits.find("lm_head.weight") != nullptr);
  CHECK(read_json(f / "packed" + "/config.json")["quantization_config"]["config_groups"]["group_0"]["weights"]["group_size"] == 8);
}

struct with_lora : defaults {
  using adapter = lora;
};

TEST_CASE("an adapter is merged into the weights of its base model, in their dtype") {
  const scratch_folder f;
  save_pretrained(llama<plain>({.vocab_size = 11, .hidden_size = 16, .num_layers = 2, .num_heads = 4, .intermediate_size = 24, .max_position_embeddings = 7}),
                  f / "base");
  auto model = llama<with_lora>::from_pretrained(f / "base", {}, {.adapter = {.rank = 2, .alpha = 8, .dora = true}});
  for (const auto& entry : model.parameters().entries()) {
    if (!entry.spec.name.ends_with("lora_B.weight")) continue;
    std::vector<float> values(entry.size());
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.01F * static_cast<float>(i % 7);
    model.parameters().set(model.stream(), entry, std::span<const float>(values));
  }
  save_pretrained(model, f / "lora", save_adapter_options{.base_model = f / "base"});
  auto expected = llama<plain>::from_pretrained(f / "base");
  merge_adapter(expected, f / "lora");
  save_pretrained(expected, f / "expected");

  const auto done = convert({"--from", f / "base", "--adapter", f / "lora", "--to", f / "merged"});
  REQUIRE(done.status == 0);
  check_same(weight_folder(f / "expected"), weight_folder(f / "merged"));
  CHECK_FALSE(std::filesystem::exists(f / "merged.merging"));

  // bf16 base model: the sum is rounded once
  REQUIRE(convert({"--from", f / "base", "--to", f / "base16", "--dtype", "bf16"}).status == 0);
  auto rounded = llama<plain>::from_pretrained(f / "base16");
  merge_adapter(rounded, f / "lora");
  save_pretrained(rounded, f / "rounded");
  REQUIRE(convert({"--from", f / "rounded", "--to", f / "expected16", "--dtype", "bf16"}).status == 0);
  REQUIRE(convert({"--from", f / "base16", "--adapter", f / "lora", "--to", f / "merged16"}).status == 0);
  check_same(weight_folder(f / "expected16"), weight_folder(f / "merged16"));

  refuses({"--from", f / "base", "--adapter", f / "lora", "--to", f / "base"}, "--to: must not be --from", 2);
  refuses({"--from", f / "base", "--adapter", f / "lora", "--to", f / "lora"}, "--to: must not be the adapter's folder", 2);
  refuses({"--from", f / "base", "--adapter", f / "nothing", "--to", f / "to"}, "must be a folder with an adapter", 1);
  CHECK_FALSE(std::filesystem::exists(f / "to"));
  CHECK_FALSE(std::filesystem::exists(f / "to.merging"));
}

TEST_CASE("an adapter that was trained with another vocabulary is merged with its own embedding and head") {
  const scratch_folder f;
  const decoder_config c{.vocab_size = 11, .hidden_size = 16, .num_layers = 1, .num_heads = 4, .intermediate_size = 24, .max_position_embeddings = 7,
                         .tie_word_embeddings = false};
  save_pretrained(llama<plain>(c), f / "base");
  for (const std::size_t rows : {14U, 9U}) {
    decoder_config resized = c;
    resized.vocab_size = rows;
    const lora_config adapter{.rank = 2, .alpha = 8, .targets = {"q_proj"}, .modules_to_save = {"embed_tokens", "lm_head"}};
    auto model = load_as<llama<with_lora>>(f / "base", resized, {}, {.adapter = adapter}, {.resize_vocabulary = true});
    for (const auto& entry : model.parameters().entries()) {
      if (!entry.spec.trainable) continue;
      std::vector<float> values(entry.size());
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.01F * static_cast<float>(i % 13);
      model.parameters().set(model.stream(), entry, std::span<const float>(values));
    }
    save_pretrained(model, f / "lora");
    auto expected = load_as<llama<plain>>(f / "base", resized, {}, {}, {.resize_vocabulary = true});
    merge_adapter(expected, f / "lora");
    save_pretrained(expected, f / "expected");
    const auto done = convert({"--from", f / "base", "--adapter", f / "lora", "--to", f / "merged"});
    CAPTURE(done.err);
    REQUIRE(done.status == 0);
    check_same(weight_folder(f / "expected"), weight_folder(f / "merged"));
    CHECK(read_sizes<llama_family>(f / "merged").vocab_size == rows);
  }
  // the adapter lacks the head: its new rows are unknown
  decoder_config resized = c;
  resized.vocab_size = 14;
  const lora_config half{.rank = 2, .targets = {"q_proj"}, .modules_to_save = {"embed_tokens"}};
  save_pretrained(load_as<llama<with_lora>>(f / "base", resized, {}, {.adapter = half}, {.resize_vocabulary = true}), f / "half");
  refuses({"--from", f / "base", "--adapter", f / "half", "--to", f / "to"},
          "the embedding and the head must have the same number of rows; with this adapter they have 14 and 11", 2);
}

TEST_CASE("weights without a number are refused, and the script that gathers DeepSpeed's is named") {
  const scratch_folder f;
  const std::string config = golden::folder("llama_tied") + "/config.json";
  const auto of = [](const char* name) { return tensor_to_write{.name = name, .dtype = "BF16", .shape = {0}, .bytes = 0, .produce = [](const auto&) {}}; };
  write_safetensors(f / "placeholders.safetensors", {of("model.embed_tokens.weight"), of("model.norm.weight")});
  write_safetensors(f / "nothing.safetensors", {});
  refuses({"--from", f / "placeholders.safetensors", "--config", config, "--to", f / "to"}, "python zero_to_fp32.py CHECKPOINT OUTPUT", 1);
  refuses({"--from", f / "nothing.safetensors", "--config", config, "--to", f / "to"}, "must hold tensors; it holds none", 1);
  make_folder(f / "checkpoint");
  write_file(f / "checkpoint" + "/zero_to_fp32.py", "");
  refuses({"--from", f / "checkpoint", "--config", config, "--to", f / "to"}, "It is a checkpoint of DeepSpeed", 1);
  CHECK_FALSE(std::filesystem::exists(f / "to"));
}

TEST_CASE("weights that are not finite are not quantized: integers would hide them") {
  const scratch_folder f;
  for (const float damage : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    llama<plain> model({.vocab_size = 11, .hidden_size = 16, .num_layers = 2, .num_heads = 4, .intermediate_size = 64, .max_position_embeddings = 7});
    const std::string name = "model.layers.1.mlp.up_proj.weight";
    std::vector<float> values(64 * 16, 0.5F);
    values[19] = damage;
    model.parameters().set(model.stream(), *model.parameters().find(name), std::span<const float>(values));
    save_pretrained(model, f / "damaged");
    const std::string words = concat("quantized weights: weights must be finite; '", name, "' has ", damage, " at 19");
    refuses({"--from", f / "damaged", "--to", f / "to", "--quantize", "int4", "--group-size", "8"}, words, 1);
    refuses({"--from", f / "damaged", "--to", f / "to", "--quantize", "int4-weight-only", "--group-size", "8"}, words, 1);
    refuses({"--from", f / "damaged", "--to", f / "to", "--quantize", "int4", "--group-size", "8", "--packed"}, words, 1);
    CHECK_FALSE(std::filesystem::exists(f / "to"));
  }
}

TEST_CASE("what cannot be converted is refused, and nothing is written") {
  const scratch_folder f;
  const std::string llama_folder = golden::folder("llama_tied"), to = f / "to";
  refuses({"--from", llama_folder, "--to", to, "--format", "llmc"}, "must describe a 'gpt2' model to be written for llm.c", 2);
  refuses({"--from", llama_folder, "--to", to, "--format", "llama2c", "--dtype", "bf16"},
          "--dtype bf16: must be fp32 for --format llama2c", 2);
  refuses({"--from", golden::folder("gpt2"), "--to", to, "--format", "llmc", "--dtype", "fp16"}, "--dtype fp16: must be fp32 or bf16", 2);
  refuses({"--from", llama_folder + "/model.safetensors", "--to", to}, "--config: must be given: a safetensors file holds no sizes", 2);
  refuses({"--from", llama_folder + "/config.json", "--to", to}, "it begins as none of them", 1);
  refuses({"--from", f / "none", "--to", to}, "must be a readable file", 1);
  refuses({"--from", llama_folder, "--to", to, "--max-shard-size", "big"}, "--max-shard-size big: must be a number of bytes", 2);
  refuses({"--from", llama_folder, "--to", to, "--format", "ggml"}, "must be one of hf, gguf, llmc, llama2c, llama2c-v1; given 'ggml'", 2);
  refuses({"--from", llama_folder, "--to", to, "--dtpe", "bf16"}, "did you mean '--dtype'?", 2);
  refuses({"--from", llama_folder}, "--to is required", 2);
  refuses({"--from", llama_folder, "--to", to, "--quantize", "int4", "--group-size", "7"}, "--group-size 7: quantized weights: groups must divide", 2);
  refuses({"--from", llama_folder, "--to", to, "--quantize", "int4", "--group-size", "12", "--packed"}, "must be a multiple of 8; '", 2);
  refuses({"--from", llama_folder, "--to", to, "--quantize", "int4-weight-only", "--packed"}, "--packed: must be used with --quantize int4; given", 2);
  refuses({"--from", golden::folder("gpt2"), "--to", to, "--quantize", "int4", "--group-size", "4", "--packed"}, "whose files hold [out, in]", 2);
  refuses({"--from", llama_folder, "--to", to, "--quantize", "int4", "--format", "llama2c"}, "--quantize: must be used with --format hf", 2);
  refuses({"--from", llama_folder, "--to", to, "--group-size", "8"}, "--group-size requires --quantize", 2);
  refuses({"--from", llama_folder, "--to", llama_folder, "--quantize", "int4"}, "--to: must not be --from, whose weights would be lost", 2);
  refuses({"--from", llama_folder, "--to", llama_folder + "/.", "--dtype", "bf16"}, "--to: must not be --from, whose weights would be lost", 2);
  refuses({"--from", llama_folder, "--to", llama_folder + "/model.safetensors", "--format", "llama2c"}, "--to: must not be --from", 2);
  refuses({"--from", llama_folder + "/model.safetensors", "--to", llama_folder + "/model.safetensors", "--format", "llama2c", "--config",
           llama_folder + "/config.json"},
          "--to: must not be --from", 2);
  refuses({"--from", llama_folder + "/model.safetensors", "--to", llama_folder, "--config", llama_folder + "/config.json", "--dtype", "bf16"},
          "--to: must not be --from", 2);
  const std::vector<float> large = {70000.0f};
  write_safetensors(f / "big.safetensors",
                    {rewritten({.name = "w", .dtype = "F32", .shape = {1}, .bytes = std::as_bytes(std::span(large))}, "F32")});
  refuses({"--from", f / "big.safetensors", "--config", llama_folder + "/config.json", "--to", to, "--dtype", "fp16"},
          "tensor 'w': numbers must be at most 65504 to be stored as fp16; one is 70000", 1);
  CHECK(!file_exists(to));
}

TEST_CASE("a folder whose tensors are not those of its config.json is written with a warning that says what is wrong") {
  const scratch_folder f;
  const std::string from = golden::folder("llama_tied");
  const auto converted = [&](const std::string& name, const std::function<void(std::vector<tensor_to_write>&)>& change) {
    make_folder(f / name);
    write_file(f / name + "/config.json", get_file(from + "/config.json"));
    const weight_folder whole(from);
    std::vector<tensor_to_write> tensors;
    for (const auto& entry : whole.tensors()) tensors.push_back(rewritten(*entry.second, entry.second->dtype));
    change(tensors);
    write_safetensors(f / name + "/model.safetensors", std::move(tensors));
    const auto result = convert({"--from", f / name, "--to", f / name + "-to"});
    CHECK(result.status == 0);
    return result.err;
  };
  CHECK(converted("whole", [](auto&) {}).empty());
  const std::string missing = converted("missing", [](auto& tensors) {
    std::erase_if(tensors, [](const tensor_to_write& one) { return one.name == "model.layers.0.mlp.up_proj.weight"; });
  });
  CHECK(holds(missing, "warning: xtrain would not load what is written: "));
  CHECK(holds(missing, ": must hold 'model.layers.0.mlp.up_proj.weight', because config.json asks for it; it is missing"));
  CHECK(holds(converted("more", [](auto& tensors) { tensors.front().name = "model.layers.0.mlp.other.weight"; }), "warning: "));
  CHECK(holds(converted("added", [](auto& tensors) {
                tensors.push_back(tensors.front());
                tensors.back().name = "model.extra.weight";
              }),
              ": holds 'model.extra.weight', which has no counterpart in the model that config.json describes"));
}

TEST_CASE("a real model of llama2.c becomes a folder that holds what its twin holds") {
  const std::string folder = test_data("models/stories260K");
  if (folder.empty()) {
    MESSAGE("skipped: XTRAIN_TEST_DATA does not lead to stories260K");
    return;
  }
  const scratch_folder f;
  const auto result = convert({"--from", folder + "/stories260K.bin", "--to", f / "hf", "--tokenizer", folder + "/tok512.model"});
  CAPTURE(result.err);
  REQUIRE(result.status == 0);
  check_same(weight_folder(folder + "/hf"), weight_folder(f / "hf"));
  CHECK(read_sizes<llama_family>(f / "hf") == read_sizes<llama_family>(folder + "/hf"));
  CHECK(get_file(f / "hf" + "/tokenizer.model") == get_file(folder + "/tok512.model"));
}

TEST_CASE("a quantized GGUF file is fine-tuned as the folder of its numbers is, with the same adapter, and merged") {
  const scratch_folder f;
  const std::string file = f / "model.gguf", numbers = f / "numbers";
  put_file(file, gguf_bytes::quantized_llama());
  const auto done = [](const program_result& result) {
    CAPTURE(result.err);
    REQUIRE(result.status == 0);
    return result.out;
  };
  done(convert({"--from", file, "--to", numbers}));
  std::string texts;
  for (int i = 0; i < 8; ++i) texts += concat("{\"text\": \"the inn ", i, " is white\"}\n");
  put_file(f / "texts.jsonl", texts);
  std::string last_lines;
  const auto train = [&](const std::string& model, const std::string& to, const std::vector<std::string>& more = {}) {
    std::vector<std::string> line{EXAMPLES "/finetune", "--model", model, "--data", f / "texts.jsonl", "--lora-rank", "4", "--num-train-epochs", "2",
                                  "--micro-batch-size", "2", "--output-dir", f / to};
    line.insert(line.end(), more.begin(), more.end());
    const program_result result = run_program(std::move(line));
    done(result);
    last_lines = result.err;
    return get_file(f / to + "/adapter_model.safetensors");
  };
  const std::string trained = train(file, "of-file");
  CHECK(trained == train(numbers, "of-numbers"));
  CHECK(trained == train(file, "in-blocks", {"--keep-blocks"}));
  CHECK(holds(last_lines, "7 matrices are stored in the file's blocks; 2 others of its blocks were decoded, the first is model.embed_tokens.weight"));
  const auto refused = run_program({EXAMPLES "/finetune", "--model", numbers, "--data", f / "texts.jsonl", "--lora-rank", "4", "--keep-blocks", "--output-dir",
                                    f / "none"});
  CHECK(refused.status != 0);
  CHECK(holds(refused.err, "must be a GGUF file with matrices in blocks, such as Q8_0 or Q4_K; it has none"));
  done(convert({"--from", file, "--adapter", f / "of-file", "--to", f / "merged"}));
  done(convert({"--from", numbers, "--adapter", f / "of-numbers", "--to", f / "merged-numbers"}));
  check_same(weight_folder(f / "merged"), weight_folder(f / "merged-numbers"));
  const auto text = [&](std::vector<std::string> model) {
    model.insert(model.begin(), EXAMPLES "/generate");
    for (const char* flag : {"--prompt", "the inn", "--max-new-tokens", "12", "--ids"}) model.push_back(flag);
    return done(run_program(std::move(model)));
  };
  const std::string said = text({"--model", f / "merged"});
  CHECK(!said.empty());
  CHECK(said == text({"--model", file, "--adapter", f / "of-file"}));
  refuses({"--from", f / "texts.jsonl", "--adapter", f / "of-file", "--to", f / "x"}, "must be given with a folder of a model, or a GGUF file, as --from", 2);

  // 4-bit too: the file's numbers are quantized again
  auto of_file = llama<four_bits>::from_pretrained(file), of_numbers = llama<four_bits>::from_pretrained(numbers);
  array<token, 2> tokens(shape_of_rank<2>{1, 6});
  for (std::size_t i = 0; i < 6; ++i) tokens.data()[i] = static_cast<token>(40 * i + 3);
  const auto x = logits(of_file, tokens), y = logits(of_numbers, tokens);
  CHECK(std::equal(x.begin(), x.end(), y.begin(), y.end()));
}

TEST_CASE("a model and an adapter go to files of GGUF, and the model back") {
  const scratch_folder f;
  const std::string base = golden::folder("llama_grouped_untied"), adapter = golden::folder("llama_lora");
  const auto there = convert({"--from", base, "--to", f / "x.gguf"});
  CAPTURE(there.err);
  REQUIRE(there.status == 0);
  CHECK(holds(there.out, "tensors in F32"));
  REQUIRE(convert({"--from", f / "x.gguf", "--to", f / "back"}).status == 0);
  check_same(weight_folder(base), weight_folder(f / "back"));
  REQUIRE(convert({"--from", f / "x.gguf", "--to", f / "y.gguf", "--type", "f16"}).status == 0);
  CHECK(gguf_file(f / "y.gguf").integer("general.file_type") == 1);
  const auto lora = convert({"--from", adapter, "--config", base + "/config.json", "--to", f / "lora.gguf"});
  CAPTURE(lora.err);
  REQUIRE(lora.status == 0);
  CHECK(holds(lora.out, "tensors of an adapter"));
  CHECK(gguf_file(f / "lora.gguf").text("general.type") == "adapter");
  const auto merged = convert({"--from", base, "--adapter", adapter, "--to", f / "merged.gguf"});
  CAPTURE(merged.err);
  REQUIRE(merged.status == 0);
  CHECK(gguf_file(f / "merged.gguf").tensors().size() == gguf_file(f / "x.gguf").tensors().size());
  refuses({"--from", base, "--to", f / "z", "--type", "f16"}, "--type: must be used with --format gguf", 2);
  refuses({"--from", base, "--to", f / "z.gguf", "--format", "hf"}, "--to: must be a folder for --format hf", 2);
  refuses({"--from", base, "--to", f / "z.gguf", "--dtype", "bf16"}, "--dtype bf16: must be left out: --type says it for --format gguf", 2);
  refuses({"--from", adapter, "--to", f / "z.gguf"}, "--config: must be given, the config.json of the adapter's base model", 2);
  refuses({"--from", adapter, "--to", f / "z"}, "--format: must be gguf for the folder of an adapter", 2);
  for (const char* flag : {"--tokenizer", "--max-shard-size", "--override-config"})
    refuses({"--from", adapter, "--config", base, "--to", f / "z.gguf", flag, base}, concat(flag, ": must be used with a model as --from, not an adapter"), 2);
  put_file(f / "cut.gguf", get_file(f / "x.gguf").substr(0, 40));
  refuses({"--from", f / "cut.gguf", "--to", f / "z"}, concat("--from ", f / "cut.gguf", ": "), 1);
  refuses({"--from", golden::folder("aquila"), "--to", f / "z.gguf"}, "of a family that llama.cpp has", 2);
  CHECK(!file_exists(f / "z.gguf"));
}

namespace {

/// llama.cpp's first tokens after a text, by llama-cpp-python of the Python in XTRAIN_TEST_LLAMA_CPP, else python3; empty without the package.
std::vector<std::string> text_of_llama_cpp(const scratch_folder& f, const std::string& model, const std::string& adapter = {}) {
  const char* named = std::getenv("XTRAIN_TEST_LLAMA_CPP");
  const std::string python = named != nullptr ? named : "python3";
  if (run_program({"/usr/bin/env", python, "-c", "import llama_cpp"}).status != 0) return {};
  put_file(f / "text.py", "import sys, llama_cpp\n"
                          "lora = sys.argv[2] or None\n"
                          "model = llama_cpp.Llama(sys.argv[1], n_ctx=64, verbose=False, lora_path=lora, type_k=0, type_v=0)\n"
                          "tokens = model.tokenize(b'the inn', add_bos=True, special=False)\n"
                          "out = []\n"
                          "for token in model.generate(tokens, temp=0.0, repeat_penalty=1.0):\n"
                          "    if token == model.token_eos() or len(out) == 12: break\n"
                          "    out.append(token)\n"
                          "print(*out, end='')\n");
  const auto said = run_program({"/usr/bin/env", python, f / "text.py", model, adapter});
  CAPTURE(said.err);
  REQUIRE(said.status == 0);
  return {said.out};
}

}  // namespace

TEST_CASE("the whole way of a GGUF file: an adapter is trained, written as a file and merged, and all of them, and llama.cpp, say the same") {
  const scratch_folder f;
  const std::string file = f / "model.gguf";
  put_file(f / "small.gguf", gguf_bytes::quantized_llama());
  const auto done = [](const program_result& result) {
    CAPTURE(result.err);
    REQUIRE(result.status == 0);
    return result.out;
  };
  done(convert({"--from", f / "small.gguf", "--to", file, "--type", "f32"}));  // in F32 llama.cpp rounds nothing to 8 bits
  std::string texts;
  for (int i = 0; i < 8; ++i) texts += concat("{\"text\": \"the inn ", i, " is white\"}\n");
  put_file(f / "texts.jsonl", texts);
  done(run_program({EXAMPLES "/finetune", "--model", file, "--data", f / "texts.jsonl", "--lora-rank", "4", "--num-train-epochs", "12",
                    "--learning-rate", "2e-3", "--micro-batch-size", "2", "--output-dir", f / "adapter"}));
  const auto text = [&](std::vector<std::string> model) {
    model.insert(model.begin(), EXAMPLES "/generate");
    for (const char* flag : {"--prompt", "the inn", "--max-new-tokens", "12", "--ids"}) model.push_back(flag);
    std::string said = done(run_program(std::move(model)));
    while (said.ends_with('\n') || said.ends_with(' ')) said.pop_back();
    return said;
  };
  const std::string before = text({"--model", file}), after = text({"--model", file, "--adapter", f / "adapter"});
  CHECK(before != after);

  done(convert({"--from", file, "--adapter", f / "adapter", "--to", f / "merged.gguf"}));
  CHECK(text({"--model", f / "merged.gguf"}) == after);
  done(convert({"--from", f / "adapter", "--config", file, "--to", f / "adapter.gguf"}));
  CHECK(text({"--model", file, "--adapter", f / "adapter.gguf"}) == after);
  done(convert({"--from", f / "adapter.gguf", "--config", file, "--to", f / "back"}));
  check_same(weight_file(f / "adapter/adapter_model.safetensors"), weight_file(f / "back/adapter_model.safetensors"));
  std::filesystem::create_directory(f / "2");
  done(convert({"--from", file, "--adapter", f / "adapter.gguf", "--to", f / "2/merged.gguf"}));
  check_same(weight_file(f / "merged.gguf"), weight_file(f / "2/merged.gguf"));
  refuses({"--from", f / "adapter.gguf", "--to", f / "x"}, "--config: must be given, the model or config.json that the adapter is for", 2);
  refuses({"--from", f / "adapter.gguf", "--config", file, "--to", f / "x.gguf"}, "--format: must be hf for the GGUF file of an adapter", 2);

  const std::vector<std::string> theirs = text_of_llama_cpp(f, f / "merged.gguf");
  if (theirs.empty()) {
    MESSAGE("llama.cpp's text was not compared: the package llama-cpp-python is missing");
    return;
  }
  CHECK(theirs.front() == after);
  CHECK(text_of_llama_cpp(f, file).front() == before);
  CHECK(text_of_llama_cpp(f, file, f / "adapter.gguf").front() == after);
}
