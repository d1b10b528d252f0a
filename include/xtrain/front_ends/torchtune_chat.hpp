// Chat templates equivalent to torchtune's tokenizers.                                  [torchtune 0.6.1, models/*/_tokenizer.py]
#pragma once

#include <array>
#include <string>
#include <string_view>

#include <xtrain/core/text.hpp>

namespace xtrain::detail {

enum class tune_layout : unsigned char {
  plain,   ///< Llama 2, Mistral, Gemma: only texts; a turn of user and assistant begins with bos and ends with eos
  llama3,  ///< a header before each message, <|eot_id|> after it
  qwen,    ///< <|im_start|>role, <|im_end|>; the last answer ends with <|im_end|> alone
  phi3,    ///< <|user|> ... <|end|>
  phi4     ///< <|im_start|>role<|im_sep|>, <|im_end|>
};

/// A prompt template: text before and after each role's message.
struct tune_prompt {
  std::array<std::string, 2> system{}, user{}, assistant{};
  bool system_in_user = false;   ///< Llama 2: every user message contains the system message
  bool refuses_system = false;   ///< Mistral
  bool drops_spaces = false;     ///< Gemma, whose SentencePiece puts no space before a text
};

/// A string literal of the Jinja language.
[[nodiscard]] inline std::string jinja_text(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\n') quoted += "\\n";
    else if (c == '\t') quoted += "\\t";
    else if (c == '\\' || c == '\'') quoted += std::string("\\") + c;
    else quoted += c;
  }
  return quoted + "'";
}

/// For tune_layout::plain. torchtune tokenizes each part of a message separately: its words, and the prompt template's text around them. Spaces at the end of a
/// part are cut; SentencePiece puts a space before each part of a turn's first message, and of a message that follows a space: hence two spaces before [/INST],
/// and a target space before the answer.
[[nodiscard]] inline std::string tune_plain_chat_template(const tune_prompt& prompt) {
  const auto parts = [](const std::array<std::string, 2>& around, const std::string& before_content = "") {
    return concat("[", jinja_text(around[0]), "]", before_content, " + [m.content, ", jinja_text(around[1]), "]");
  };
  const auto set_parts = [](const std::string& list) { return concat("    {%- set ns.parts = ", list, " -%}\n"); };
  const auto space_if = [&](const char* condition, const char* otherwise) {
    return prompt.drops_spaces ? std::string("''") : concat("' ' if ", condition, " else ", otherwise);
  };
  const std::string system = prompt.refuses_system   ? "    {{- raise_exception('this prompt template has no system message') -}}\n"
                             : prompt.system_in_user ? concat("    {%- set ns.system = ", parts(prompt.system), " -%}\n", set_parts("[]"))
                                                     : set_parts(parts(prompt.system));
  const auto last = [](const std::array<std::string, 2>& around) { return around[1].empty() ? std::string("m.content") : jinja_text(around[1]); };
  std::string text = concat(
      "{%- set ns = namespace(begins=true, parts=[], system=[], text='', joint='', space='') -%}\n{%- for m in messages -%}\n  {%- if m.role == 'system' -%}\n",
      system, "  {%- elif m.role == 'user' -%}\n", set_parts(parts(prompt.user, prompt.system_in_user ? " + ns.system" : "")),
      "  {%- elif m.role == 'assistant' -%}\n", set_parts(parts(prompt.assistant)),
      "  {%- else -%}\n    {{- raise_exception('roles must be system, user and assistant; given ' ~ m.role) -}}\n  {%- endif -%}\n  {%- if ns.parts -%}\n"
      "    {%- if ns.begins -%}{{- bos_token -}}{%- endif -%}\n    {%- set ns.joint = ", space_if("ns.begins", "ns.space"),
      " -%}\n    {%- set ns.text = '' -%}\n    {%- for part in ns.parts if part.rstrip(' ') -%}\n"
      "      {%- set ns.text = ns.text + (ns.joint if ns.text else ns.space) + part.rstrip(' ') -%}\n    {%- endfor -%}\n    {%- if m.role == 'assistant' -%}\n"
      "      {%- generation -%}{{- ns.text + eos_token -}}{%- endgeneration -%}{%- set ns.begins = true -%}{%- set ns.space = '' -%}\n    {%- else -%}\n"
      "      {{- ns.text -}}{%- set ns.begins = false -%}{%- set ns.space = ",
      space_if(concat("(", last(prompt.user), " if m.role == 'user' else ", last(prompt.system), ").endswith(' ')").c_str(), "''"),
      " -%}\n    {%- endif -%}\n  {%- endif -%}\n{%- endfor -%}");
  if (!prompt.assistant[0].empty())
    text += concat("\n{%- if add_generation_prompt -%}{{- ns.space + ", jinja_text(prompt.assistant[0]), ".rstrip(' ') -}}{%- endif -%}");
  return text;
}

