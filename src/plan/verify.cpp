// The proof that storage was shared rightly: a replay of every write and read, without running anything.
#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "plan/plan.h"

namespace tessera::plan {

using namespace ir;

static std::size_t at(Var v) { return static_cast<std::size_t>(v); }

// Whether operand k of a gather already lies at its place in the result: the gather then leaves its bits as they are.
static bool in_place(const Step& step, std::size_t k) {
  std::int64_t place = step.out[0].offset;
  if (const Pack* pack = std::get_if<Pack>(&step.attrs)) place += pack->offsets[k] * size_of(step.in[k].type.dtype);
  else
    for (std::size_t i = 0; i < k; ++i) place += step.in[i].type.bytes();
  return step.in[k].base == step.out[0].base && step.in[k].offset == place;
}

// Every byte remembers which write it holds; a read must find the write it was planned to read.
void verify(const Plan& plan) {
  struct Span {
    std::int64_t end;
    int writer;
  };
  std::vector<std::map<std::int64_t, Span>> memory(plan.persistent.size() + 1);    // by base: begin -> span
  auto write = [&](const Slot& s, int writer) {
    auto& spans = memory[static_cast<std::size_t>(s.base)];
    const std::int64_t begin = s.offset, end = begin + s.type.bytes();
    if (begin == end) return;
    auto it = spans.upper_bound(begin);
    if (it != spans.begin()) {
      auto before = std::prev(it);
      const Span old = before->second;
      if (old.end > begin) {
        before->second.end = begin;
        if (before->first == begin) spans.erase(before);
        if (old.end > end) spans.emplace(end, old);
      }
    }
    for (it = spans.lower_bound(begin); it != spans.end() && it->first < end;) {
      const Span old = it->second;
      it = spans.erase(it);
      if (old.end > end) spans.emplace(end, old);
    }
    spans[begin] = {end, writer};
  };
  // The writers found in a range; -1 stands for bytes that nothing wrote.
  auto writers = [&](const Slot& s) {
    std::set<int> found;
    const auto& spans = memory[static_cast<std::size_t>(s.base)];
    std::int64_t reached = s.offset;
    const std::int64_t end = s.offset + s.type.bytes();
    auto it = spans.upper_bound(s.offset);
    if (it != spans.begin()) --it;
    for (; it != spans.end() && it->first < end; ++it) {
      if (it->second.end <= s.offset) continue;
      if (it->first > reached) found.insert(-1);
      found.insert(it->second.writer);
      reached = std::max(reached, it->second.end);
    }
    if (reached < end) found.insert(-1);
    return found;
  };
  const Program& p = plan.program;
  std::vector<std::set<int>> makers(p.values.size());    // the steps whose writes a value consists of
  int next = 0;
  for (const Binding& in : plan.inputs) {
    if (!in.slot) continue;
    makers[at(p.input(in.name)->var)] = {--next - 1};
    write(in.slot, next - 1);
  }
  std::vector<int> step_of(p.eqns.size(), -1);
  for (std::size_t i = 0; i < plan.steps.size(); ++i)
    if (plan.steps[i].eqn >= 0) step_of[static_cast<std::size_t>(plan.steps[i].eqn)] = static_cast<int>(i);
  for (std::size_t i = 0; i < p.eqns.size(); ++i) {
    const Eqn& e = p.eqns[i];
    if (step_of[i] < 0) {    // a view or a gather in place: made of what its operands are made of
      for (Var v : e.out)
        if (v != none)
          for (Var x : e.in) makers[at(v)].insert(makers[at(x)].begin(), makers[at(x)].end());
      continue;
    }
    const int number = step_of[i];
    const Step& step = plan.steps[static_cast<std::size_t>(number)];
    for (std::size_t k = 0; k < e.in.size(); ++k) {
      if (e.in[k] == none || step.in[k].type.bytes() == 0) continue;
      const std::set<int> found = writers(step.in[k]), &want = makers[at(e.in[k])];
      CHECK(std::includes(want.begin(), want.end(), found.begin(), found.end()),
            "the plan overwrites " + p.name_of(e.in[k]) + " before it is read, in `" + print(p, e) + "`");
    }
    if (step.workspace) write(step.workspace, -2'000'000'000);
    for (std::size_t r = 0; r < e.out.size(); ++r) {
      if (e.out[r] == none) continue;
      makers[at(e.out[r])] = {number};
      if (step.out[r]) write(step.out[r], number);
    }
    if (def(e.op).gathers && e.out[0] != none)
      for (std::size_t k = 0; k < e.in.size(); ++k)
        if (in_place(step, k)) makers[at(e.in[k])].insert(number);
  }
  // What a step leaves behind: outputs, after the copies into donated inputs that could not be written in place.
  auto expect = [&](const Slot& slot, const std::set<int>& want, const std::string& output) {
    const std::set<int> found = slot.type.bytes() ? writers(slot) : std::set<int>{};
    CHECK(std::includes(want.begin(), want.end(), found.begin(), found.end()), "the plan overwrites output " + output);
  };
  std::vector<std::set<int>> final_makers;
  std::size_t number = 0;
  for (std::size_t i = 0; i < p.outputs.size(); ++i) {
    final_makers.push_back(makers[at(p.outputs[i].var)]);
    if (p.outputs[i].updates.empty()) continue;
    const Slot& to = plan.outputs[i].slot;
    for (std::size_t s = number; s < plan.steps.size(); ++s) {
      const Step& copy = plan.steps[s];
      if (copy.eqn >= 0 || copy.out[0].base != to.base || copy.out[0].offset != to.offset) continue;
      expect(copy.in[0], final_makers.back(), p.outputs[i].name);
      write(to, static_cast<int>(s));
      final_makers.back() = {static_cast<int>(s)};
      number = s + 1;
      break;
    }
  }
  for (std::size_t i = 0; i < p.outputs.size(); ++i)
    if (plan.outputs[i].slot) expect(plan.outputs[i].slot, final_makers[i], p.outputs[i].name);
}

}  // namespace tessera::plan
