// Text-form golden pairs: every *.ir file in this folder is an input program, a pass, and the
// program that must come out, to the letter. Format: [// comment lines] program [--- next
// program]... --- pass NAME [ARGS] expected program. TESSERA_UPDATE_GOLDENS=1 rewrites what is
// expected.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/check.h"
#include "transforms/transforms.h"

namespace tessera::transforms::golden_test {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

const fs::path folder = fs::path(TESSERA_SOURCE_DIR) / "tests" / "transforms";

struct Golden {
  std::vector<std::string> programs;  // several for accumulate
  std::string before;                 // the file up to and with the line "--- pass ..."
  Words pass;                         // name and arguments
  std::string expected;
};

Golden read(const fs::path& path) {
  Golden g;
  g.programs.emplace_back();
  std::ifstream file(path);
  bool after = false;
  for (std::string line; std::getline(file, line);) {
    if (after) {
      g.expected += line + "\n";
      continue;
    }
    g.before += line + "\n";
    if (line.starts_with("--- pass ")) {
      std::istringstream words(line.substr(9));
      for (std::string word; words >> word;) g.pass.push_back(word);
      after = true;
    } else if (line == "--- next") {
      g.programs.emplace_back();
    } else {
      g.programs.back() += line + "\n";
    }
  }
  return g;
}

// key=value words become numbers of the optimizer; the first word is its name.
Optimizer optimizer_of(const Words& words) {
  Optimizer o;
  o.name = words.at(1);
  const std::map<std::string, double*> numbers = {{"weight_decay", &o.weight_decay},
                                                  {"clip", &o.clip},
                                                  {"momentum", &o.momentum},
                                                  {"ema", &o.ema}};
  for (std::size_t i = 2; i < words.size(); ++i) {
    const auto equals = words[i].find('=');
    if (words[i] == "nesterov")
      o.nesterov = true;
    else
      *numbers.at(words[i].substr(0, equals)) = std::stod(words[i].substr(equals + 1));
  }
  return o;
}

// "dp=2", "zero=1", "megatron": the rest of the words of a pass that places.
Layout layout_of(const Words& words) {
  Layout layout;
  const std::map<std::string, int*> numbers = {
      {"dp", &layout.dp}, {"sp", &layout.sp}, {"tp", &layout.tp}, {"zero", &layout.zero}};
  for (const std::string& word : words) {
    if (word == "megatron") layout.megatron_sequence = true;
    if (const auto equals = word.find('='); equals != word.npos)
      *numbers.at(word.substr(0, equals)) = std::stoi(word.substr(equals + 1));
  }
  return layout;
}

// Strategy and placement of a program as it is, of its gradients ("autodiff"), or of a whole
// training step ("step"), as run/ makes them; "away": its weights rest on the host.
Program placed(const Words& pass, Program p, std::vector<Bucket>* made = nullptr) {
  const Layout layout = layout_of({pass.begin() + 1, pass.end()});
  const bool step = std::find(pass.begin(), pass.end(), "step") != pass.end();
  if (step || std::find(pass.begin(), pass.end(), "autodiff") != pass.end()) p = autodiff(p);
  if (step) {
    const auto by_rank = [&](const std::string& param) {
      return Group{p.type(p.input(param)->var).rank() > 1};
    };
    const std::vector<Bucket> list = plan_buckets(p, by_rank, layout.tp);
    Optimizer sgd;
    sgd.name = "sgd";
    p = optimizer(buckets(p, list), sgd, list);
    if (made) *made = list;
  }
  if (std::find(pass.begin(), pass.end(), "away") != pass.end())
    p = rest_weights(p, ir::Home::host, 1024);
  return place(strategy(simplify(p), layout));
}

// "pipeline 1f1b 2": a training step of so many micro-batches on two ranks, a block each, as run/
// makes it.
Program pipelined(const Words& pass, const Program& model) {
  const int micros = std::stoi(pass.at(2));
  const Program staged = cut(model, {1, 1});
  std::map<std::string, int> stages;
  for (const ir::Input& in : staged.inputs)
    for (const ir::Eqn& e : staged.eqns)
      if (std::find(e.in.begin(), e.in.end(), in.var) != e.in.end())
        stages.emplace(in.name, e.stage);
  Program p = accumulate(std::vector<Program>(static_cast<std::size_t>(micros), autodiff(staged)));
  const auto by_stage = [&](const std::string& param) { return Group{.stage = stages.at(param)}; };
  const std::vector<Bucket> list = plan_buckets(p, by_stage);
  Optimizer sgd;
  sgd.name = "sgd";
  p = simplify(optimizer(buckets(p, list), sgd, list));
  for (const Bucket& bucket : list) stages[bucket.name] = bucket.stage;
  const auto stage_of = [&](const ir::Input& in) {
    return ir::of_bucket(in.role) ? stages.at(in.of) : -1;
  };
  return pipeline(p, pass.at(1) == "zb" ? zb_h1(2, micros) : one_f_one_b(2, micros), stage_of);
}

Program transformed(const Words& pass, const std::vector<Program>& parts) {
  const Program& p = parts[0];
  const std::string& name = pass.at(0);
  auto decays = [&](const std::string& param) {
    return Group{p.type(p.input(param)->var).rank() > 1};
  };
  if (name == "autodiff") return autodiff(p);
  if (name == "accumulate") return accumulate(parts);
  if (name == "defer") return defer(p);
  if (name == "precision") return precision(p, ir::parse_dtype(pass.at(1)));
  if (name == "quantise")
    return quantise(p, {.params = {pass.begin() + 2, pass.end()},
                        .to = ir::parse_dtype(pass.at(1)),
                        .per_channel = pass.at(1) == "i8"});
  if (name == "buckets") return buckets(p, plan_buckets(p, decays));
  if (name == "optimizer") {  // on top of buckets, where it always stands
    const std::vector<Bucket> list = plan_buckets(p, decays);
    return optimizer(buckets(p, list), optimizer_of(pass), list);
  }
  if (name == "cut") return cut(p, {1, 1});
  if (name == "pipeline") return pipelined(pass, p);
  if (name == "place") return placed(pass, p);
  if (name == "prefetch") return prefetch(p);
  if (name ==
      "compress") {  // "compress topk 0.25 dp=2 step": of a placed step, where it always stands
    std::vector<Bucket> list;
    const Program step = placed({pass.begin() + 2, pass.end()}, p, &list);
    return simplify(compress(step,
                             {pass.at(1), pass.at(1) == "topk" ? std::stod(pass.at(2)) : 0.0,
                              std::stoll(pass.at(2)), false},
                             list));
  }
  if (name == "offload") return offload(p, *ir::parse_home(pass.at(1)), std::stoll(pass.at(2)));
  if (name == "rest_weights")
    return rest_weights(p, *ir::parse_home(pass.at(1)), std::stoll(pass.at(2)));
  if (name == "remat") return remat(p, std::stoi(pass.at(1)));
  const std::map<std::string, Program (*)(const Program&)> plain = {
      {"fold_norm", fold_norm},
      {"fuse_contract", fuse_contract},
      {"fuse_norm", fuse_norm},
      {"fuse_batch_norm", fuse_batch_norm},
      {"fuse_low", fuse_low},
      {"fuse_bytes", fuse_bytes},
      {"fp8", [](const Program& program) { return fp8(program, true); }},
      {"fp8_inference", [](const Program& program) { return fp8(program, false); }},
      {"fuse_attention", fuse_attention},
      {"fuse_windows",
       [](const Program& program) {
         return fuse_windows(program, [](const auto&, const auto&) { return true; });
       }},
      {"fuse_loss", fuse_loss},
      {"fuse_update", fuse_update},
      {"simplify", simplify},
      {"combine", combine},
      {"bring_updates", bring_updates},
      {"count", [](const Program& program) { return count(program); }},
      {"hoist_reductions", hoist_reductions},
      {"split_attention", split_attention}};
  return plain.at(name)(p);
}

Words files() {
  Words names;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".ir") names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

class GoldenFile : public testing::TestWithParam<std::string> {};

TEST_P(GoldenFile, PassWritesTheExpectedProgram) {
  const fs::path path = folder / GetParam();
  const Golden g = read(path);
  ASSERT_FALSE(g.pass.empty()) << path << " has no line '--- pass NAME'";
  std::vector<Program> parts;
  for (const std::string& text : g.programs) ir::verify(parts.emplace_back(ir::parse(text)));
  const Program result = transformed(g.pass, parts);
  ir::verify(result);
  const std::string actual = ir::print(result);
  EXPECT_EQ(ir::print(ir::parse(actual)), actual) << "what a pass writes reads back";
  if (actual == g.expected) return;
  if (const char* update = std::getenv("TESSERA_UPDATE_GOLDENS");
      update && std::string(update) == "1") {
    std::ofstream(path) << g.before << actual;
    GTEST_SKIP() << "rewrote " << path << "; look at it before committing";
  }
  FAIL() << path.string() << " expects another program. The pass wrote:\n"
         << actual << "\nIf that is right: TESSERA_UPDATE_GOLDENS=1 rewrites the file.";
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenFile, testing::ValuesIn(files()), [](const auto& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); },
      '_');
  return name;
});

TEST(GoldenFiles, EveryPassHasOne) {
  std::map<std::string, int> seen;
  for (const std::string& file : files()) ++seen[read(folder / file).pass.at(0)];
  for (const char* pass :
       {"autodiff",         "accumulate", "defer",           "precision",     "buckets",
        "optimizer",        "remat",      "fold_norm",       "fuse_contract", "fuse_norm",
        "fuse_batch_norm",  "fuse_low",   "fuse_attention",  "fuse_loss",     "fuse_update",
        "simplify",         "place",      "compress",        "combine",       "fp8",
        "hoist_reductions", "prefetch",   "split_attention", "offload",       "rest_weights",
        "bring_updates",    "quantise",   "fuse_windows",    "fp8_inference", "fuse_bytes"})
    EXPECT_GT(seen[pass], 0) << "write tests/transforms/" << pass << ".ir";
}

}  // namespace
}  // namespace tessera::transforms::golden_test
