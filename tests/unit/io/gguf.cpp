// GGUF files: metadata, dequantized numbers, and models of every architecture, against llama.cpp's package gguf and transformers (tests/golden/gguf).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <xtrain/adapt/gguf_adapter.hpp>
#include <xtrain/adapt/gguf_adapter_folder.hpp>
#include <xtrain/core/gguf_file.hpp>
#include <xtrain/core/gguf_writer.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/io.hpp>
#include <xtrain/io/gguf.hpp>
#include <xtrain/io/gguf_save.hpp>
#include <xtrain/io/gguf_tensors.hpp>
#include <xtrain/models/families.hpp>
#include <xtrain/text.hpp>
#include <xtrain/text/gguf_tokenizer_writer.hpp>
#include <xtrain/train/trainer.hpp>
#include "gguf_bytes.hpp"
#include "parity.hpp"

using namespace xtrain;
using namespace gguf_bytes;

namespace {

using any_model = any_decoder<parity::fp32_recipe>;

std::string fixture(const std::string& name) { return golden::folder("gguf/" + name); }

/// The thrown message, or empty.
std::string thrown(const std::function<void()>& run) {
  try {
    run();
  } catch (const xtrain::error& problem) {
    return problem.what();
  }
  return {};
}

void check_refused(const std::string& contents, const std::string& because) {
  const scratch_folder folder;
  put_file(folder / "x.gguf", contents);
  const std::string problem = thrown([&] { (void)gguf_file(folder / "x.gguf"); });
  CHECK_MESSAGE(problem.find(because) != std::string::npos, "'", problem, "' must say '", because, "'");
}

file_tensor tensor_of(const gguf_file& file, std::string_view name) {
  for (const gguf_tensor& tensor : file.tensors())
    if (tensor.name == name) return {.name = std::string(name), .dtype = std::string(tensor.type), .shape = tensor.shape, .bytes = tensor.bytes};
  throw file_error(concat(file.path(), " has no ", name));
}

template <class T>
bool same_numbers(const file_tensor& a, const file_tensor& b, std::size_t first = 0) {
  std::vector<T> x(a.size() - first), y(b.size() - first);
  read_numbers<T>(a, first, x);
  read_numbers<T>(b, first, y);
  return a.size() == b.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0;
}

/// A file with one F32 tensor of two numbers and one of four.
std::string two_tensors(const std::string& first, const std::string& second, std::size_t bytes = 48) {
  return file({of_text("general.architecture", "none")}, {first, second}, std::string(bytes, '\1'));
}

}  // namespace

TEST_CASE("metadata of every type are read, and refused as another type") {
  const gguf_file file(fixture("types.gguf"));
  CHECK(file.version() == 3);
  CHECK(file.integer("one.u8") == 200);
  CHECK(file.integer("one.i8") == -100);
  CHECK(file.integer("one.u16") == 60000);
  CHECK(file.integer("one.i16") == -30000);
  CHECK(file.integer("one.u32") == 4000000000);
  CHECK(file.integer("one.i32") == -2000000000);
  CHECK(file.size("one.u64") == std::size_t{1} << 40);
  CHECK(file.integer("one.i64") == -(std::int64_t{1} << 40));
  CHECK(file.number("one.f32") == static_cast<double>(0.1f));
  CHECK(file.number("one.f64") == 0.1);
  CHECK(file.number("one.i8") == -100.0);
  CHECK(file.flag("one.flag") == true);
  CHECK(file.text("one.text") == "text");
  CHECK(file.texts("of.strings") == std::vector<std::string_view>{"", "a", "\u00e9"});
  CHECK(file.numbers("of.floats") == std::vector<double>{0.5, -2.0});
  CHECK(file.integers("of.integers") == std::vector<std::int64_t>{3, -4});
  CHECK(!file.has("none"));
  CHECK(!file.text("none").has_value());
  CHECK(file.texts("none").empty());
  CHECK(thrown([&] { (void)file.integer("one.f32"); }).find("'one.f32' must be an integer; its type is f32") != std::string::npos);
  CHECK(thrown([&] { (void)file.size("one.i8"); }).find("'one.i8' must be non-negative; it is -100") != std::string::npos);
  CHECK(thrown([&] { (void)file.text("of.strings"); }).find("'of.strings' must be one value; it is an array") != std::string::npos);
  CHECK(thrown([&] { (void)file.texts("of.floats"); }).find("'of.floats' must hold strings; it holds f32") != std::string::npos);
  CHECK(thrown([&] { (void)file.flag("one.u8"); }).find("must be a bool") != std::string::npos);
}

TEST_CASE("numbers of every type are those that the package gguf makes of it, in any layout") {
  const gguf_file file(fixture("types.gguf"));
  for (const std::string name : {"Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4", "F16", "BF16", "F64"}) {
    CAPTURE(name);
    file_tensor stored = tensor_of(file, name), expected = tensor_of(file, concat(name, ".expected"));
    CHECK(stored.dtype == name);
    CHECK(is_floating(stored.dtype));
    CHECK(same_numbers<float>(stored, expected));
    CHECK(same_numbers<float>(stored, expected, 7));
    CHECK(same_numbers<bf16>(stored, expected));
    CHECK(same_values(stored, expected));
    const std::size_t rows = stored.shape[0], columns = stored.shape[1];
    for (file_tensor* one : {&stored, &expected}) one->layout = {{1, rows * columns}, {2, columns}, {rows / 2, 2 * columns}, {columns, 1}};  // pairs of rows
    CHECK(same_numbers<float>(stored, expected));
    for (file_tensor* one : {&stored, &expected}) {
      one->layout = {{columns, 1}, {rows, columns}};
      one->shape = {columns, rows};
    }
    CHECK(same_numbers<float>(stored, expected));
    CHECK(same_numbers<double>(stored, expected, 5));
    CHECK(same_values(stored, expected));
  }
  file_tensor changed = tensor_of(file, "Q4_K");
  std::vector<std::byte> bytes(changed.bytes.begin(), changed.bytes.end());
  bytes[100] ^= std::byte{1};
  changed.bytes = bytes;
  CHECK(!same_values(changed, tensor_of(file, "Q4_K")));
  std::vector<float> one(1);
  CHECK(thrown([&] { read_numbers<float>(tensor_of(file, "IQ4_XS"), 0, one); }).find("it is IQ4_XS") != std::string::npos);
  CHECK(thrown([&] { read_elements(tensor_of(file, "Q8_0"), 0, std::as_writable_bytes(std::span(one))); }).find("blocks of Q8_0") != std::string::npos);
}

TEST_CASE("a model in a GGUF file is the folder's, and computes transformers' logits") {
  for (const std::string name : {"llama", "llama_biased", "mixtral", "qwen2", "qwen3", "gemma", "gemma2", "phi3", "gpt2", "bloom", "chatglm",
                                 "baichuan", "baichuan_alibi", "internlm2"}) {
    CAPTURE(name);
    auto ours = any_model::from_pretrained(fixture(name) + "/model.gguf"), folder = any_model::from_pretrained(fixture(name));
    CHECK(std::string(ours.family_info().name) == std::string(folder.family_info().name));
    REQUIRE(ours.parameters().entries().size() == folder.parameters().entries().size());
    for (const auto& entry : folder.parameters().entries()) {
      CAPTURE(entry.spec.name);
      const auto* other = ours.parameters().find(entry.spec.name);
      REQUIRE(other != nullptr);
      const auto x = ours.parameters().value(*other).host(), y = folder.parameters().value(entry).host();
      CHECK(std::equal(x.begin(), x.end(), y.begin(), y.end()));
    }
    const decoder_config &a = ours.config(), &b = folder.config();
    CHECK(a.num_layers == b.num_layers);
    CHECK(a.max_position_embeddings == b.max_position_embeddings);
    CHECK(a.norm_epsilon == b.norm_epsilon);
    CHECK(a.rope_theta == b.rope_theta);
    CHECK(a.rope_scaling == b.rope_scaling);
    CHECK(a.tie_word_embeddings == b.tie_word_embeddings);
    CHECK(a.sliding_window == b.sliding_window);
    CHECK(a.eos == b.eos);
    CHECK(a.bos == b.bos);
    CHECK(a.alibi == b.alibi);
    std::vector<token> tokens{3, 1, 10, 4, 4, 7};
    const std::string expected = fixture(name) + "/logits.safetensors";
    std::vector<double> logits;
    if (file_exists(expected)) {
      tokens.clear();
      const safetensors_file inputs(expected);
      const file_tensor& stored = *inputs.find("tokens");
      tokens.resize(stored.size());
      read_elements(stored, 0, std::as_writable_bytes(std::span(tokens)));
    }
    host_batch rows{.b = 1, .t = tokens.size(), .tokens = tokens};
    const std::vector<double> found = parity::logits_of(ours, rows);
    CHECK(found == parity::logits_of(folder, rows));
    if (file_exists(expected)) parity::require_close(found, golden::numbers(safetensors_file(expected), "logits"), parity::fp32_logits, name);
  }
}

