"""Plants single faults in headers and says which of them the tests do not notice (mutation testing). See tests/README.md.

All faults of a room are compiled into one program, each behind a switch that the environment sets (mutant schemata:
Untch, Offutt & Harrold 1993), so that a test is compiled once and run once per fault.
"""
import argparse
import os
import random
import re
import resource
import shlex
import subprocess
import sys
import time
from pathlib import Path

import tree_sitter_cpp
from tree_sitter import Language, Parser

# What is searched, and by which tests. A header's own entry comes before its folder's; headers are those of arithmetic or state.
ROOMS = {
    "core": (["core/random.hpp"], ["unit/core/random.cpp"]),
    "optim": (["optim/adamw.hpp", "optim/adamw_8bit.hpp", "optim/lion.hpp", "optim/sgd.hpp", "optim/master.hpp", "optim/schedule.hpp", "optim/loss_scale.hpp"],
              ["unit/optim/*.cpp"]),
    "generate": (["generate/sampling.hpp", "generate/generator.hpp"], ["unit/generate/*.cpp"]),
    "layers": (["layers/rope.hpp", "layers/attention_mask.hpp"],
               ["unit/layers/rope.cpp", "unit/layers/attention_mask.cpp", "unit/layers/gradients.cpp"]),
    "data": (["data/loader.hpp", "data/dataset.hpp", "data/spill.hpp", "data/word_masking.hpp", "data/sentence_loader.hpp",
              "data/sentence_dataset.hpp", "data/sentence_batch.hpp", "data/masked_text_dataset.hpp"],
             ["unit/data/datasets.cpp", "unit/data/loader.cpp", "unit/data/masking.cpp", "unit/data/sentences.cpp",
              "unit/data/sentence_values.cpp"]),
    "comm": (["comm/group.hpp", "comm/point_to_point.hpp", "comm/message_scratch.hpp", "comm/traffic.hpp", "comm/array_parts.hpp",
              "comm/reduce_parts.hpp", "comm/direct_collectives.hpp", "comm/halving_position.hpp", "comm/collectives_in_rounds.hpp",
              "comm/whole_array_collectives.hpp", "comm/all_to_all.hpp", "comm/host_staging.hpp", "comm/part.hpp", "comm/mesh.hpp",
              "comm/ring_shift.hpp"], ["unit/comm/*.cpp"]),
    "schedule": (["parallel/schedule/*.hpp", "parallel/rank_layout.hpp", "parallel/pipeline/stages.hpp",
                  "parallel/pipeline/schedules.hpp"],
                 ["unit/parallel/schedule.cpp", "unit/parallel/schedule_check.cpp", "unit/parallel/schedule_simulate.cpp",
                  "unit/parallel/schedule_paint.cpp", "unit/parallel/schedule_cache.cpp", "unit/parallel/rank_layout.cpp",
                  "unit/parallel/stages.cpp"]),
    "plan": (["plan/machine.hpp", "plan/mesh_plan.hpp", "plan/predict.hpp", "plan/run_layout.hpp", "plan/search.hpp",
              "parallel/traffic.hpp"],
             ["unit/plan/predict.cpp", "unit/plan/search.cpp", "unit/plan/machine_file.cpp", "unit/plan/traffic.cpp"]),
    "train": (["train/checkpoint.hpp", "train/trainer.hpp", "train/training_step.hpp", "train/step_memory.hpp", "train/step_guard.hpp",
               "train/non_finite.hpp", "train/failed_step.hpp", "train/run_dry.hpp", "train/require_room.hpp", "train/run_settings.hpp",
               "train/optimizer_file.hpp", "train/history.hpp"],
              ["unit/train/trainer.cpp", "unit/train/restored_loss_scale.cpp", "train/checkpoints.cpp"]),
}

