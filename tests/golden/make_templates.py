"""Makes templates/cases.json: templates with what jinja2 makes of them, in the environment that transformers gives chat templates
(trim_blocks, lstrip_blocks, loop controls, a tojson that escapes nothing for HTML).

    python make_templates.py [FOLDER]

FOLDER holds public templates and the conversations to write with them (formats/chat_template/llamacpp_templates and
minja_contexts, tokenizers/*/tokenizer_config*.json); of these only a length and a hash are kept. Without it they stay as they
were.
"""

import glob
import json
import os
import pathlib
import sys

import jinja2
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).resolve().parent
VARIABLES = {'xs': [3, 1, 2], 's': 'Hello World', 'd': {'b': 1, 'a': [1, 2, {'k': None}], 'items2': True}, 'u': '\u3000h\xe9llo w\xf6rld \u4f60\u597d\xa0', 'n': 7, 'f': 2.5, 't': True, 'none_': None, 'messages': [{'role': 'system', 'content': ' sys '}, {'role': 'user', 'content': 'Hi'}, {'role': 'assistant', 'content': 'Yo', 'tool_calls': []}, {'role': 'user', 'content': 'x\ny'}], 'e': [], 'z': {}}

# Each of these is a template of its own.
EXPRESSIONS = [
    '{{ xs }}|{{ d }}|{{ s }}|{{ none_ }}|{{ t }}|{{ f }}|{{ missing }}|{{ (1,) }}|{{ () }}|{{ [] }}|{{ {} }}',
    '{{ 1e16 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }} {{ 1.0 }} {{ -0.5 }} {{ 123456.789 }} {{ 1e300 }} {{ 1e-7 }} {{ 5e-324 }}',
    '{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % -3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 6 / 3 }} {{ 2**3**2 }}',
    '{{ -2 ** 2 }} {{ -xs[0] }} {{ +n }} {{ -n|abs }} {{ (-n)|abs }} {{ not t }} {{ not none_ and t }}',
    "{{ 'a' ~ 1 ~ none_ ~ t ~ [1,'x'] ~ missing }}",
    "{{ 'a' + 'b' * 3 }} {{ [1] + [2] }} {{ [0] * 3 }} {{ (1,2) + (3,) }} {{ 3 * 'ab' }} {{ 'x' * -1 }}",
    "{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ [1,2] < [1,3] }} {{ none_ == none }} {{ 'a' == 1 }} {{ missing == missing2 }} {{ missing != none }}",
    "{{ 2 in xs }} {{ 9 not in xs }} {{ 'ell' in s }} {{ 'b' in d }} {{ 'q' in missing }} {{ 'a' in ('a','b') }}",
    "{{ 'yes' if n > 5 else 'no' }} {{ 'x' if false }}| {{ 1 if none_ else 2 if missing else 3 }}",
    '{{ xs[0] }} {{ xs[-1] }} {{ xs[5] }}| {{ xs[1:] }} {{ xs[::-1] }} {{ xs[:-1] }} {{ s[1:4] }} {{ s[::-2] }} {{ u[1:4] }} {{ s[-3:] }} {{ xs[5:] }} {{ xs[-10:2] }} {{ xs[2:0:-1] }} {{ (1,2,3)[1:] }}',
    "{{ d.b }} {{ d['b'] }} {{ d.a[2].k }} {{ d.nope }}| {{ d['a'][0] }} {{ xs.0 }} {{ d.get('q') }} {{ d.get('q', 5) }} {{ d.get('b') }} {{ z.get('x','y') }}",
    '{{ d.keys()|list }} {{ d.values()|list }} {{ d.items()|list }} {{ d|items|list }} {{ d|dictsort }} {{ d|length }}',
    '{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %} {% for k in d %}{{ k }},{% endfor %}',
    "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem.role if loop.previtem is defined }}>{{ loop.nextitem.role if loop.nextitem is defined }} {{ loop.cycle('a','b') }}|{% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ loop.index }}/{{ loop.length }} {{ m.content }} {{ loop.last }};{% else %}none{% endfor %}",
    "{% for m in e %}x{% else %}empty{% endfor %} {% for c in 'h\xe9y' %}[{{ c }}]{% endfor %} {% for x in missing %}q{% endfor %}",
    '{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}',
    '{% for a, b in [(1,2),(3,4)] %}{{ a }}-{{ b }} {% endfor %}{% for (a, b) in [[1,2]] %}{{ a+b }}{% endfor %}',
    '{% set x = 1 %}{% for i in [1,2] %}{{ x }}{% set x = 5 %}{{ x }}{% endfor %}{{ x }}',
    "{% set ns = namespace(a=1, b='q') %}{% for i in [1,2,3] %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c is defined }}",
    '{% set a, b = 1, 2 %}{{ a }}{{ b }} {% set c = 1, 2 %}{{ c }}',
    '{% set blk %}  hello {{ n }}  {% endset %}[{{ blk }}] {% set blk | trim | upper %}  hello {% endset %}[{{ blk }}]',
    "{% macro m(a, b=2, c='z') %}{{ a }}{{ b }}{{ c }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1) }} {{ m(1, c=4) }} {{ m(1,2,3,4,5,k=6) }} {{ m() }}",
    '{% macro outer() %}<{{ caller() }}>{% endmacro %}{% call outer() %}in {{ n }}{% endcall %} {% macro o2() %}<{{ caller(1, 2) }}>{% endmacro %}{% call(p, q) o2() %}{{ p }}{{ q }}{% endcall %}',
    '{% macro rec(k) %}{{ k }}{% if k > 0 %},{{ rec(k-1) }}{% endif %}{% endmacro %}{{ rec(4) }}',
    '{% macro late() %}{{ later }}{% endmacro %}{% set later = 5 %}{{ late() }}',
    "{% filter upper %}abc {{ s }}{% endfilter %} {% filter replace('a','b')|upper %}abc{% endfilter %}",
    '{% with a = 1, b = n %}{{ a + b }}{% endwith %}',
    "{{ '  x '|trim }}| {{ 'xxaxx'|trim('x') }} {{ u|trim }} {{ s|upper }} {{ s|lower }} {{ 'hello wORLD-foo (bar) it\\'s'|title }} {{ 'hELLO'|capitalize }}",
    '{{ s|length }} {{ u|length }} {{ xs|count }} {{ missing|length }}',
    "{{ xs|join(', ') }} {{ xs|join }} {{ messages|join('/', attribute='role') }} {{ [1,none,'a']|join('-') }}",
    "{{ missing|default('D') }} {{ none_|default('D') }} {{ none_|default('D', true) }} {{ ''|d('E', boolean=True) }}",
    '{{ d|tojson }} {{ d|tojson(indent=2) }} {{ {}|tojson(indent=2) }} {{ []|tojson }} {{ \'\xe9"\\\\\\n\\t<>&\\u0001\'|tojson }} {{ \'\xe9\U0001f600\'|tojson(ensure_ascii=true) }} {{ {\'b\':1,\'a\':2}|tojson(sort_keys=true) }} {{ [1.0,none,true,1e20]|tojson }} {{ d|tojson(separators=(\',\',\':\')) }} {{ {1:2, none:3, true:4}|tojson }}',
    "{{ s|replace('l','L') }} {{ s|replace('l','L',1) }} {{ 'aaa'|replace('','-') }} {{ 'aaa'.replace('','-',2) }} {{ 'aaa'.replace('a','b',2) }} {{ 'aaa'.replace('','-',0) }} {{ 'ab'.replace('','-',3) }} {{ 'ab'.replace('','-',9) }}",
    "{{ xs|first }} {{ xs|last }} {{ 'abc'|first }} {{ e|first }}| {{ 'abc'|list }} {{ d|list }} {{ xs|reverse|list }} {{ 'abc'|reverse }}",
    "{{ messages|map(attribute='role')|list }} {{ ['a','b']|map('upper')|join }} {{ messages|map(attribute='tool_calls', default='no')|list }} {{ ['a b','c']|map('replace',' ','_')|list }}",
    "{{ xs|select('odd')|list }} {{ xs|reject('odd')|list }} {{ xs|select('gt', 1)|list }} {{ messages|selectattr('role','equalto','user')|list }} {{ messages|rejectattr('role','in',['user','system'])|map(attribute='content')|list }} {{ [0,1,'',none,'a']|select|list }} {{ messages|selectattr('tool_calls','defined')|list|length }}",
    "{{ xs|sort }} {{ xs|sort(reverse=true) }} {{ ['b','A','c']|sort }} {{ ['b','A','c']|sort(case_sensitive=true) }} {{ messages|sort(attribute='role')|map(attribute='role')|list }}",
    "{{ [1,2,1,'a','A']|unique|list }} {{ xs|sum }} {{ xs|min }} {{ xs|max }} {{ [1.5,2]|sum }} {{ messages|groupby('role')|length }} {{ [1,2,3,4,5]|batch(2)|list }} {{ [1,2,3]|batch(2,'x')|list }}",
    "{{ '42'|int }} {{ 'x'|int }} {{ 'x'|int(7) }} {{ '3.9'|int }} {{ 3.9|int }} {{ '2.5'|float }} {{ 'q'|float }} {{ 5|string + 'a' }} {{ -3|abs }} {{ 2.567|round(2) }} {{ 2.5|round }} {{ 3.5|round }} {{ 42|round }} {{ 2.1|round(0,'ceil') }} {{ 2.9|round(method='floor') }}",
    "{{ 'a\\nb\\n\\nc'|indent }}| {{ 'a\\nb'|indent(2, true) }} {{ 'a\\n\\nb'|indent(2, blank=true) }} {{ 'a\\nb\\n'|indent('> ') }}|",
    '{{ \'<a href="x">&\\\'\'|escape }} {{ \'<\'|e ~ \'<\' }} {{ \'<b>\'|safe }} {{ \'<\'|safe + \'<\' }} {{ \'<\' + \'>\'|safe }} {{ (\'<\'|e)|e }} {{ \'<\'|safe|upper + \'<\' }}',
    "{{ 'a b  c'.split() }} {{ 'a,b,,c'.split(',') }} {{ 'a b c d'.split(' ', 1) }} {{ 'a b c'.rsplit(' ', 1) }} {{ ' a  b c '.split(none, 1) }} {{ ' a  b c '.rsplit(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'x</think>y'.split('</think>')[-1] }}",
    "{{ '  a '.strip() }}| {{ 'xxa'.lstrip('x') }} {{ 'axy'.rstrip('yx') }} {{ '\\n a\\n'.lstrip('\\n') }}| {{ s.startswith('Hell') }} {{ s.endswith(('x','d')) }} {{ s.upper() }} {{ s.lower() }} {{ 'ab cd'.title() }} {{ 'aB'.capitalize() }} {{ s.find('o') }} {{ s.rfind('o') }} {{ s.find('q') }} {{ ','.join(['a','b']) }} {{ s.count('l') }} {{ 'a\\nb'.splitlines() }} {{ u.find('w') }} {{ '12'.isdigit() }} {{ '{} {} {a}'.format(1,'x',a=2) }} {{ '{0}{0}'.format('k') }} {{ '{{}}'.format() }}",
    "{{ '%s is %d and %.2f %5d|%-5s|%05d %%' % ('a', 3, 2.5, 42, 'b', 7) }} {{ '%s' % 'x' }} {{ '%(a)s' % {'a': 1} }} {{ '%s-%s'|format('a', 'b') }} {{ '%x %X' % (255, 255) }} {{ '%+d' % 3 }}",
    "{{ missing is defined }} {{ s is defined }} {{ none_ is none }} {{ s is string }} {{ d is mapping }} {{ xs is iterable }} {{ s is sequence }} {{ d is sequence }} {{ 1 is number }} {{ true is number }} {{ 1 is integer }} {{ true is integer }} {{ 1.0 is float }} {{ true is boolean }} {{ true is true }} {{ 1 is true }} {{ false is false }} {{ 3 is odd }} {{ 4 is even }} {{ 4 is divisibleby 2 }} {{ 4 is divisibleby(3) }} {{ 'a' is equalto 'a' }} {{ 1 is eq(1) }} {{ 1 is not none }} {{ 'a' is in ['a'] }} {{ 'abc' is lower }} {{ 'ABC' is upper }} {{ none_ is sameas none }} {{ range is callable }} {{ s is not string }} {{ missing is undefined }} {{ 1 is lt 2 }} {{ 2 is ge 2 }} {{ d.items() is sequence }} {{ xs|select is iterable }}",
    '{{ range(5)|list }} {{ range(1,5,2)|list }} {{ range(5,0,-2)|list }} {{ range(0) | list }} {{ range(3)[1] }} {{ range(3)|length }}',
    "{{ dict(a=1, b=2) }} {{ dict({'a':1}, c=3) }} {{ {'a': 1, 'b': {'c': [1, 'x']}} }} {{ {1: 'a', 'b': none} }} {{ {'a':1}['a'] }} {{ {'x y': 1}['x y'] }}",
    '{{ \'a\\\'b\' }} {{ "a\\"b" }} {{ [\'a\\\'b\', "a\\"b", \'a\\\'b"c\', \'a\\\\b\', \'a\\nb\\tc\'] }} {{ [\'\\u00e9\\u200b\\x07\\U0001F600\'] }} {{ \'\\x41\\102\\u4f60\' }} {{ \'a\\qb\' }} {{ "a" \'b\' "c" }}',
    'a {%- if true -%}  b  {%- endif -%} c',
    'k{% raw %}{{ not }} {% if %}{% endraw %}m',
    '{%- raw -%}  {{ x }}  {%- endraw -%}  n',
    '   {{ 1 }}   {{- 2 -}}   3',
    '\t{% set q = 1 %}\t{% set r = 2 %}',
    '{{ q }}{{ r }}',
    '{% if n == 7 %}A{% elif n == 8 %}B{% else %}C{% endif %}{% if n == 8 %}A{% elif n == 7 %}B{% endif %}{% if false %}{% else %}Z{% endif %}',
    "{{ messages[0].content.strip() + '!' }} {{ messages[1:]|length }} {{ (messages|last).content }} {{ messages|map(attribute='content')|map('trim')|join('|') }}",
    "{{ messages[-1]['content'].split('\\n')[0] }} {{ messages | selectattr('role', 'eq', 'zzz') | list }} {{ 'T' if messages | selectattr('role', 'eq', 'zzz') else 'F' }}",
    '{% set g = xs|select %}{% for a in g %}{{ a }}{% endfor %}-{% for a in g %}{{ a }}{% endfor %}',
    "{% set g = xs|map('string') %}{{ g|first }}{{ g|list }}",
    "{{ [1,2][true] }} {{ {'a':1}.items()|first }} {{ d.b is defined and d.b == 1 }} {{ 1 and 0 }} {{ 0 or 'x' }} {{ none or false }} {{ 1_000 }} {{ 1.5e3 }}",
    '{% generation %}gen {{ n }}{% endgeneration %}',
    '{{ "}}" }} {{ {\'a\': {\'b\': 1}} }} {{ \'{%\' }}',
    '{{ -1.5 }} {{ - 3 + 5 }} {{ 3 -1 }} {{ 3-1 }} {{ 10 - 2 - 3 }} {{ 2 * 3 % 4 }} {{ 1 ~ 2 * 3 }}',
    '{{ true }} {{ True }} {{ none }} {{ None }} {{ false|string|length }}',
    '{% for i in [1,1,2] %}{{ loop.changed(i) }}{% endfor %}',
    "{{ n.foo }}| {{ s.foo }}| {{ s['foo'] }}| {{ none_.x }}| {{ xs.foo }}|",
    "{{ xs | length > 2 }} {{ xs|length + 1 }} {{ 'a' in s|lower }} {{ not xs|length == 3 }} {{ s|lower is equalto s.lower() }}",
    "{% set ns = namespace(f=false) %}{% for m in messages if not ns.f %}{{ m.role }}{% if m.role == 'user' %}{% set ns.f = true %}{% endif %}{% endfor %}",
    "{% set ns = namespace(f=false) %}{% for m in messages if not ns.f %}{{ m.role }}{{ loop.last }}{% if m.role == 'user' %}{% set ns.f = true %}{% endif %}{% endfor %}",
    "{{ d.copy().b }} {{ 'a-b'.partition('-') }} {{ '5'.zfill(3) }} {{ 'abc'.removeprefix('a') }} {{ 'a'|center(5) }}| {{ 'ab'|center(5) }}|{{ 'a b c'|wordcount }}",
    '{% macro f(x) %}{% if x %}{{ return_ }}{% endif %}m{% endmacro %}{{ f(1)|upper }}',
    "{% set x = 'outer' %}{% macro sc() %}{{ x }}{% set x = 'inner' %}{{ x }}{% endmacro %}{{ sc() }}{{ x }}",
    "{{ [[1,2],[3]]|map('sum')|list }} {{ ['x']|map('tojson')|list }} {{ d.a[2]|tojson }} {{ (1,2)|tojson }} {{ 'a' if true and not false }}",
    '{{ messages|tojson }}',
    "{% if messages[0]['role'] == 'system' %}{% set messages = messages[1:] %}{% endif %}{{ messages|length }}",
    "{{ [1,2,3].index(2) }} {{ [1,1].count(1) }} {{ '\xe9'|upper is string }} {{ 'a\\tb'|tojson }} {{ '\\x7f'|tojson }} {{ 1 if missing is not defined else 2 }}",
    '{{ xs|sort(attribute="a") }}{{ 1.foo }}|{{ none[1:] }}|',
    '{% for g in messages|groupby("role") %}{{ g.grouper }}:{{ g.list|length }}{{ g["list"][0].content }}{{ g[0] }}{{ g|length }};{% endfor %}{{ messages|groupby("role")|map(attribute="grouper")|list }}{{ (messages|groupby("role")|first)|attr("grouper") }}',
    '{{ ["b","B","a"]|groupby(0) }}{{ ["b","B","a"]|groupby(0, case_sensitive=true) }}{{ [{"a":1},{}]|groupby("a", default=0) }}{{ ([{"a":1}]|groupby("a"))[0] == (1, [{"a":1}]) }}{{ ([{"a":1}]|groupby("a"))[0].none }}{{ [{"a":1}]|groupby("a")|tojson }}',
    '{% macro named(a, b=1) %}{% endmacro %}{{ named.name }} {{ named.arguments }} {{ named.catch_varargs }} {{ named.catch_kwargs }} {{ named }}{% macro o() %}{{ caller.name }}{% endmacro %}{% call o() %}{% endcall %}',
    "{{ 'stra\u00dfe \u0133 \u01c6x \ufb01n \u0130I\u0131 \u1fb3'|upper }} {{ '\u00c9T\u00c9 \u03a3\u0391\u03a3 \u03a3 \u0391\u03a3\u0301 \u0391\u03a3\u0301\u0391 \u0130'|lower }} {{ '\u00e9t\u00e9 \u01c6x-\u00dfa (\u03c3 \ufb01n'|title }} {{ '\u01c6X \u00c9'|capitalize }}",
    "{{ '\u00e9t\u00e9 \u01c6x-\u00dfa \u10d0 l\u2019\u00e9t\u00e9'.title() }} {{ '\u00dfX'.capitalize() }} {{ '\u00e9\u00c9\u00df\u01c5'.swapcase() }} {{ '\u00c9' is upper }}{{ '\u00e9' is lower }}{{ '\u01c5'.isupper() }}{{ '\u5b57' is upper }}{{ '\u00aa' is lower }}{{ '\u24b6'.isupper() }}",
    "{{ ['\u00c9','\u00e9','\u03a3','\u03c3','z']|unique|list }} {{ ['\u00e9','\u00c9','z','\u00c8']|sort }} {{ ['\u00c9a','\u00e8b']|max }}",
]