TEST_CASE("a model in several files is the model in one") {
  const gguf_model one(fixture("llama/model.gguf")), three(fixture("shards/model-00001-of-00003.gguf"));
  CHECK(one.config().object() == three.config().object());
  REQUIRE(one.tensors().size() == three.tensors().size());
  for (const auto& [name, tensor] : one.tensors()) CHECK(same_values(*tensor, *three.find(name)));
  CHECK(thrown([] { (void)gguf_model(fixture("shards/model-00002-of-00003.gguf")); }).find("must be the first file of the model; that is") !=
        std::string::npos);
  const scratch_folder folder;
  for (const char* name : {"model-00001-of-00003.gguf", "model-00003-of-00003.gguf"})
    std::filesystem::copy(fixture(concat("shards/", name)), folder / name);
  CHECK(thrown([&] { (void)gguf_model(folder / "model-00001-of-00003.gguf"); }).find("model-00002-of-00003.gguf: must be there") != std::string::npos);
  std::filesystem::copy(folder / "model-00003-of-00003.gguf", folder / "model-00002-of-00003.gguf");
  CHECK(thrown([&] { (void)gguf_model(folder / "model-00001-of-00003.gguf"); }).find("must be file 2 of the model") != std::string::npos);
  std::filesystem::copy(folder / "model-00001-of-00003.gguf", folder / "renamed.gguf");
  CHECK(thrown([&] { (void)gguf_model(folder / "renamed.gguf"); }).find("must end in -00001-of-00003.gguf") != std::string::npos);
}

TEST_CASE("a setting that would change what is computed is read or refused") {
  const scratch_folder folder;
  const auto with = [&](const std::string& name, const std::string& entry, std::uint64_t count = 1) {
    std::string good = get_file(fixture(name + "/model.gguf"));
    std::uint64_t entries = 0;
    std::memcpy(&entries, good.data() + 16, sizeof(entries));
    const std::size_t bare = entry.size() + of_text("pad", "").size();  // insertions are multiples of the alignment
    const std::string inserted = entry + of_text("pad", std::string((32 - bare % 32) % 32, ' '));
    good.replace(16, 8, u64(entries + count + 1));
    good.insert(24, inserted);
    put_file(folder / "x.gguf", good);
    return thrown([&] { (void)gguf_model(folder / "x.gguf"); });
  };
  const auto refused = [&](const std::string& name, const std::string& entry, const std::string& because) {
    const std::string problem = with(name, entry);
    CHECK_MESSAGE(problem.find(because) != std::string::npos, "'", problem, "' must say '", because, "'");
  };
  refused("llama", of_f32("llama.logit_scale", 0.5f), "'llama.logit_scale' must be 1, the value that is computed with; it is 0.5");
  refused("llama", of_f32("llama.attention.scale", 0.5f), "'llama.attention.scale' must be 0.25");
  refused("llama", of_f32("llama.residual_scale", 0.5f), "'llama.residual_scale' must be 1");
  refused("llama", of_f32("llama.embedding_scale", 2.0f), "'llama.embedding_scale' must be 1");
  refused("llama", of_f32("llama.attention.clamp_kqv", 8.0f), "'llama.attention.clamp_kqv' must be 0");
  refused("llama", of_f32("llama.attention.max_alibi_bias", 8.0f), "'llama.attention.max_alibi_bias' must be 0");
  refused("llama", of_flag("llama.attention.causal", false), "'llama.attention.causal' must be 1");
  refused("llama", of_flag("llama.use_parallel_residual", true), "'llama.use_parallel_residual' must be 0");
  refused("llama", of_f32("llama.final_logit_softcapping", 30.0f), "'llama.final_logit_softcapping' must be 0");
  refused("llama", of_f32("llama.some_new_scale", 1.0f), "'llama.some_new_scale' is not a setting that is read for this architecture");
  refused("llama", of_numbers<std::int32_t>("llama.attention.sliding_window_pattern", 5, {1, 0}), "must be one value; it is an array");
  refused("mixtral", of_f32("llama.expert_weights_scale", 2.5f), "'llama.expert_weights_scale' must be 1");
  refused("mixtral", of_flag("llama.expert_weights_norm", false), "'llama.expert_weights_norm' must be 1");
  refused("mixtral", of_u32("llama.expert_gating_func", 2), "'llama.expert_gating_func' must be 1");
  refused("mixtral", of_u32("llama.expert_shared_count", 1), "'llama.expert_shared_count' must be 0");
  refused("qwen2", of_u32("qwen2.attention.sliding_window", 4), "'qwen2.attention.sliding_window' must be 0");
  refused("qwen2", of_u32("qwen2.expert_count", 4), "'qwen2.expert_count' must be 0 for this architecture");
  refused("gemma2", of_u32("gemma2.attention.sliding_window_pattern", 6), "'gemma2.attention.sliding_window_pattern' must be 2");
  refused("bloom", of_f32("bloom.attention.max_alibi_bias", 4.0f), "'bloom.attention.max_alibi_bias' must be 8");
  for (const std::string& harmless : {of_f32("llama.logit_scale", 0.0f), of_f32("llama.attention.scale", 0.25f), of_flag("llama.attention.causal", true),
                                      of_u32("llama.vocab_size", 11), of_u32("llama.expert_count", 0), of_text("llama.rope.scaling.type", "none")})
    CHECK(with("llama", harmless) == "");
  CHECK(with("gemma2", of_u32("gemma2.attention.sliding_window_pattern", 2)) == "");
  CHECK(with("mixtral", of_flag("llama.expert_weights_norm", true)) == "");
  // type none: the factor has no effect
  CHECK(with("qwen2", of_f32("qwen2.rope.scaling.factor", 2.0f)) == "");
  CHECK(gguf_model(folder / "x.gguf").config().object()["rope_scaling"]["factor"] == 2.0);
  CHECK(with("qwen2", of_f32("qwen2.rope.scaling.factor", 2.0f) + of_text("qwen2.rope.scaling.type", "none"), 2) == "");
  CHECK(!gguf_model(folder / "x.gguf").config().object().contains("rope_scaling"));
}

TEST_CASE("a weight file of GGUF has its tensors and settings, and is saved as a folder of the same weights") {
  const weight_file file(fixture("llama/model.gguf"));
  CHECK(file.format() == weight_format::gguf);
  CHECK(name_of(file.format()) == "GGUF");
  CHECK(file.config()->text_or("", {"model_type"}) == "llama");
  const scratch_folder folder;
  save_pretrained(any_model::from_pretrained(fixture("llama/model.gguf")), folder.path());
  const weight_folder saved(folder.path()), original(fixture("llama"));
  REQUIRE(saved.tensors().size() == original.tensors().size());
  for (const auto& [name, tensor] : original.tensors()) CHECK(same_values(*tensor, *saved.find(name)));
}