# Types of syntax in which everything must be known to the compiler, or is no computation.
LEFT_ALONE = {
    "template_argument_list", "template_parameter_list", "enumerator", "static_assert_declaration", "requires_clause",
    "requires_expression", "concept_definition", "decltype", "sizeof_expression", "noexcept", "attribute_declaration",
    "preproc_include", "preproc_def", "preproc_function_def", "preproc_if", "preproc_ifdef", "using_declaration",
    "alias_declaration", "alignas_qualifier", "comment", "string_literal", "char_literal", "raw_string_literal", "type_descriptor",
    "trailing_return_type", "lambda_capture_specifier", "abstract_array_declarator", "explicit_function_specifier",
}
OTHER_OPERATOR = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+", "*": "/", "/": "*", "%": "/",
    "&&": "||", "||": "&&", "&": "|", "|": "&", "^": "&", "<<": ">>", ">>": "<<",
    "+=": "-=", "-=": "+=", "*=": "/=", "/=": "*=",
}
OTHER_FUNCTION = {"min": "max", "max": "min", "sin": "cos", "cos": "sin", "ceil": "floor", "floor": "ceil"}

SWITCH = r"""
#pragma once
#include <cstdio>
#include <cstdlib>
// Which fault is planted; XTRAIN_FAULT_RUN names a file that gets the number of every fault whose code was run.
inline int xtrain_planted = std::getenv("XTRAIN_FAULT") ? std::atoi(std::getenv("XTRAIN_FAULT")) : -1;
inline std::FILE* xtrain_run = std::getenv("XTRAIN_FAULT_RUN") ? std::fopen(std::getenv("XTRAIN_FAULT_RUN"), "a") : nullptr;
inline bool xtrain_was_run[FAULTS] = {};
inline bool xtrain_fault_now(int n) {
  if (xtrain_run != nullptr && !xtrain_was_run[n]) {
    xtrain_was_run[n] = true;
    std::fprintf(xtrain_run, "%d\n", n);
    std::fflush(xtrain_run);
  }
  return n == xtrain_planted;
}
constexpr bool xtrain_fault(int n) { return !__builtin_is_constant_evaluated() && xtrain_fault_now(n); }
"""


class Fault:
    def __init__(self, number, header, source, node, new, what):
        self.number, self.header, self.new, self.what = number, header, new, what
        self.line = node.start_point[0] + 1
        begin, end = node.start_byte, node.end_byte
        first = source.rfind(b"\n", 0, begin) + 1
        last = source.find(b"\n", end)
        before, after = source[first:begin].decode(), source[end:last].decode()
        self.old_line = one_line(before + source[begin:end].decode() + after)
        self.new_line = one_line(before + new + after)
        self.state = "lived"
        self.run = False


def one_line(text):
    return " ".join(re.sub(r"//[^\n]*", " ", text).split())


