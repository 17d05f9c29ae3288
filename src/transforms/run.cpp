#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "base/check.h"
#include "ir/verify.h"
#include "transforms/transforms.h"

namespace tessera::transforms {
namespace {

void dump(const std::string& dir, std::size_t number, const std::string& name,
          const Program& program) {
  std::error_code failed;  // writing the file says it better
  std::filesystem::create_directories(dir, failed);
  const std::string path =
      dir + "/" + (number < 10 ? "0" : "") + std::to_string(number) + "_" + name + ".ir";
  std::ofstream file(path);
  file << ir::print(program);
  if (!file.flush())
    throw Error(ErrorKind::disk, "cannot write the program after pass " + name, path,
                "free some space on the disk, or choose a folder that can be written");
}

// The names that passes had in earlier versions, which scripts may still disable.
std::string current_name(const std::string& name) {
  static const std::map<std::string, std::string> renamed = {{"early", "hoist_reductions"},
                                                             {"tidy", "dce"}};
  const auto found = renamed.find(name);
  return found == renamed.end() ? name : found->second;
}

}  // namespace

Program run(Program program, const std::vector<Pass>& passes, const RunOptions& options,
            std::vector<PassReport>* reports) {
  std::set<std::string> disabled;
  for (const std::string& name : options.disabled) disabled.insert(current_name(name));
  for (const std::string& name : disabled) {
    std::vector<std::string> optional;
    for (const Pass& pass : passes)
      if (!pass.required) optional.push_back(pass.name);
    if (std::find(optional.begin(), optional.end(), name) != optional.end()) continue;
    const bool known = std::any_of(passes.begin(), passes.end(),
                                   [&](const Pass& pass) { return pass.name == name; });
    throw Error(ErrorKind::usage,
                known ? "pass '" + name + "' cannot be disabled: what follows needs it"
                      : "there is no pass '" + name + "' to disable",
                "", "passes that can be disabled are " + join(optional, ", "));
  }
  ir::verify(program);
  if (!options.dump_dir.empty()) dump(options.dump_dir, 0, "model", program);
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const Pass& pass = passes[i];
    PassReport report{.name = pass.name,
                      .ms = 0,
                      .eqns_before = program.eqns.size(),
                      .eqns_after = program.eqns.size(),
                      .disabled = disabled.contains(pass.name),
                      .preserves_numerics = pass.preserves_numerics};
    if (options.before) options.before(pass, program);
    if (!report.disabled) {
      const auto start = std::chrono::steady_clock::now();
      try {
        Program next = pass.fn(program);
        ir::verify(next, program);
        program = std::move(next);
      } catch (Error& error) {
        throw error.in("failed after " + pass.name);
      }
      report.ms =
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
              .count();
      report.eqns_after = program.eqns.size();
      if (!options.dump_dir.empty()) dump(options.dump_dir, i + 1, pass.name, program);
    }
    if (reports) reports->push_back(report);
  }
  return program;
}

}  // namespace tessera::transforms