TEST_CASE("a GGUF file that lies is refused with the place") {
  const std::string good = two_tensors(listed("a", {2}, 0, 0), listed("b", {4}, 0, 32));
  const scratch_folder folder;
  put_file(folder / "x.gguf", good);
  CHECK(gguf_file(folder / "x.gguf").tensors().size() == 2);
  const std::string aligned = of_u32("general.alignment", 8);
  put_file(folder / "y.gguf", file({aligned}, {listed("a", {2}, 0, 0), listed("b", {4}, 0, 8)}, std::string(24, '\1'), 8, 2));
  CHECK(gguf_file(folder / "y.gguf").version() == 2);
  for (std::size_t size = 0; size < good.size(); ++size)
    check_refused(good.substr(0, size), size < 4 ? "must begin with 'GGUF'" : "must lie inside the file");
  check_refused("GGUF" + u32(1) + u64(0) + u64(0), "must be of version 2 or 3; it is of version 1");
  check_refused("GGUF" + u32(0x03000000) + u64(0) + u64(0), "must be little-endian");
  check_refused("GGUF" + u32(3) + u64(std::uint64_t{1} << 60) + u64(0), "it claims 1152921504606846976 tensors");
  check_refused("GGUF" + u32(3) + u64(0) + u64(std::uint64_t{1} << 60), "it claims 1152921504606846976 entries");
  const auto entry = [](const std::string& one) { return file({one}, {}, ""); };
  check_refused(entry(u64(std::uint64_t{1} << 63) + std::string(20, 'k')),
                "key 1 of 1 must lie inside the file; at byte 32 it claims 9223372036854775808 bytes");
  check_refused(entry(text("") + u32(4) + u32(1)), "keys must have a name");
  check_refused(entry(text("k") + u32(13) + u64(0)), "'k' must have a type from 0 to 12; it has 13");
  check_refused(entry(text("k") + u32(9) + u32(9) + u64(1) + u32(4) + u64(0)), "'k' must be an array of scalars or strings");
  check_refused(entry(text("k") + u32(9) + u32(4) + u64(1000)), "'k' must lie inside the file; it claims 1000 elements");
  check_refused(entry(text("k") + u32(9) + u32(8) + u64(1) + u64(100)), "element 0 of 'k' must lie inside the file");
  check_refused(entry(text("k") + u32(7) + "\2" + u64(0)), "'k' must be true or false");
  check_refused(file({of_u32("k", 1), of_u32("k", 1)}, {}, ""), "'k' must be there once");
  check_refused(file({of_u32("general.alignment", 0)}, {}, ""), "general.alignment must be a power of two; it is 0");
  check_refused(file({of_u32("general.alignment", 24)}, {}, ""), "general.alignment must be a power of two; it is 24");
  check_refused(file({of_text("general.alignment", "8")}, {}, ""), "general.alignment must be a u32");
  const std::string a = listed("a", {2}, 0, 0);
  check_refused(two_tensors(a, listed("a", {4}, 0, 32)), "tensor 'a' must be there once");
  check_refused(two_tensors(a, listed("", {4}, 0, 32)), "tensors must have a name");
  check_refused(two_tensors(a, listed("b", {4}, 0, 33)), "tensor 'b' must begin at a multiple of 32; it begins at 33");
  check_refused(two_tensors(a, listed("b", {4}, 0, 0)), "tensors must lie one behind the other");
  check_refused(two_tensors(a, listed("b", {4}, 0, 64), 80), "'b' begins at 64 where 32 is next");
  check_refused(two_tensors(a, listed("b", {4}, 0, 32), 40), "tensor 'b': must lie inside the file; it claims 16 bytes");
  check_refused(two_tensors(a, listed("b", {4}, 0, 32), 200), "tensors must fill the file; they end at 64 of 200 bytes");
  check_refused(two_tensors(a, listed("b", {1, 1, 1, 1, 4}, 0, 32)), "must have at most 4 dims; it has 5");
  check_refused(two_tensors(a, listed("b", {1ULL << 40, 1ULL << 40}, 0, 32)), "shape is larger than any file");
  check_refused(two_tensors(a, listed("b", {0, 1ULL << 61}, 0, 32)), "tensors must fill the file");
  check_refused(two_tensors(a, listed("b", {4}, 4, 32)), "tensor 'b': type 4 is not one of the format's");
  check_refused(two_tensors(a, listed("b", {48}, 8, 32)), "rows of Q8_0 must be whole blocks of 32 numbers; they have 48");
}

TEST_CASE("a model that contradicts itself is refused with what must hold") {
  const std::string good = get_file(fixture("llama/model.gguf"));
  const scratch_folder folder;
  const auto check = [&](const std::string& what, const std::string& by, const std::string& because) {
    std::string changed = good;
    const std::size_t at = changed.find(what);
    REQUIRE(at != std::string::npos);
    REQUIRE(what.size() == by.size());
    changed.replace(at, what.size(), by);
    put_file(folder / "x.gguf", changed);
    const std::string problem = thrown([&] { (void)any_model::from_pretrained(folder / "x.gguf"); });
    CHECK_MESSAGE(problem.find(because) != std::string::npos, "'", problem, "' must say '", because, "'");
  };
  const auto of = [](const std::string& key, std::uint32_t value) { return of_u32("llama." + key, value); };
  check(of_text("general.architecture", "llama"), of_text("general.architecture", "lllma"), "general.architecture must be llama, qwen2");
  check(of("block_count", 2), of("block_count", 1), "'blk.1.attn_k.weight' must belong to a model of architecture 'llama' with 1 layers; it does not");
  check(of("block_count", 2), of("block_count", 3), "must hold 'model.layers.2.");
  check(of("block_count", 2), of("block_count", 4000000000), "'llama.block_count' must be from 1 to 2^31 - 1");
  check(of("attention.head_count", 2), of("attention.head_count", 0), "'llama.attention.head_count' must be from 1 to 2^31 - 1; it is 0");
  check(of("attention.head_count", 2), of("attention.head_count", 5), "must have an even number of rows for each of 5 heads");
  check(of("attention.head_count_kv", 1), of("attention.head_count_kv", 7), "must have an even number of rows for each of 7 heads");
  check(of("attention.value_length", 16), of("attention.value_length", 8), "heads of keys and values must have the same size; keys have 16, values 8");
  check(of("rope.dimension_count", 16), of("rope.dimension_count", 8), "'llama.rope.dimension_count' must be the size of a head, 16; it is 8");
  check(of("embedding_length", 8), of("embedding_length", 9), "must have shape");
  check(of("feed_forward_length", 12), of("feed_forward_length", 13), "must have shape");
  check(text("llama.context_length"), text("lLama.context_length"), "'llama.context_length' must be given; it is missing");
  check(text("llama.context_length"), text("llama.context_lengtH"), "'llama.context_lengtH' is not a setting that is read for this architecture");
  check(text("token_embd.weight"), text("token_embd.weighT"), "'token_embd.weight' is missing");
  check(text("blk.1.attn_q.weight"), text("blk.1.attn_q.weighT"), "'blk.1.attn_q.weighT' must belong to a model");
  check(number(8.0f), number(7.0f), "'rope_freqs.weight' must have the factors of LLaMA 3's rule, alone; it has others");
  // a fused matrix is allocated after its parts are checked, for any claimed number of heads
  const auto fused = [&](const std::string& key, std::uint32_t before, std::uint32_t after, const std::string& because) {
    std::string changed = get_file(fixture("internlm2/model.gguf"));
    const std::string what = of_u32("internlm2." + key, before);
    REQUIRE(changed.find(what) != std::string::npos);
    changed.replace(changed.find(what), what.size(), of_u32("internlm2." + key, after));
    put_file(folder / "x.gguf", changed);
    const std::string problem = thrown([&] { (void)gguf_model(folder / "x.gguf"); });
    CHECK_MESSAGE(problem.find(because) != std::string::npos, "'", problem, "' must say '", because, "'");
  };
  fused("embedding_length", 8, 2000000000, "'blk.0.attn_q.weight' must have shape [2000000000, 8], as its heads say; it has [8, 8]");
  fused("attention.head_count", 4, 3, "heads must have an even size");
  fused("attention.head_count_kv", 2, 3, "'internlm2.attention.head_count_kv' must divide the number of heads, 4; it is 3");
  fused("attention.head_count_kv", 2, 1, "'blk.0.attn_k.weight' must have shape [2, 8]");
  put_file(folder / "y.gguf", file({of_text("general.architecture", "llama")}, {}, ""));
  CHECK(thrown([&] { (void)gguf_model(folder / "y.gguf"); }).find("it has no tensors: a vocabulary only") != std::string::npos);
  put_file(folder / "z.txt", "text");
  CHECK(thrown([&] { (void)read_config(folder / "z.txt"); }).find("must be a folder with a model, or a GGUF file; it is another file") != std::string::npos);
}