# Where spaces and line breaks go.
LAYOUTS = [
    '  {% if true %}\n    x\n  {% endif %}\ny',
    '\n\n  {% if true %}  \n a{% endif %}\n\n',
    'a\n',
    'a\n\n',
    '{% if true %}\n\na{% endif %}\n',
    '{{ 1 }}\n\n{{ 2 }}\n',
    '  {{ 1 }}\n',
    '\r\n{% if true %}\r\nx\r{% endif %}\r\n',
    '{# a #}\nx',
    '  {# a #}\nx {# b #}  \ny',
    'a  {%- set x=1 %}\n\n b',
    '{% set x=1 -%}\n\n  b',
    '{% set x=1 +%}\n b',
    ' \t{%- if true %} x{% endif %}',
    '{% if true %}{% endif %}  {% if true %}\n  {% endif %}  {% set a=1 %}z',
    '{%- for m in messages %}\n    {{- m.role }}\n{%- endfor %}',
    'x\n   {%+ set a = 1 %}\ny',
    '  {% raw %}\n x {% endraw %}\n y',
    ' {%- raw %} a {% endraw -%}\n b',
    '{% raw -%}\n a\n  {% endraw %}b',
    '   {#- x -#}   y',
    'a\n   {#+ x +#}\nb',
    '{{ 1 -}}\n  x',
    '{% generation %}\n a\n{% endgeneration %}\nb',
    '{{ 1\n+\n2 }}',
    '{% if true: %}x{% endif %}',
    '{{\'a\'}}{{"b"}}',
    '\xa0{% set a=1 %}x',
    '   {% set a=1 %}   {% set b=1 %}   c',
    '{{ {"a":{"b":1}}["a"]}}',
    '{{ [1,2,] }}{{ {"a":1,} }}{{ (1,2,) }}',
    '{{ 1, 2 }}',
    '{{ (1) }}',
    '{% for x in 1, 2 %}{{ x }}{% endfor %}',
    '{%if true%}a{%endif%}',
    '{%-if true-%} a {%-endif-%}',
    '{{ "a" if true }}{{ "a" if false is defined else "c" }}',
    'a\n  {% if true %}\n    x\n  {% endif %}\ny\n  {%+ if true %}z{% endif +%}\nw {# comment #} v {#- c -#} u\n{#\nmany\nlines\n#}\nk',
]