class Planter:
    """A header with all its faults behind switches."""

    def __init__(self, header, source, first_number, wanted=None):
        self.header, self.source, self.faults = header, source, []
        self.number = first_number
        self.wanted = wanted
        self.root = Parser(Language(tree_sitter_cpp.language())).parse(source).root_node

    def text(self, node):
        return self.source[node.start_byte:node.end_byte].decode()

    def write(self, keep):
        self.keep, self.next, self.faults = keep, self.number, []
        return self.emit(self.root, False, False)

    def emit(self, node, in_function, constant):
        if node.type in LEFT_ALONE or node.is_missing or node.type == "ERROR":
            return self.text(node)
        if node.type in ("declaration", "field_declaration") and re.search(r"\bconstexpr\b", self.text(node).split("=")[0]):
            return self.text(node)
        if node.type == "function_definition":
            in_function = True
            body = node.child_by_field_name("body")
            head = self.source[node.start_byte:body.start_byte if body else node.end_byte].decode()
            constant = re.search(r"\bconstexpr\b|\bconsteval\b", head) is not None
        if node.type == "if_statement" and self.text(node).startswith("if constexpr"):
            pieces = [self.text(c) if c.type == "condition_clause" else None for c in node.children]
        elif node.type == "case_statement" or node.type == "array_declarator":
            kept = node.child_by_field_name("value" if node.type == "case_statement" else "size")
            pieces = [self.text(c) if kept is not None and c.id == kept.id else None for c in node.children]
        else:
            pieces = [None] * len(node.children)
        says = node.type == "argument_list" and node.parent.type == "call_expression" and self.says(node.parent)
        told = 0
        inside, at = "", node.start_byte
        for child, piece in zip(node.children, pieces):
            inside += self.source[at:child.start_byte].decode()
            if says and child.is_named and child.type != "comment":
                told += 1
            if piece is None:
                piece = self.text(child) if says and told > 1 else self.emit(child, in_function, constant)
            inside += piece
            at = child.end_byte
        inside += self.source[at:node.end_byte].decode()
        planted = []
        for new, what in self.others(node):
            number = self.next
            self.next += 1
            fault = Fault(number, self.header, self.source, node, new, what)
            self.faults.append(fault)
            if self.keep is None or number in self.keep:
                planted.append((number, new))
        if not planted:
            return inside
        switch = "::xtrain_fault_now" if in_function and not constant else "::xtrain_fault"
        if node.type in ("expression_statement", "break_statement", "continue_statement"):
            return "{\n" + "".join(f"if (!{switch}({n}))\n" for n, _ in planted) + "{ " + inside + " } }"
        return "(" + "".join(f"\n{switch}({n}) ? ({one_line(new)}) :\n" for n, new in planted) + inside + ")"

    def says(self, call):
        """Whether the arguments behind the first are a message."""
        name = self.text(call.child_by_field_name("function"))
        return re.match(r"(detail::)?(require|fail|concat|refuse)\w*\b", name) is not None

    def others(self, node):
        """What could stand there by mistake."""
        kind = node.type
        if kind in ("binary_expression", "assignment_expression"):
            operator = self.text(node.child_by_field_name("operator"))
            left, right = self.text(node.child_by_field_name("left")), self.text(node.child_by_field_name("right"))
            if operator in OTHER_OPERATOR:
                yield f"{left} {OTHER_OPERATOR[operator]} {right}", "operator"
        elif kind == "number_literal":
            number = self.text(node)
            yield f"({number} + 1)", "constant"
            if re.fullmatch(r"[1-9][0-9']*[uUlL]*", number):
                yield f"({number} - 1)", "constant"
        elif kind in ("true", "false"):
            yield "false" if kind == "true" else "true", "constant"
        elif kind == "unary_expression":
            operator = self.text(node.child_by_field_name("operator"))
            if operator in ("-", "!"):
                yield self.text(node.child_by_field_name("argument")), "sign or negation left out"
        elif kind == "update_expression":
            text = self.text(node)
            yield text.replace("++", "--") if "++" in text else text.replace("--", "++"), "operator"
        elif kind in ("expression_statement", "break_statement", "continue_statement"):
            text = self.text(node)
            if not re.match(r"(detail::)?(fail|require)\w*\b|\(void\)|static_cast<void>", text) and len(text) > 1:
                yield "", "statement left out"
        elif kind == "call_expression":
            yield from self.other_calls(node)
        if node.parent is not None and kind not in ("true", "false", "declaration", "init_statement", "unary_expression"):
            if node.parent.type == "condition_clause" and node.parent.child_by_field_name("value") == node and kind != "declaration":
                yield f"!({self.text(node)})", "condition negated"
            elif node.parent.type == "conditional_expression" and node.parent.child_by_field_name("condition") == node:
                yield f"!({self.text(node)})", "condition negated"

    def other_calls(self, node):
        function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        name, given = self.text(function), [c for c in arguments.named_children if c.type != "comment"]
        if self.says(node):
            return
        last = re.match(r"(?:std::)?(\w+)(<.*>)?$", name)
        if last and last.group(1) in OTHER_FUNCTION:
            yield f"std::{OTHER_FUNCTION[last.group(1)]}{last.group(2) or ''}{self.text(arguments)}", "other function"
        elif len(given) >= 2 and not (last and last.group(1) == "swap"):
            for i in range(len(given) - 1):
                if self.text(given[i]) == self.text(given[i + 1]) or "[" in (self.text(given[i])[:1], self.text(given[i + 1])[:1]):
                    continue
                swapped = [self.text(c) for c in given]
                swapped[i], swapped[i + 1] = swapped[i + 1], swapped[i]
                yield f"{name}({', '.join(swapped)})", "arguments swapped"


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))