namespace {

/// A file with only a vocabulary.
std::string vocabulary(const std::string& model, const std::vector<std::string>& tokens, const std::vector<std::int32_t>& types,
                       const std::vector<std::string>& more) {
  std::vector<std::string> entries{of_text("tokenizer.ggml.model", model), of_texts("tokenizer.ggml.tokens", tokens),
                                   of_numbers("tokenizer.ggml.token_type", 5, types)};
  entries.insert(entries.end(), more.begin(), more.end());
  return file(entries, {}, "");
}

const std::vector<std::string> pieces{"<unk>", "<s>", "</s>", "\u2581", "a", "b", "ab", "\u2581ab", "<x>"};
const std::vector<std::int32_t> piece_types{2, 3, 3, 1, 1, 1, 1, 1, 4};
const std::string scores = of_numbers<float>("tokenizer.ggml.scores", 6, {0, 0, 0, -3, -4, -5, -1, -2, 0});

/// A GGUF file's tokenizer and the original tokenizer files give equal tokens.
void check_tokens(const std::string& path, const std::string& text, const std::vector<token>& expected) {
  const scratch_folder folder;
  copy_tokenizer(path, folder.path());
  CHECK(load_tokenizer(path).encode_whole(text).ids() == expected);
  CHECK(load_tokenizer(folder.path()).encode_whole(text).ids() == expected);
}

}  // namespace

TEST_CASE("the tokenizer of a GGUF file is saved as the files that it stands for") {
  const scratch_folder folder;
  const std::vector<std::string> special{scores, of_u32("tokenizer.ggml.bos_token_id", 1), of_u32("tokenizer.ggml.eos_token_id", 2)};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), special.begin(), special.end());
    return more;
  };
  put_file(folder / "spm.gguf", vocabulary("llama", pieces, piece_types, with({})));
  check_tokens(folder / "spm.gguf", "ab aab", {1, 7, 3, 4, 6});
  check_tokens(folder / "spm.gguf", "ab<x>ab</s>", {1, 7, 8, 7, 2});
  CHECK(load_tokenizer(folder / "spm.gguf").encode_as_text("ab</s>") == std::vector<token>{7, 0});
  put_file(folder / "control.gguf", vocabulary("llama", pieces, {3, 3, 3, 1, 1, 1, 1, 1, 4}, with({of_u32("tokenizer.ggml.unknown_token_id", 0)})));
  check_tokens(folder / "control.gguf", "ab aab", {1, 7, 3, 4, 6});
  put_file(folder / "bare.gguf", vocabulary("llama", pieces, piece_types,
                                            with({of_flag("tokenizer.ggml.add_space_prefix", false), of_flag("tokenizer.ggml.add_bos_token", false),
                                                  of_flag("tokenizer.ggml.add_eos_token", true)})));
  check_tokens(folder / "bare.gguf", "ab ab", {6, 7, 2});

  const std::vector<std::string> bytes{"a", "b", "\u0120", "ab", "\u0120ab", "<end>", "<tool>"};
  const std::string merges = of_texts("tokenizer.ggml.merges", {"a b", "\u0120 ab"}), end = of_u32("tokenizer.ggml.eos_token_id", 5);
  put_file(folder / "bpe.gguf", vocabulary("gpt2", bytes, {1, 1, 1, 1, 1, 3, 4}, {of_text("tokenizer.ggml.pre", "gpt-2"), merges, end}));
  check_tokens(folder / "bpe.gguf", "ab ab<end>b<tool>", {3, 4, 5, 1, 6});
  put_file(folder / "begins.gguf", vocabulary("gpt2", bytes, {1, 1, 1, 1, 1, 3, 4},
                                              {of_text("tokenizer.ggml.pre", "llama-bpe"), merges, end, of_u32("tokenizer.ggml.bos_token_id", 5),
                                               of_text("tokenizer.chat_template", "{{ bos_token }}{{ messages[0].content }}")}));
  check_tokens(folder / "begins.gguf", "ab", {5, 3});
  CHECK(load_tokenizer(folder / "begins.gguf").special().adds_bos);
  CHECK(!chat_template::is_in(folder / "bpe.gguf"));
  CHECK(chat_template::is_in(folder / "begins.gguf"));
  CHECK(chat_template::from_folder(folder / "begins.gguf").apply({{"user", "hi"}}) == "<end>hi");
  const scratch_folder saved;
  copy_tokenizer(folder / "begins.gguf", saved.path());
  CHECK(chat_template::from_folder(saved.path()).apply({{"user", "hi"}}) == "<end>hi");
}

TEST_CASE("a tokenizer that a GGUF file contradicts is refused with what must hold") {
  const scratch_folder folder;
  const auto check = [&](const std::string& contents, const std::string& because) {
    put_file(folder / "x.gguf", contents);
    const std::string problem = thrown([&] { (void)load_tokenizer(folder / "x.gguf"); });
    CHECK_MESSAGE(problem.find(because) != std::string::npos, "'", problem, "' must say '", because, "'");
  };
  check(file({}, {}, ""), "must have tokenizer.ggml.tokens");
  check(vocabulary("bert", {"a"}, {1}, {}), "tokenizer.ggml.model must be llama or gpt2; it is 'bert'");
  check(vocabulary("llama", {"a"}, {1}, {}), "must have tokenizer.ggml.scores");
  check(vocabulary("llama", {"a", "b"}, {1}, {}), "tokenizer.ggml.token_type must have a number for each of the 2 tokens; it has 1");
  check(vocabulary("llama", {"a"}, {7}, {}), "types of tokens must be from 0 to 6; that of token 0 is 7");
  check(vocabulary("llama", {""}, {1}, {}), "tokens must have a text; token 0 has none");
  check(vocabulary("gpt2", {"\xFF"}, {1}, {}), "tokens must be UTF-8");
  check(vocabulary("gpt2", {"a", "a"}, {1, 1}, {}), "tokens must differ; token 1 is 'a' again");
  check(vocabulary("gpt2", {"a"}, {1}, {of_text("tokenizer.ggml.pre", "tekken")}), "tokenizer.ggml.pre must be gpt-2");
  check(vocabulary("gpt2", {"a"}, {1}, {of_texts("tokenizer.ggml.merges", {"a"})}), "must be two tokens with a space between; it is 'a'");
  check(vocabulary("gpt2", {"a"}, {1}, {of_text("tokenizer.chat_template", "\xFF")}), "tokenizer.chat_template must be UTF-8");
}

TEST_CASE("the tokenizers of llama.cpp's vocabulary files give its tokens") {
  if (test_data("tokenizers/llamacpp_vocab").empty()) {
    MESSAGE("skipped: no test data");
    return;
  }
  for (const std::string name : {"llama-spm", "gpt-2", "mpt", "deepseek-coder"}) {
    CAPTURE(name);
    const std::string path = test_data("tokenizers/llamacpp_vocab") + "/ggml-vocab-" + name + ".gguf";
    const scratch_folder folder;
    copy_tokenizer(path, folder.path());
    const tokenizer own = load_tokenizer(path), again = load_tokenizer(folder.path());
    std::string inputs = get_file(path + ".inp"), outputs = get_file(path + ".out");
    const std::string mark = "\n__ggml_vocab_test__\n";
    std::size_t cases = 0;
    for (std::size_t begin = 0, line = 0; inputs.find(mark, begin) != std::string::npos; ++cases) {
      const std::size_t end = inputs.find(mark, begin), line_end = std::min(outputs.find('\n', line), outputs.size());
      const std::string text = inputs.substr(begin, end - begin), expected = outputs.substr(line, line_end - line);
      for (const tokenizer* with : {&own, &again}) {
        std::string found;
        for (const token t : with->encode_as_text(text)) found += concat(" ", t);
        CHECK_MESSAGE(found == expected, "'", text, "'");
      }
      begin = end + mark.size();
      line = line_end + 1;
    }
    CHECK(cases == 46);
  }
}