# Refused, when compiled or when rendered.
REFUSED = [
    '{{ missing.x }}',
    '{{ missing() }}',
    '{{ 1 + "a" }}',
    '{{ missing + 1 }}',
    '{{ "a" + none }}',
    '{{ 1 < "a" }}',
    '{{ xs.append(1) }}',
    '{{ d.pop("a") }}',
    '{{ d.update({}) }}',
    '{% for x in 5 %}{% endfor %}',
    '{% for a,b in [(1,2,3)] %}{% endfor %}',
    '{{ raise_exception("no!") }}',
    '{{ 1|nofilter }}',
    '{{ 1 is notest }}',
    '{% if %}{% endif %}',
    '{% foo %}',
    '{% for x in xs %}',
    '{{ 1',
    '{% endif %}',
    '{{ "a }}',
    '{% raw %}x',
    '{{ 1/0 }}',
    '{{ 1//0 }}',
    '{{ 1%0 }}',
    '{{ missing|tojson }}',
    '{{ none|length }}',
    '{% set x.y = 1 %}',
    '{% macro m(a) %}{% endmacro %}{{ m(1,2) }}',
    '{% macro m(a) %}{% endmacro %}{{ m(b=2) }}',
    '{{ namespace }}{{ foo() }}',
    '{{ (1,2 }}',
    '{{ [1 }}',
    '{{ }}',
    '{{ 1 2 }}',
    '{% set true = 1 %}',
    '{% break %}',
    '{{ range() }}',
    '{{ {[]:1} }}',
    '{{ "abc"|int|foo }}',
    '{{ "a".foo() }}',
    '{{ xs|join(1)|bar }}',
    '{% include "x" %}',
    '{{ $ }}',
    '{{ 1 is defined is defined }}',
    '{{ a.b.c }}',
    '{{ -"a" }}',
    '{{ xs[1:"a"] }}',
    '{{ "%d" % "x" }}',
    '{{ "%s %s" % ("a",) }}',
    '{{ "%s" % ("a","b") }}',
    '{{ missing|int }}',
    '{{ none + "a" }}',
    '{{ xs|first(1) }}',
    '{{ "x"|upper(1) }}',
    '{{ xs|map("nofilter")|list }}',
    '{{ xs|select("notest")|list }}',
    '{{ missing["x"] }}',
    '{{ missing[1:] }}',
    '{{ (xs|select)|length }}',
    '{{ (xs|select)|last }}',
    '{% set a, b = [1] %}',
    '{{ "a" in 5 }}',
    '{{ 5 in "a" }}',
    '{{ [1]|sum(start="a") }}',
]