class Room:
    def __init__(self, name, options):
        self.name, self.options = name, options
        self.root = options.root
        self.include = self.root / "include" / "xtrain"
        headers, tests = ROOMS[name]
        self.headers = [h for pattern in headers for h in sorted(self.include.glob(pattern))]
        if options.header:
            self.headers = [h for h in self.headers if str(h.relative_to(self.include)) in options.header]
        self.tests = [t for pattern in (options.tests or tests) for t in sorted((self.root / "tests").glob(pattern))]
        self.work = options.work / name
        self.planters, number = [], 0
        for header in self.headers:
            planter = Planter(header.relative_to(self.include), header.read_bytes(), number)
            planter.write(None)
            number = planter.next
            self.planters.append(planter)
        self.faults = [f for p in self.planters for f in p.faults]
        kept = self.faults
        if options.sample and options.sample < len(kept):
            kept = random.Random(options.seed).sample(kept, options.sample)
        self.keep = {f.number for f in kept}
        self.chosen = [f for f in self.faults if f.number in self.keep]

    def write(self):
        for planter in self.planters:
            to = self.work / "include" / "xtrain" / planter.header
            to.parent.mkdir(parents=True, exist_ok=True)
            text = planter.write(self.keep)
            if not to.exists() or to.read_text() != text:
                to.write_text(text)
        (self.work / "switch.hpp").write_text(SWITCH.replace("FAULTS", str(max(len(self.faults), 1))))

    def flags(self):
        root = self.root
        return shlex.split(self.options.flags) + [
            "-std=c++20", "-w", "-Wno-narrowing", "-fpermissive", "-include", str(self.work / "switch.hpp"), f"-I{self.work}/include",
            f"-I{root}/include", f"-I{root}/tests", f"-I{root}/tests/support", f'-DXTRAIN_GOLDEN="{root}/tests/golden"',
            f'-DXTRAIN_SOURCE="{root}"']

    def compile(self):
        """A program for each test; faults that the compiler refuses are taken out."""
        compiler = ["nice", self.options.compiler]
        main = self.options.work / "main.o"
        if not main.exists():
            subprocess.run(compiler + ["-std=c++20", "-c", str(self.root / "tests/support/main.cpp"), "-o", str(main)], check=True)
        programs = []
        for test in self.tests:
            program = self.work / re.sub(r"\W", "_", str(test.relative_to(self.root / "tests").with_suffix("")))
            objects = program.with_suffix(".o")
            for _ in range(12):
                self.write()
                made = subprocess.run(compiler + self.flags() + ["-fmax-errors=0", "-c", str(test), "-o", str(objects)], text=True,
                                      stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, "LC_ALL": "C"})
                if made.returncode == 0:
                    break
                refused = self.refused(made.stderr)
                if not refused:
                    sys.exit(f"{test}: does not compile, and not for a fault:\n" + made.stderr[-4000:])
                self.keep -= refused
                for fault in self.faults:
                    if fault.number in refused:
                        fault.state = "does not compile"
            else:
                sys.exit(f"{test}: still does not compile")
            subprocess.run(compiler + [str(objects), str(main), "-o", str(program)] + shlex.split(self.options.libraries), check=True)
            programs.append(program)
        return programs

    def refused(self, said):
        """The faults whose lines the compiler names."""
        numbers = set()
        for file, line in re.findall(r"^(\S+?):(\d+):\d+: (?:fatal )?error:", said, re.M):
            if not file.startswith(str(self.work)):
                continue
            lines = Path(file).read_text().splitlines()
            for at in range(int(line) - 1, max(int(line) - 6, -1), -1):
                found = re.search(r"xtrain_fault(?:_now)?\((\d+)\)", lines[at])
                if found:
                    numbers.add(int(found.group(1)))
                    break
        if not numbers:  # what stands in a template is named by who uses it
            for file, line in re.findall(r"^(?:In file included from |\s+from )?(\S+?):(\d+):", said, re.M):
                if file.startswith(str(self.work)) and Path(file).exists():
                    lines = Path(file).read_text().splitlines()
                    found = re.search(r"xtrain_fault(?:_now)?\((\d+)\)", lines[int(line) - 1])
                    if found:
                        numbers.add(int(found.group(1)))
        return numbers & self.keep

    def run(self, program, cap, fault=None, trace=None):
        given = {**os.environ, "TMPDIR": str(self.work)}
        if fault is not None:
            given["XTRAIN_FAULT"] = str(fault)
        if trace is not None:
            given["XTRAIN_FAULT_RUN"] = str(trace)
        begun = time.monotonic()
        try:
            done = subprocess.run(["nice", str(program)] + shlex.split(self.options.arguments), stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, timeout=cap, env=given, preexec_fn=limit_memory)
            return done.returncode == 0, time.monotonic() - begun
        except subprocess.TimeoutExpired:
            return False, cap

    def search(self):
        self.work.mkdir(parents=True, exist_ok=True)
        programs = self.compile()
        in_order = []
        for program in programs:
            trace = self.work / "run.txt"
            trace.unlink(missing_ok=True)
            passed, seconds = self.run(program, 600, trace=trace)
            if not passed:
                sys.exit(f"{program}: fails without a fault")
            run = {int(n) for n in trace.read_text().split()} if trace.exists() else set()
            in_order.append((seconds, program, run))
        in_order.sort(key=lambda x: x[0])
        for fault in self.chosen:
            if fault.state == "does not compile":
                continue
            for seconds, program, run in in_order:
                if fault.number not in run:
                    continue
                fault.run = True
                passed, _ = self.run(program, self.options.cap + 5 * seconds, fault=fault.number)
                if not passed:
                    fault.state = "killed"
                    break

    def report(self):
        compiled = [f for f in self.chosen if f.state != "does not compile"]
        lived = [f for f in compiled if f.state == "lived"]
        print(f"{self.name}: {len(compiled)} faults planted, {len(compiled) - len(lived)} killed, {len(lived)} lived "
              f"({sum(not f.run for f in lived)} where no test runs); {len(self.chosen) - len(compiled)} more did not compile")
        for f in lived:
            print(f"  {f.header}:{f.line}: {f.what}{'' if f.run else ' (no test runs it)'}\n    - {f.old_line}\n    + {f.new_line}")
        for planter in self.planters:
            of = [f for f in compiled if f.header == planter.header]
            print(f"  {planter.header}: {len(of)} planted, {sum(f.state == 'lived' for f in of)} lived")
        sys.stdout.flush()