/// Answers are masked as in torchtune: an answer with its header and end is a target.
///   departs from  torchtune, which tokenizes every message separately; writes (and masks) Llama 3's <|end_of_text|> after a conversation, omitted here; and
///                 omits <|im_end|> after a phi-4 answer
[[nodiscard]] inline std::string tune_chat_template(tune_layout layout, const tune_prompt& prompt) {
  if (layout == tune_layout::plain) return tune_plain_chat_template(prompt);
  const bool strips = layout == tune_layout::llama3, ends_spaces = layout == tune_layout::phi3 || layout == tune_layout::phi4;
  const auto cut = [&](const std::string& value) {
    return strips ? concat("(", value, ") | trim") : ends_spaces ? concat("(", value, ").rstrip(' ')") : value;
  };
  /// The words of a message with the text around them, each cut as the tokenizer does.
  const auto words = [&](const std::array<std::string, 2>& around, const std::string& before_content = "") {
    std::string all;
    const auto add = [&](const std::string& part) { all += (all.empty() ? "" : " + ") + concat("(", cut(part), ")"); };
    if (!around[0].empty()) add(jinja_text(around[0]));
    if (!before_content.empty()) all += (all.empty() ? "" : " + ") + before_content;
    add("m.content");
    if (!around[1].empty()) add(jinja_text(around[1]));
    return all;
  };
  struct marks {
    std::string system, user, assistant, end, last_end, prompt;
  };
  marks m;
  if (layout == tune_layout::llama3) {
    const auto header = [](const char* role) { return concat("'<|start_header_id|>", role, "<|end_header_id|>\\n\\n'"); };
    m = {header("system"), header("user"), header("assistant"), "'<|eot_id|>'", "'<|eot_id|>'", header("assistant")};
  } else if (layout == tune_layout::qwen) {
    const auto header = [](const char* role) { return concat("'<|im_start|>", role, "\\n'"); };
    m = {header("system"), header("user"), header("assistant"), "'<|im_end|>\\n'", "'<|im_end|>'", header("assistant")};
  } else if (layout == tune_layout::phi3) {
    m = {"'<|system|>\\n'", "'<|user|>\\n'", "'<|assistant|>\\n'", "'<|end|>\\n'", "'<|end|>\\n'", "'<|assistant|>\\n'"};
  } else {
    const auto header = [](const char* role) { return concat("'<|im_start|>", role, "<|im_sep|>'"); };
    m = {header("system"), header("user"), header("assistant"), "'<|im_end|>'", "'<|im_end|>'", header("assistant")};
  }

  std::string text = "{%- set ns = namespace(system='') -%}\n{%- for m in messages -%}\n";
  const auto line = [&](const std::string& more) { text += "  " + more + "\n"; };
  const std::string bos_once = layout == tune_layout::qwen || layout == tune_layout::phi4 ? "" : "{%- if loop.first -%}{{- bos_token -}}{%- endif -%}";
  if (!bos_once.empty()) line(bos_once);
  line("{%- if m.role == 'system' -%}");
  if (prompt.refuses_system) line("  {{- raise_exception('this prompt template has no system message') -}}");
  else if (prompt.system_in_user) line(concat("  {%- set ns.system = ", jinja_text(prompt.system[0]), " + m.content + ", jinja_text(prompt.system[1]), " -%}"));
  else line(concat("  {{- ", m.system, " + ", words(prompt.system), " + ", m.end, " -}}"));
  line("{%- elif m.role == 'user' -%}");
  line(concat("  {{- ", m.user, " + ", words(prompt.user, prompt.system_in_user ? "ns.system" : ""), " + ", m.end, " -}}"));
  line("{%- elif m.role == 'assistant' -%}");
  const std::string end = m.end == m.last_end ? m.end : concat("(", m.last_end, " if loop.last else ", m.end, ")");
  line(concat("  {%- generation -%}{{- ", m.assistant, " + ", words(prompt.assistant), " + ", end, " -}}{%- endgeneration -%}"));
  line("{%- else -%}");
  line("  {{- raise_exception('roles must be system, user and assistant; given ' ~ m.role) -}}");
  line("{%- endif -%}");
  text += "{%- endfor -%}";
  text += concat("\n{%- if add_generation_prompt -%}{{- ", m.prompt,
                 prompt.assistant[0].empty() ? "" : concat(" + (", cut(jinja_text(prompt.assistant[0])), ")"), " -}}{%- endif -%}");
  return text;
}

}  // namespace xtrain::detail