class Generation(Extension):
    """{% generation %} blocks, which only mark what is written."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_write"), [], [], body).set_lineno(line)

    def _write(self, caller):
        return caller()


def refuse(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def fnv(text):
    """FNV-1a of 64 bits."""
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = (h ^ byte) * 0x100000001B3 % (1 << 64)
    return "%016x" % h


environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = refuse


def case(template):
    try:
        return {"template": template, "text": environment.from_string(template).render(**VARIABLES)}
    except Exception:  # whatever it is: a template that does not render
        return {"template": template}


def shipped(folder):
    """Public templates with public conversations, with a generation prompt and without."""
    files = sorted(glob.glob(folder + "/formats/chat_template/llamacpp_templates/*.jinja"))
    files += sorted(glob.glob(folder + "/tokenizers/*/tokenizer_config*.json"))
    for path in files:
        template = open(path, encoding="utf-8").read()
        if path.endswith(".json"):
            template = json.loads(template).get("chat_template")
        for context in sorted(glob.glob(folder + "/formats/chat_template/minja_contexts/*.json")) if template else []:
            for prompt in (True, False):
                variables = {**json.load(open(context, encoding="utf-8")), "date_string": "26 Jul 2024", "add_generation_prompt": prompt}
                one = {"template": os.path.relpath(path, folder), "context": os.path.relpath(context, folder), "prompt": prompt}
                try:
                    text = environment.from_string(template).render(**variables)
                    one.update(bytes=len(text.encode()), fnv=fnv(text))
                except Exception:
                    pass
                yield one


def main():
    path = HERE / "templates" / "cases.json"
    public = list(shipped(sys.argv[1])) if len(sys.argv) > 1 else json.loads(path.read_text())["shipped"]
    for template in EXPRESSIONS + LAYOUTS:
        if "text" not in case(template):
            print("refused by jinja2:", template)
    for template in REFUSED:
        if "text" in case(template):
            print("rendered by jinja2:", template)
    cases = {"jinja2": jinja2.__version__, "variables": VARIABLES, "cases": [case(t) for t in EXPRESSIONS + LAYOUTS + REFUSED], "shipped": public}
    path.write_text(json.dumps(cases, ensure_ascii=True, indent=1) + "\n")


if __name__ == "__main__":
    main()