def main():
    here = Path(__file__).resolve().parents[2]
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("room", nargs="+", choices=sorted(ROOMS))
    options.add_argument("--header", action="append", help="only this header, as in optim/schedule.hpp; may be repeated")
    options.add_argument("--tests", nargs="*", help="these tests instead of the room's, as in unit/optim/schedule.cpp")
    options.add_argument("--sample", type=int, default=0, help="at most so many faults of a room, drawn by --seed")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--cap", type=float, default=5, help="seconds that a test may take longer than five times what it takes without a fault")
    options.add_argument("--work", type=Path, default=Path("mutants.work"), help="folder for copies and programs")
    options.add_argument("--root", type=Path, default=here, help="the checkout whose headers and tests are taken")
    options.add_argument("--compiler", default="g++")
    options.add_argument("--flags", default="-O0 -march=native")
    options.add_argument("--libraries", default="-lpthread -lpcre2-8 -lutf8proc")
    options.add_argument("--arguments", default="", help="given to every test, as in --test-case=...")
    options.add_argument("--list", action="store_true", help="only say how many faults there would be")
    given = options.parse_args()
    given.work = given.work.resolve()
    given.root = given.root.resolve()
    given.work.mkdir(parents=True, exist_ok=True)
    for name in given.room:
        room = Room(name, given)
        if given.list:
            print(f"{name}: {len(room.chosen)} faults in {len(room.headers)} headers, {len(room.tests)} tests")
            continue
        room.search()
        room.report()


if __name__ == "__main__":
    main()
