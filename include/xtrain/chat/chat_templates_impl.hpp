#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/chat/chat_template.hpp>
#include <xtrain/chat/chat_templates.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/text.hpp>

namespace xtrain {

namespace detail {

struct named_template {
  std::string_view name;
  std::string_view text;
};

/// As published; examples: chat/README.md.
inline constexpr std::array<named_template, 10> named_templates{{
    {"alpaca",
     R"({%- set ns = namespace(system='Below is an instruction that describes a task. Write a response that appropriately completes the request.') -%}
{%- for m in messages if m.role == 'system' %}{% set ns.system = m.content %}{% endfor -%}
{{- ns.system -}}
{%- for m in messages -%}
  {%- if m.role == 'user' -%}
    {{- '\n\n### Instruction:\n' + m.content + '\n\n### Response:\n' -}}
  {%- elif m.role == 'assistant' -%}
    {%- generation -%}{{- m.content + eos_token -}}{%- endgeneration -%}
  {%- elif m.role != 'system' -%}
    {{- raise_exception('roles must be system, user and assistant; given ' ~ m.role) -}}
  {%- endif -%}
{%- endfor -%})"},
    {"llama2",
     R"({%- set ns = namespace(system='') -%}
{%- for m in messages -%}
  {%- if m.role == 'system' -%}
    {%- set ns.system = '<<SYS>>\n' + m.content + '\n<</SYS>>\n\n' -%}
  {%- elif m.role == 'user' -%}
    {{- bos_token + '[INST] ' + ns.system + m.content + ' [/INST]' -}}
    {%- set ns.system = '' -%}
  {%- elif m.role == 'assistant' -%}
    {%- generation -%}{{- ' ' + m.content + ' ' + eos_token -}}{%- endgeneration -%}
  {%- else -%}
    {{- raise_exception('roles must be system, user and assistant; given ' ~ m.role) -}}
  {%- endif -%}
{%- endfor -%})"},
    {"chatml",
     R"({%- for m in messages -%}
  {{- '<|im_start|>' + m.role + '\n' -}}
  {%- if m.role == 'assistant' -%}
    {%- generation -%}{{- m.content + '<|im_end|>' -}}{%- endgeneration -%}{{- '\n' -}}
  {%- else -%}
    {{- m.content + '<|im_end|>\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%})"},
    {"qwen",
     R"({%- if not messages or messages[0].role != 'system' -%}
  {{- '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' -}}
{%- endif -%}
{%- for m in messages -%}
  {{- '<|im_start|>' + m.role + '\n' -}}
  {%- if m.role == 'assistant' -%}
    {%- generation -%}{{- m.content + '<|im_end|>' -}}{%- endgeneration -%}{{- '\n' -}}
  {%- else -%}
    {{- m.content + '<|im_end|>\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%})"},
    {"baichuan",
     R"({%- for m in messages -%}
  {%- if m.role == 'user' -%}
    {{- '<reserved_106>' + m.content -}}
    {%- if add_generation_prompt or not loop.last -%}{{- '<reserved_107>' -}}{%- endif -%}
  {%- elif m.role == 'assistant' -%}
    {%- generation -%}{{- m.content -}}{%- if loop.last -%}{{- eos_token -}}{%- endif -%}{%- endgeneration -%}
  {%- elif m.role == 'system' -%}
    {{- m.content -}}
  {%- else -%}
    {{- raise_exception('roles must be system, user and assistant; given ' ~ m.role) -}}
  {%- endif -%}
{%- endfor -%})"},
    {"chatglm2",
     R"({{- '[gMASK]sop' -}}
{%- set ns = namespace(round=0) -%}
{%- for m in messages -%}
  {%- if m.role == 'system' -%}
    {{- m.content + '\n\n' -}}
  {%- elif m.role == 'user' -%}
    {%- set ns.round = ns.round + 1 -%}
    {{- '\n\n' if ns.round > 1 -}}
    {{- '[Round ' ~ ns.round ~ ']\n\n问：' + m.content + '\n\n答：' -}}
  {%- elif m.role == 'assistant' -%}
    {%- generation -%}{{- m.content -}}{%- if loop.last -%}{{- eos_token -}}{%- endif -%}{%- endgeneration -%}
  {%- else -%}
    {{- raise_exception('roles must be system, user and assistant; given ' ~ m.role) -}}
  {%- endif -%}
{%- endfor -%})"},
    {"chatglm3",
     R"({{- '[gMASK]sop' -}}
{%- for m in messages -%}
  {{- '<|' + m.role + '|>' -}}
  {%- if m.role == 'assistant' -%}
    {%- generation -%}{{- '\n ' + m.content -}}{%- if loop.last -%}{{- eos_token -}}{%- endif -%}{%- endgeneration -%}
  {%- else -%}
    {{- '\n ' + m.content -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%})"},
    {"internlm",
     R"({{- bos_token -}}
{%- for m in messages -%}
  {%- if m.role == 'system' -%}
    {{- '<|System|>:' + m.content + '\n' -}}
  {%- elif m.role == 'user' -%}
    {{- '<|User|>:' + m.content + '<eoh>\n<|Bot|>:' -}}
  {%- elif m.role == 'assistant' -%}
    {%- generation -%}{{- m.content + '<eoa>' -}}{%- endgeneration -%}{{- '\n' -}}
  {%- else -%}
    {{- raise_exception('roles must be system, user and assistant; given ' ~ m.role) -}}
  {%- endif -%}
{%- endfor -%})"},
    {"mistral",
     R"({{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- for m in messages -%}
  {%- if m.role == 'system' -%}
    {%- set ns.system = m.content + '\n\n' -%}
  {%- elif m.role == 'user' -%}
    {{- '[INST] ' + ns.system + m.content + ' [/INST]' -}}
    {%- set ns.system = '' -%}
  {%- elif m.role == 'assistant' -%}
    {%- generation -%}{{- ' ' + m.content + eos_token -}}{%- endgeneration -%}
  {%- else -%}
    {{- raise_exception('roles must be system, user and assistant; given ' ~ m.role) -}}
  {%- endif -%}
{%- endfor -%})"},
    {"vicuna",
     R"({{- bos_token -}}
{%- set ns = namespace(system='A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and polite answers to the user\'s questions.') -%}
{%- for m in messages if m.role == 'system' %}{% set ns.system = m.content %}{% endfor -%}
{{- ns.system + ' ' -}}
{%- for m in messages -%}
  {%- if m.role == 'user' -%}
    {{- 'USER: ' + m.content + ' ASSISTANT:' -}}
  {%- elif m.role == 'assistant' -%}
    {%- generation -%}{{- ' ' + m.content + eos_token -}}{%- endgeneration -%}
  {%- elif m.role != 'system' -%}
    {{- raise_exception('roles must be system, user and assistant; given ' ~ m.role) -}}
  {%- endif -%}
{%- endfor -%})"},
}};

}  // namespace detail

XTRAIN_INLINE std::vector<std::string> chat_template_names() {
  std::vector<std::string> names;
  for (const detail::named_template& one : detail::named_templates) names.emplace_back(one.name);
  return names;
}

XTRAIN_INLINE chat_template named_chat_template(std::string_view name) {
  for (const detail::named_template& one : detail::named_templates) {
    if (one.name != name) continue;
    chat_template made = chat_template::from_text(one.text, concat("chat template '", name, "'"));
    made.set_token("bos_token", "<s>");
    made.set_token("eos_token", "</s>");
    return made;
  }
  const std::vector<std::string> names = chat_template_names();
  std::string all;
  for (const std::string& known : names) all += (all.empty() ? "" : ", ") + known;
  const std::string near = nearest_name(name, names);
  fail<config_error>("chat template: must be one of ", all, "; given '", name, "'",
                     near.empty() ? "" : concat(". Did you mean '", near, "'?"));
}

}  // namespace xtrain