namespace {

std::string bytes_of(const file_tensor& tensor) { return {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()}; }

gguf_config config_in(const std::string& folder) {
  const json_settings settings = read_config(folder);
  const decoder_family_info& family = all_families::of<>(settings);
  return gguf_config_of(sizes_of(settings, family), family);
}

}  // namespace

TEST_CASE("a GGUF file that is written again has the same bytes") {
  const scratch_folder folder;
  const gguf_file from(fixture("types.gguf"));
  gguf_writer to(folder / "again.gguf");
  std::vector<std::pair<const char*, std::string_view>> order;
  for (const auto& [key, value] : from.metadata()) order.emplace_back(key.data(), key);
  std::sort(order.begin(), order.end());
  for (const auto& [place, key] : order) to.add(key, *from.find(key));
  for (const gguf_tensor& tensor : from.tensors())
    to.add_tensor({.name = std::string(tensor.name), .type = std::string(tensor.type), .shape = tensor.shape,
                   .produce = [bytes = tensor.bytes](const auto& sink) { sink(bytes.data(), bytes.size()); }});
  to.write();
  CHECK(get_file(folder / "again.gguf") == get_file(from.path()));
}

TEST_CASE("numbers are stored in every type as the package gguf stores them") {
  const gguf_file expected(fixture("quantized.gguf"));
  file_tensor numbers = tensor_of(expected, "F32");
  std::vector<float> clipped(numbers.size());
  read_numbers<float>(numbers, 0, clipped);
  const scratch_folder folder;
  for (const std::string type : {"F32", "BF16", "F16", "Q8_0", "Q4_0"}) {
    CAPTURE(type);
    CHECK(gguf_type_named(type) == gguf_type_named(type == "Q8_0" ? "q8_0" : type));
    if (type == "F16") {  // larger numbers are refused
      for (float& number : clipped) number = std::clamp(number, -65504.0f, 65504.0f);
      numbers.bytes = std::as_bytes(std::span(clipped));
    } else {
      numbers = tensor_of(expected, "F32");
    }
    std::vector<std::byte> bytes;
    std::vector<float> all(numbers.size());
    read_numbers<float>(numbers, 0, all);
    detail::put_gguf_numbers(all, type, "x", bytes);
    CHECK(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()) == bytes_of(tensor_of(expected, type)));
  }
  CHECK(!gguf_type_named("q4_1").has_value());
  std::vector<std::byte> bytes;
  std::vector<float> large(32, 1.0f);
  large[7] = 1e7f;  // 1e7 / 127 is beyond fp16
  for (const char* type : {"F16", "Q8_0", "Q4_0"})
    CHECK(thrown([&] { detail::put_gguf_numbers(large, type, "x", bytes); }).find("numbers must be finite in " + std::string(type)) != std::string::npos);
  large[7] = std::numeric_limits<float>::quiet_NaN();
  for (const char* type : {"F32", "BF16", "Q8_0"}) CHECK(!thrown([&] { detail::put_gguf_numbers(large, type, "x", bytes); }).empty());
}

TEST_CASE("a model of every family is written with the tensors and metadata of the package's file, and read as the same model") {
  const scratch_folder folder;
  for (const std::string name :
       {"llama", "llama_biased", "mixtral", "qwen2", "qwen3", "gemma", "gemma2", "phi3", "gpt2", "bloom", "chatglm", "baichuan", "internlm2"}) {
    CAPTURE(name);
    const std::string path = folder / (name + ".gguf");
    if (name == "llama_biased") {
      save_gguf(any_model::from_pretrained(fixture(name)), path);
      write_gguf(path + "2", config_in(fixture(name)), weight_folder(fixture(name)), {.name = name});
      CHECK(get_file(path) == get_file(path + "2"));  // from memory and from a file
    } else {
      write_gguf(path, config_in(fixture(name)), weight_folder(fixture(name)));
    }
    const gguf_file ours(path), theirs(fixture(name) + "/model.gguf");
    for (const auto& entry : theirs.metadata()) {
      const std::string key(entry.first);
      const gguf_value& value = entry.second;
      CAPTURE(key);
      const gguf_value* own = ours.find(key);
      // left out: a head of hidden_size / num_heads, and keys of InternLM2 that the converter does not write
      const bool is_usual = key.ends_with(".key_length") || key.ends_with(".value_length") || key == "internlm2.rope.dimension_count" ||
                            key == "internlm2.tensor_data_layout";
      REQUIRE((own != nullptr || is_usual));
      if (own == nullptr) continue;
      CHECK(own->type == value.type);
      CHECK(own->bytes == value.bytes);
    }
    std::size_t left_out = 0;
    for (const gguf_tensor& tensor : theirs.tensors()) {
      CAPTURE(std::string(tensor.name));
      const auto own = std::find_if(ours.tensors().begin(), ours.tensors().end(), [&](const gguf_tensor& one) { return one.name == tensor.name; });
      if (name == "gpt2" && tensor.name == "output.weight") {  // a tied head is not written
        ++left_out;
        continue;
      }
      REQUIRE(own != ours.tensors().end());
      CHECK(own->shape == tensor.shape);
      if (own->type != tensor.type) {  // InternLM2's contains F16
        CHECK(tensor.type == "F16");
        CHECK(same_numbers<float>(tensor_of(ours, tensor.name), tensor_of(theirs, tensor.name)));
        continue;
      }
      if (tensor.name == "rope_freqs.weight") continue;  // the package rounds to fp32 at every step
      CHECK(std::equal(own->bytes.begin(), own->bytes.end(), tensor.bytes.begin(), tensor.bytes.end()));
    }
    CHECK(ours.tensors().size() + left_out == theirs.tensors().size());
    CHECK(gguf_model(path).config().object() == gguf_model(theirs.path()).config().object());
    for (const gguf_type type : {gguf_type::f32, gguf_type::f16, gguf_type::bf16, gguf_type::q8_0, gguf_type::q4_0}) {
      CAPTURE(std::string(name_of(type)));
      write_gguf(path, config_in(fixture(name)), weight_folder(fixture(name)), {.type = type});
      const gguf_model again(path);
      const weight_folder before(fixture(name));
      for (const auto& entry : again.tensors()) {
        const std::string& tensor = entry.first;
        const file_tensor* now = entry.second;
        CAPTURE(tensor);
        const file_tensor* was = before.find(tensor);
        REQUIRE(was != nullptr);
        std::vector<float> x(now->size()), y(was->size());
        read_numbers<float>(*now, 0, x);
        read_numbers<float>(*was, 0, y);
        const auto largest = static_cast<double>(std::abs(*std::max_element(y.begin(), y.end(), [](float a, float b) { return std::abs(a) < std::abs(b); })));
        for (std::size_t i = 0; i < x.size(); ++i) {
          // half a unit in the last place: 2^-11 in fp16, 2^-8 in bf16; 1 + weight rounds by 2^-24. In blocks the scale is rounded to fp16, a number to half a
          // scale, or a whole one at the end of Q4_0's range
          const double half = std::ldexp(std::abs(static_cast<double>(y[i])), -11) + 3e-8, scale = std::ldexp(largest, -11);
          const double bound = now->dtype == "F32"    ? 1.2e-7
                               : now->dtype == "BF16" ? 8.0 * half
                               : now->dtype == "Q8_0" ? largest / 254.0 + scale
                               : now->dtype == "Q4_0" ? largest / 8.0 + scale
                                                      : half;
          if (std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i])) > bound) FAIL("element ", i, " is ", x[i], ", was ", y[i]);
        }
      }
    }
  }
}

