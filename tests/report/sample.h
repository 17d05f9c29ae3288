// Studies made by hand, and a reader of pages that knows every element and attribute in them.
// Convention: numbers follow from the arguments, so that a test knows what a sentence has to say.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "record/study.h"

namespace tessera::report::test {

// A run of n ranks: `step_ms` with `exposed` and `wait` as shares of it; noise multiplies its
// times.
RunRecord sample_run(int ranks, std::int64_t batch, double step_ms, double exposed = 0,
                     double wait = 0, double top1 = 0.5);
Repeat done(int number, RunRecord run);
Repeat failed(int number, const std::string& reason);

// Strong scaling over ranks 1, 2, 4, ...: efficiency(n) gives what is reached; repeats differ by
// `noise` (0.02: up to 2%).
Part scaling_part(PartKind kind, const std::vector<int>& ranks,
                  const std::function<double(int)>& efficiency, int repeats, double noise = 0.01,
                  double exposed = 0.02, const std::vector<std::int64_t>& batches = {64});
Part technique_part(int repeats, double noise = 0.01);
// The same at every image size, without noise: a larger image takes more time, memory and bytes in
// proportion.
Part technique_grid(const std::vector<int>& images, int repeats);
Part batch_part(int repeats);
Part accuracy_part(int repeats, double spread);
Part layers_part();
// All kinds, claims and one failed run.
Study sample_study(int repeats = 3);

// Every string of a study, to be replaced.
void for_each_string(Study& study, const std::function<void(std::string&)>& change);

std::string text_of(const std::filesystem::path& path);

struct Element {
  std::string name;
  std::vector<std::pair<std::string, std::string>> attributes;
  std::string text;  // directly in it
  int depth = 0;
};
// Elements of a well-formed document in their order; throws std::runtime_error where it is not (a
// tag that is not closed, an attribute without quotes, an unknown entity, a bare & or <).
std::vector<Element> parse_xml(const std::string& text);

}  // namespace tessera::report::test
