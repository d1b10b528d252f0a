// A small model in a GGUF file, with a tokenizer, in the types of Q4_K_M files.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include "gguf_bytes.hpp"

namespace gguf_bytes {

/// `count` blocks of random bits, each with its fp16 scales.
inline std::string random_blocks(std::mt19937& random, std::size_t count, std::size_t bytes, const std::vector<std::size_t>& scales_at, float scale) {
  std::string all(count * bytes, '\0');
  for (char& byte : all) byte = static_cast<char>(random() & 0xFFU);
  const xtrain::fp16 half(scale);
  for (std::size_t block = 0; block < count; ++block)
    for (const std::size_t at : scales_at) std::memcpy(all.data() + block * bytes + at, &half, sizeof(half));
  return all;
}

/// A LLaMA of one layer with 260 tokens, one per byte: Q4_K, Q6_K and Q8_0.
inline std::string quantized_llama() {
  constexpr std::uint64_t c = 256, kv = 128, v = 260;
  std::vector<std::string> tokens{"<unk>", "<s>", "</s>"};
  std::vector<std::int32_t> types{2, 3, 3};
  const std::string digits = "0123456789ABCDEF";
  for (std::size_t byte = 0; byte < 256; ++byte) {
    tokens.push_back(std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">");
    types.push_back(6);
  }
  tokens.push_back("\u2581");
  types.push_back(1);
  const auto setting = [](const char* name, std::uint32_t value) { return of_u32(std::string("llama.") + name, value); };
  const std::vector<std::string> entries{of_text("general.architecture", "llama"), setting("context_length", 64), setting("embedding_length", c),
                                         setting("block_count", 1), setting("feed_forward_length", c), setting("attention.head_count", 4),
                                         setting("attention.head_count_kv", 2), of_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f),
                                         of_text("tokenizer.ggml.model", "llama"), of_texts("tokenizer.ggml.tokens", tokens),
                                         of_numbers("tokenizer.ggml.scores", 6, std::vector<float>(v, 0.0f)), of_numbers("tokenizer.ggml.token_type", 5, types),
                                         of_u32("tokenizer.ggml.bos_token_id", 1), of_u32("tokenizer.ggml.eos_token_id", 2)};
  std::mt19937 random(5);
  std::vector<std::string> listing;
  std::string data;
  const auto add = [&](const std::string& name, const std::vector<std::uint64_t>& dims, std::uint32_t type, const std::string& bytes) {
    listing.push_back(listed(name, dims, type, data.size()));
    data += bytes;
    data.resize((data.size() + 31) / 32 * 32);
  };
  const auto norm = [&](const std::string& name) {
    std::string ones;
    for (std::uint64_t i = 0; i < c; ++i) ones += number(1.0f);
    add(name, {c}, 0, ones);
  };
  const auto q8_0 = [&](const std::string& name, std::uint64_t rows) { add(name, {c, rows}, 8, random_blocks(random, rows * c / 32, 34, {0}, 5e-4f)); };
  const auto q4_k = [&](const std::string& name, std::uint64_t rows) { add(name, {c, rows}, 12, random_blocks(random, rows, 144, {0, 2}, 1e-4f)); };
  const auto q6_k = [&](const std::string& name, std::uint64_t rows) { add(name, {c, rows}, 14, random_blocks(random, rows, 210, {208}, 2e-5f)); };
  q8_0("token_embd.weight", v);
  norm("blk.0.attn_norm.weight");
  q4_k("blk.0.attn_q.weight", c);
  q4_k("blk.0.attn_k.weight", kv);
  q6_k("blk.0.attn_v.weight", kv);
  q4_k("blk.0.attn_output.weight", c);
  norm("blk.0.ffn_norm.weight");
  q4_k("blk.0.ffn_gate.weight", c);
  q4_k("blk.0.ffn_up.weight", c);
  q6_k("blk.0.ffn_down.weight", c);
  norm("output_norm.weight");
  q6_k("output.weight", v);
  return file(entries, listing, data);
}

}  // namespace gguf_bytes