TEST_CASE("what llama.cpp has no place for is refused by name") {
  const scratch_folder folder;
  const std::string path = folder / "x.gguf";
  const auto check = [&](const std::string& name, const std::function<void(gguf_config&)>& change, const std::string& because) {
    gguf_config config = config_in(fixture(name));
    change(config);
    const std::string problem = thrown([&] { write_gguf(path, config, weight_folder(fixture(name))); });
    CHECK_MESSAGE(problem.find(because) != std::string::npos, "'", problem, "' must say '", because, "'");
    CHECK(!file_exists(path));
  };
  check("llama", [](gguf_config& c) { c.family = "aquila"; }, "of a family that llama.cpp has: llama, mistral, mixtral");
  check("qwen3", [](gguf_config& c) { c.output_bias = true; }, "qwen3 in a GGUF file must have no bias of the attention's output");
  check("qwen2", [](gguf_config& c) { c.feed_forward_bias = true; }, "must have no biases of the feed-forward layers");
  check("qwen2", [](gguf_config& c) { c.rope = gguf_config::rope_rule::llama3; }, "must have no rope scaling of type llama3");
  check("qwen2", [](gguf_config& c) { c.sliding_window = 4, c.windowed_layers = {true, true}; }, "must have no sliding window");
  check("qwen2", [](gguf_config& c) { c.head_dim = 6; }, "must have heads of hidden_size / num_heads, as llama.cpp assumes; head_dim is 6, the quotient 4");
  check("llama", [](gguf_config& c) { c.sliding_window = 4, c.windowed_layers = {true, false}; }, "must have its sliding window in all layers");
  check("gemma", [](gguf_config& c) { c.tie_word_embeddings = false; }, "must have the embedding as its head");
  check("gemma2", [](gguf_config& c) { c.query_pre_attn_scalar = 7; }, "must have a query_pre_attn_scalar of 6");
  check("gemma2", [](gguf_config& c) { c.final_logit_softcapping = 0; }, "must have both softcaps of logits, by which llama.cpp divides");
  check("gemma2", [](gguf_config& c) { c.windowed_layers = {true, true}; }, "in every second layer, from the first on; layer 1 differs");
  check("baichuan", [](gguf_config& c) { c.alibi = true; }, "must have 40 layers with ALiBi");
  check("llama", [](gguf_config& c) { c.num_layers = 3; }, "must have 'model.layers.2.input_layernorm.weight' to be written");
  check("llama", [](gguf_config& c) { c.num_layers = 1; }, "'model.layers.1.input_layernorm.weight' must have a place in a GGUF file of llama");
  check("llama", [](gguf_config& c) { c.num_kv_heads = 2; }, "'model.layers.0.self_attn.k_proj.weight' must have 32 rows, as its heads say; it has 16");
  gguf_writer to(path);
  const auto tensor = [](const std::string& name, const std::string& type, std::vector<std::size_t> shape) {
    return gguf_tensor_to_write{.name = name, .type = type, .shape = std::move(shape), .produce = [](const auto& sink) { sink("four", 4); }};
  };
  to.add_u32("k", 1);
  CHECK(thrown([&] { to.add_u32("k", 2); }).find("'k' must be given once") != std::string::npos);
  CHECK(thrown([&] { to.add_tensor(tensor("a", "Q8_0", {2, 48})); }).find("rows of whole blocks of 32") != std::string::npos);
  CHECK(thrown([&] { to.add_tensor(tensor(std::string(64, 'a'), "F32", {1})); }).find("a name of 1 to 63 bytes; it has 64") != std::string::npos);
  CHECK(thrown([&] { to.add_tensor(tensor("a", "F33", {1})); }).find("must be of one of the format's types; it is F33") != std::string::npos);
  CHECK(thrown([&] { to.add_tensor(tensor("a", "F32", {2, 0})); }).find("must have 1 to 2^60 numbers") != std::string::npos);
  to.add_tensor(tensor("b", "F32", {1}));
  CHECK(thrown([&] { to.add_tensor(tensor("b", "F32", {1})); }).find("must be given once") != std::string::npos);
  to.add_tensor(tensor("c", "F32", {2}));
  put_file(path, "before");
  CHECK(thrown([&] { to.write(); }).find("tensor 'c' must have 8 bytes; 4 were produced") != std::string::npos);
  CHECK(get_file(path) == "before");
  CHECK(names_in(folder.path()).size() == 1);
}

TEST_CASE("a model of Baichuan 2 is written with a normalized head, and the head of a tied InternLM2 is the embedding's") {
  const scratch_folder folder;
  gguf_config config = config_in(fixture("baichuan"));
  config.normalized_head = true;
  write_gguf(folder / "x.gguf", config, weight_folder(fixture("baichuan")));
  const gguf_file file(folder / "x.gguf");
  const file_tensor head = tensor_of(file, "output.weight");
  std::vector<float> row(head.shape[1]);
  for (std::size_t i = 0; i < head.shape[0]; ++i) {
    read_numbers<float>(head, i * row.size(), row);
    double squares = 0.0;
    for (const float x : row) squares += static_cast<double>(x) * static_cast<double>(x);
    CHECK(std::abs(squares - 1.0) < 2.4e-7);  // 2 x 2^-23
  }
  config = config_in(fixture("internlm2"));
  config.tie_word_embeddings = true;
  config.may_be_ignored = [](std::string_view tensor) { return tensor == "output.weight"; };
  config.head = "none";
  write_gguf(folder / "y.gguf", config, weight_folder(fixture("internlm2")));
  const gguf_file tied(folder / "y.gguf");
  CHECK(same_values(tensor_of(tied, "output.weight"), tensor_of(tied, "token_embd.weight")));
}

