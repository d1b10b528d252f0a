// GGUF files: metadata, dequantized numbers, and models of every architecture, against llama.cpp's package gguf and transformers (tests/golden/gguf).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/gguf_file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/io.hpp>
#include <xtrain/io/gguf.hpp>
#include <xtrain/models/families.hpp>
#include <xtrain/text.hpp>
#include "gguf_bytes.hpp"
#include "parity.hpp"

using namespace xtrain;
using namespace gguf_bytes;

namespace {

using any_model = any_decoder<parity::fp32_recipe>;

std::string fixture(const std::string& name) { return golden::folder("gguf/" + name); }

/// What a function throws; empty: nothing.
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
    const std::size_t bare = entry.size() + of_text("pad", "").size();  // what is inserted is whole alignments long
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
  // positions are not scaled where the type is none, whatever the factor
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
  // a fused matrix is made after its parts have been checked, however many heads the file claims
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

/// A file with a vocabulary alone.
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

/// Loaded from a GGUF file and from the files that its tokenizer stands for, a text has the same tokens.
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