TEST_CASE("a tokenizer is written as llama.cpp's converter writes it, and gives the same tokens") {
  const scratch_folder folder;
  const auto written = [&](const std::string& from, const gguf_model_tokens& model) {
    gguf_writer to(folder / "t.gguf");
    add_gguf_tokenizer(to, from, model);
    to.write();
    return folder / "t.gguf";
  };
  // copied from another GGUF file, and then by way of a folder
  const std::vector<std::string> bytes{"a", "b", "\u0120", "ab", "\u0120ab", "<end>", "<tool>"};
  put_file(folder / "bpe.gguf",
           vocabulary("gpt2", bytes, {1, 1, 1, 1, 1, 3, 4},
                      {of_text("tokenizer.ggml.pre", "llama-bpe"), of_texts("tokenizer.ggml.merges", {"a b", "\u0120 ab"}),
                       of_u32("tokenizer.ggml.bos_token_id", 5), of_u32("tokenizer.ggml.eos_token_id", 5), of_text("tokenizer.chat_template", "{{ x }}")}));
  check_tokens(written(folder / "bpe.gguf", {.vocab_size = 7}), "ab ab<end>b<tool>", {5, 3, 4, 5, 1, 6});
  const scratch_folder files;
  copy_tokenizer(folder / "bpe.gguf", files.path());
  const gguf_file bpe(written(files.path(), {.vocab_size = 9, .bos = 5, .eos = {5, 2}, .pad = 7}));
  check_tokens(bpe.path(), "ab ab<end>b<tool>", {5, 3, 4, 5, 1, 6});
  CHECK(bpe.text("tokenizer.ggml.model") == "gpt2");
  CHECK(bpe.text("tokenizer.ggml.pre") == "llama-bpe");
  CHECK(bpe.texts("tokenizer.ggml.tokens") == std::vector<std::string_view>{"a", "b", "\u0120", "ab", "\u0120ab", "<end>", "<tool>", "[PAD7]", "[PAD8]"});
  CHECK(bpe.integers("tokenizer.ggml.token_type") == std::vector<std::int64_t>{1, 1, 1, 1, 1, 3, 4, 5, 5});
  CHECK(bpe.texts("tokenizer.ggml.merges") == std::vector<std::string_view>{"a b", "\u0120 ab"});
  CHECK(bpe.integer("tokenizer.ggml.bos_token_id") == 5);
  CHECK(bpe.integer("tokenizer.ggml.eos_token_id") == 5);
  CHECK(bpe.integer("tokenizer.ggml.eot_token_id") == 2);
  CHECK(bpe.integer("tokenizer.ggml.padding_token_id") == 7);
  CHECK(bpe.flag("tokenizer.ggml.add_bos_token") == true);
  CHECK(bpe.flag("tokenizer.ggml.add_eos_token") == false);
  CHECK(bpe.text("tokenizer.chat_template") == "{{ x }}");
  CHECK(gguf_file(written("", {.vocab_size = 3, .eos = {1}})).text("tokenizer.ggml.model") == "none");

  const auto refused = [&](const std::string& from, std::size_t count, const std::string& because) {
    const std::string problem = thrown([&] { (void)written(from, {.vocab_size = count}); });
    CHECK_MESSAGE(problem.find(because) != std::string::npos, "'", problem, "' must say '", because, "'");
  };
  refused(folder / "bpe.gguf", 8, "its vocabulary must have the model's 8 tokens; it has 7");
  refused(files.path(), 6, "tokens must be fewer than the 6 of the model");
  const json good = read_json(files / "tokenizer.json");
  const auto changed = [&](const std::function<void(json&)>& change, const std::string& because) {
    json other = good;
    change(other);
    put_file(files / "tokenizer.json", other.dump());
    refused(files.path(), 7, because);
  };
  changed([](json& j) { j["model"]["type"] = "WordPiece"; }, "must be a BPE; it is WordPiece");
  changed([](json& j) { j["model"]["byte_fallback"] = true; }, "or come with its tokenizer.model, which has scores");
  changed([](json& j) { j["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "x"; }, "the split of the pre-tokenizer must be llama.cpp's gpt-2");
  changed([](json& j) { j["normalizer"] = {{"type", "Lowercase"}}; }, "have no normalizer but NFC, which llama.cpp leaves out; it has Lowercase");
  changed([](json& j) { j["pre_tokenizer"] = {{"type", "Metaspace"}}; }, "have Split (isolated), Digits and ByteLevel only to be in a GGUF file; it has Met");
  changed([](json& j) { j["post_processor"]["single"][0]["SpecialToken"]["id"] = "<tool>"; }, "put no tokens around a text but the begin and the end");
  put_file(folder / "x.txt", "a b");
  refused(folder / "x.txt", 7, "must come from tokenizer.model, tokenizer.json, vocab.json or a GGUF file");

  // two files, with names without their folder, as GPT-2's
  const scratch_folder pair;
  const auto here = std::filesystem::current_path();
  std::filesystem::current_path(pair.path());
  for (const std::string name : {"", "gpt2-"}) {
    put_file(pair / (name + "vocab.json"), R"({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3})");
    put_file(pair / (name + "merges.txt"), "a b\n");
    CHECK(gguf_file(written(name + "vocab.json", {.vocab_size = 4})).texts("tokenizer.ggml.merges") == std::vector<std::string_view>{"a b"});
  }
  std::filesystem::current_path(here);

  if (test_data("tokenizers").empty()) {
    MESSAGE("skipped: no test data");
    return;
  }
  const std::vector<std::string> texts{"Hello, world! It's 1234 o'clock.\n\n  twice", " a\t\u00e9\u4f60\u597d  x", "don't <s> </s> DON'T 3.14159"};
  for (const auto& [name, pre, begins] :
       {std::tuple{"llama2", "default", true}, {"gpt2", "gpt-2", false}, {"gpt2/vocab.json", "gpt-2", false}, {"qwen2", "qwen2", false}}) {
    const std::string from = concat(test_data("tokenizers"), "/", name);
    CAPTURE(from);
    const tokenizer before = load_tokenizer(from);
    const gguf_file file(written(from, {.vocab_size = before.vocab_size() + 3}));
    CHECK(file.text("tokenizer.ggml.pre") == pre);
    CHECK(file.flag("tokenizer.ggml.add_bos_token") == begins);
    const tokenizer after = load_tokenizer(file.path());
    for (const std::string& text : texts) {
      CAPTURE(text);
      CHECK(after.encode_as_text(text) == before.encode_as_text(text));
    }
  }
}

namespace {

struct with_lora : parity::fp32_recipe {
  using adapter = lora;
};

std::vector<float> numbers_of(const file_tensor& tensor) {
  std::vector<float> all(tensor.size());
  read_numbers<float>(tensor, 0, all);
  return all;
}

}  // namespace

TEST_CASE("an adapter in a GGUF file changes the file's weights as it changes the model's") {
  const scratch_folder folder;
  for (const std::string name : {"llama_lora", "mistral_lora", "mixtral_lora", "qwen3_lora", "gemma_lora", "phi3_lora", "phi3_lora_parts",
                                 "gpt2_lora", "bloom_lora", "internlm2_lora", "chatglm2_lora"}) {
    CAPTURE(name);
    const std::string adapter = golden::folder(name);
    const std::string base = golden::folder(read_json(adapter + "/adapter_config.json").at("base_model_name_or_path").get<std::string>());
    write_gguf_adapter(folder / "adapter.gguf", adapter, config_in(base));
    auto model = any_model::from_pretrained(base);
    save_pretrained(model, folder / "base.gguf");
    merge_adapter(model, adapter);
    save_gguf(model, folder / "merged.gguf");
    const gguf_file change(folder / "adapter.gguf"), before(folder / "base.gguf"), after(folder / "merged.gguf");
    CHECK(change.text("general.type") == "adapter");
    CHECK(change.text("adapter.type") == "lora");
    CHECK(change.text("general.architecture") == before.text("general.architecture"));
    const double alpha = change.number("adapter.lora.alpha").value();
    std::size_t adapted = 0;
    for (const gguf_tensor& tensor : before.tensors()) {
      CAPTURE(std::string(tensor.name));
      std::vector<float> expected = numbers_of(tensor_of(before, tensor.name));
      const std::string of_a = concat(tensor.name, ".lora_a");
      const auto has = std::find_if(change.tensors().begin(), change.tensors().end(), [&](const gguf_tensor& one) { return one.name == of_a; });
      double bound = 0.0;
      if (has != change.tensors().end()) {
        const file_tensor a = tensor_of(change, has->name), b = tensor_of(change, concat(tensor.name, ".lora_b"));
        REQUIRE(a.shape.size() == 2);
        REQUIRE(b.shape == std::vector<std::size_t>{tensor.shape[0], a.shape[0]});
        REQUIRE(a.shape[1] == tensor.shape[1]);
        const std::vector<float> x = numbers_of(a), y = numbers_of(b);
        const std::size_t rank = a.shape[0], in = a.shape[1];
        for (std::size_t i = 0; i < tensor.shape[0]; ++i)
          for (std::size_t j = 0; j < in; ++j) {
            double sum = 0.0, size = 0.0;
            for (std::size_t k = 0; k < rank; ++k) {
              const double product = static_cast<double>(y[i * rank + k]) * static_cast<double>(x[k * in + j]);
              sum += product;
              size += std::abs(product);
            }
            const auto was = static_cast<double>(expected[i * in + j]);
            expected[i * in + j] = static_cast<float>(was + alpha / static_cast<double>(rank) * sum);
            bound = std::max(bound, std::ldexp(std::abs(was) + static_cast<double>(rank + 4) * alpha / static_cast<double>(rank) * size, -23));
          }
        adapted += 2;
      }
      const std::vector<float> found = numbers_of(tensor_of(after, tensor.name));
      for (std::size_t i = 0; i < found.size(); ++i)  // every product, sum and the scale rounds by 2^-24
        if (std::abs(static_cast<double>(found[i]) - static_cast<double>(expected[i])) > bound) FAIL("element ", i, " is ", found[i], ", not ", expected[i]);
    }
    CHECK(adapted == change.tensors().size());
    CHECK(adapted != 0);

    write_adapter_folder(folder / concat(name, "/back"), folder / "adapter.gguf", config_in(base), base);
    auto again = any_model::from_pretrained(base);
    merge_adapter(again, folder / concat(name, "/back"));
    save_gguf(again, folder / concat(name, "/merged.gguf"));
    CHECK(get_file(folder / concat(name, "/merged.gguf")) == get_file(folder / "merged.gguf"));
  }
}

TEST_CASE("an adapter in a GGUF file that does not belong to the model is refused with what must hold") {
  const scratch_folder folder;
  const std::string adapter = golden::folder("llama_lora"), base = golden::folder("llama_grouped_untied");
  write_gguf_adapter(folder / "a.gguf", adapter, config_in(base));
  const auto refused = [&](const std::string& file, const gguf_config& config, const std::string& because) {
    const std::string problem = thrown([&] { write_adapter_folder(folder / "to", file, config); });
    CHECK_MESSAGE(problem.find(because) != std::string::npos, "'", problem, "' must say '", because, "'");
    CHECK(!file_exists(folder / "to/adapter_config.json"));
  };
  refused(fixture("llama/model.gguf"), config_in(base), "must hold a LoRA adapter; its general.type is '");
  refused(folder / "a.gguf", config_in(golden::folder("qwen2")), "must be an adapter for a model of architecture 'qwen2'");
  gguf_config shallow = config_in(base);
  shallow.num_layers = 1;
  refused(folder / "a.gguf", shallow, "' must belong to a module of the base model, of architecture 'llama' with 1 layers; it does not");

  const auto with = [&](const std::vector<std::tuple<std::string, std::vector<std::uint64_t>>>& tensors, float alpha = 4.0f) {
    std::vector<std::string> listing;
    std::string data;
    for (const auto& [name, dims] : tensors) {
      listing.push_back(listed(name, dims, 0, data.size()));
      std::uint64_t count = 4;
      for (const std::uint64_t dim : dims) count *= dim;
      data.resize(data.size() + (count + 31) / 32 * 32);
      if (name.starts_with("blk.0.attn_k")) data[data.size() - 32] = '\1';
    }
    put_file(folder / "b.gguf", file({of_text("general.architecture", "internlm2"), of_text("general.type", "adapter"), of_text("adapter.type", "lora"),
                                      of_f32("adapter.lora.alpha", alpha)},
                                     listing, data));
    return folder / "b.gguf";
  };
  const gguf_config fused = config_in(golden::folder("internlm2"));  // 4 heads of 8 that share 2 keys
  const std::tuple<std::string, std::vector<std::uint64_t>> qa{"blk.0.attn_q.weight.lora_a", {32, 1}}, qb{"blk.0.attn_q.weight.lora_b", {1, 32}},
      ka{"blk.0.attn_k.weight.lora_a", {32, 1}}, kb{"blk.0.attn_k.weight.lora_b", {1, 16}}, va{"blk.0.attn_v.weight.lora_a", {32, 1}},
      vb{"blk.0.attn_v.weight.lora_b", {1, 16}};
  refused(with({qa, qb}), fused, "'blk.0.attn_q', attn_k and attn_v must all have an adapter, or none; 1 have one");
  refused(with({qa, qb, ka, kb, va, vb}), fused, "the A of 'blk.0.attn_q', attn_k and attn_v must be the same");
  refused(with({qa}), fused, "'blk.0.attn_q.weight' must have a lora_a and a lora_b of 2 dims with numbers; it has one");
  refused(with({{"blk.0.ffn_up.weight.lora_a", {32, 2}}, {"blk.0.ffn_up.weight.lora_b", {1, 36}}}), fused, "must have A [rank, inputs] and B [outputs, rank]");
  refused(with({{"blk.0.attn_norm.weight.lora_a", {32, 1}}, {"blk.0.attn_norm.weight.lora_b", {1, 32}}}), fused, "' must belong to a module of the base model");
  refused(with({}), fused, "an adapter must have matrices; it has none");
  refused(with({qa, qb}, 0.0f), fused, "'adapter.lora.alpha' must be finite and not 0; it is 0");
}

TEST_CASE("a model's adapter is saved as a GGUF file by name, as its folder is converted") {
  const scratch_folder folder;
  std::filesystem::create_directory(folder / "2");
  const std::string adapter = golden::folder("llama_lora"), base = golden::folder("llama_grouped_untied");
  auto model = llama<with_lora>::from_pretrained(base, {}, {.adapter = adapter_config_of(adapter)});
  load_adapter(model, adapter);
  save_pretrained(model, folder / "x.gguf");
  write_gguf_adapter(folder / "2/x.gguf", adapter, config_in(base));
  CHECK(get_file(folder / "x.gguf") == get_file(folder / "2/x.gguf"));
  std::filesystem::create_directory(folder / "3");
  trainer(model, {.max_steps = 1, .micro_batch_size = 1}).save(folder / "3/x.gguf");
  CHECK(get_file(folder / "x.gguf") == get_file(folder / "3/x.gguf"));

  write_adapter_folder(folder / "back", folder / "x.gguf", config_in(base), base);  // and continues from there
  auto again = llama<with_lora>::from_pretrained(base, {}, {.adapter = adapter_config_of(folder / "back")});
  load_adapter(again, folder / "back");
  save_pretrained(again, folder / "2/x.gguf");
  CHECK(get_file(folder / "x.gguf") == get_file(folder / "2/x.gguf"));
  const auto refused = [&](const std::string& name, const std::function<void(gguf_config&)>& change, const std::string& because) {
    const std::string from = golden::folder(name);
    gguf_config config = config_in(golden::folder(read_json(from + "/adapter_config.json").at("base_model_name_or_path").get<std::string>()));
    change(config);
    const std::string problem = thrown([&] { write_gguf_adapter(folder / "y.gguf", from, config); });
    CHECK_MESSAGE(problem.find(because) != std::string::npos, "'", problem, "' must say '", because, "'");
    CHECK(!file_exists(folder / "y.gguf"));
  };
  refused("qwen2_lora_rich", [](gguf_config&) {}, "must be LoRA, because llama.cpp has no magnitudes; it is DoRA");
  refused("baichuan_lora", [](gguf_config&) {}, "baichuan in a GGUF file must have 32 layers with rotary positions");
  refused("aquila_lora", [](gguf_config&) {}, "of a family that llama.cpp has");
  refused("llama_lora", [](gguf_config& c) { c.num_layers = 1; }, "must be a module that llama.cpp's architecture 'llama' has, in one of 1 layers");
  refused("llama_lora", [](gguf_config& c) { c.num_heads *= 2; }, "must have");
  json config = read_json(adapter + "/adapter_config.json");
  const scratch_folder changed;
  for (const std::string& file : names_in(adapter)) put_file(changed / file, get_file(adapter + "/" + file));
  config["use_dora"] = true;
  put_file(changed / "adapter_config.json", config.dump());
  CHECK(thrown([&] { write_gguf_adapter(folder / "y.gguf", changed.path(), config_in(base)); }).find("must be LoRA, because llama.cpp has no magnitudes") !=
        std::string::npos);
  config["use_dora"] = false, config["use_rslora"] = true;
  put_file(changed / "adapter_config.json", config.dump());
  write_gguf_adapter(folder / "y.gguf", changed.path(), config_in(base));
  CHECK(std::abs(gguf_file(folder / "y.gguf").number("adapter.lora.alpha").value() - 12.0 * std::sqrt(3.0)) < 2e-6);  // alpha x rank / sqrt(rank)
  config["use_rslora"] = false, config["alpha_pattern"] = {{"q_proj", 3}};
  put_file(changed / "adapter_config.json", config.dump());
  write_gguf_adapter(folder / "z.gguf", changed.path(), config_in(base));
  const gguf_file two(folder / "z.gguf"), one(folder / "x.gguf");
  const double ratio = two.number("adapter.lora.alpha").value() / 12.0;
  for (const auto& [tensor, alpha] : {std::pair{"blk.0.attn_q.weight.lora_b", 0.25}, {"blk.0.attn_v.weight.lora_b", 1.0}}) {  // 3 / 12
    const std::vector<float> x = numbers_of(tensor_of(two, tensor)), y = numbers_of(tensor_of(one, tensor));
    for (std::size_t i = 0; i < x.size(); ++i)
      CHECK(std::abs(static_cast<double>(x[i]) * ratio - static_cast<double>(y[i]) * alpha) <= 1.2e-7 * std::abs(static_cast<double>(y[i])));
  }
}
