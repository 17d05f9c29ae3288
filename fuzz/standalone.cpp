// Runs a fuzz target without libFuzzer, so that any compiler can build it: each given file once,
// which repeats a finding, or mutants of the files in a folder, the same ones every time.
//
//   fuzz_png FILE...
//   fuzz_png --mutants N FOLDER [SEED]
//
// Convention: the input on which the process dies is left as finding-TARGET in the working
// directory.
#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "base/rng.h"
#include "fuzz.h"

extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));
// GCC's UBSan knows nothing of the callback; SIGABRT is caught below.
extern "C" const char* __ubsan_default_options() { return "abort_on_error=1:print_stacktrace=1"; }

namespace {

namespace fs = std::filesystem;
using namespace tessera;

std::vector<std::uint8_t>
    current;  // what the target is given, at its exact size, so that a read past its end is seen
std::string finding_name;

void keep_finding() {
  std::ofstream(finding_name, std::ios::binary)
      .write(reinterpret_cast<const char*>(current.data()),
             static_cast<std::streamsize>(current.size()));
  std::fprintf(stderr, "the input is in %s\n", finding_name.c_str());
}

void run(std::string_view input) {
  current.assign(input.begin(), input.end());
  current.shrink_to_fit();
  LLVMFuzzerTestOneInput(current.data(), current.size());
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "%s cannot be read\n", path.c_str());
    std::exit(2);
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

// One to four edits: bits, bytes, numbers at the edges of their range, pieces lost, doubled or
// taken from another seed.
std::string mutant(const std::vector<std::string>& seeds, const Key& key) {
  static const std::vector<std::string> tokens = {"{",
                                                  "}",
                                                  "[",
                                                  "]",
                                                  ",",
                                                  ":",
                                                  "\"",
                                                  "'",
                                                  "=",
                                                  ".",
                                                  "\n",
                                                  "#",
                                                  "-",
                                                  "0",
                                                  "1e308",
                                                  "nan",
                                                  "null",
                                                  "true",
                                                  "\\u0000",
                                                  "../",
                                                  "%",
                                                  "~",
                                                  "18446744073709551616",
                                                  "9223372036854775807",
                                                  "\xff",
                                                  "\xc3\xa9",
                                                  "\xe2\x82",
                                                  std::string(1, '\0'),
                                                  std::string(4, '\0'),
                                                  std::string(8, '\xff'),
                                                  "\x7f\xff\xff\xff",
                                                  std::string("\0\0\0\1", 4),
                                                  std::string("\1\0\0\0", 4),
                                                  "\xff\xd8",
                                                  "\xff\xc4",
                                                  "\xff\xda"};
  std::uint64_t draws = 0;
  const auto below = [&](std::size_t n) {
    return static_cast<std::size_t>(random_bits(key, draws++) % std::max<std::size_t>(n, 1));
  };
  std::string text = seeds[below(seeds.size())];
  for (std::size_t edits = 1 + below(4); edits > 0; --edits) {
    // Half of the edits near the front, where headers are.
    const std::size_t at = below(below(2) ? std::min<std::size_t>(text.size(), 64) : text.size());
    const std::string& token = tokens[below(tokens.size())];
    const std::string& other = seeds[below(seeds.size())];
    switch (text.empty() ? 5 : below(9)) {
      case 0:
      case 1:
        text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 2:
        text[at] = static_cast<char>(below(256));
        break;
      case 3:
        text.erase(at, 1 + below(below(4) ? 8 : 512));
        break;
      case 4:
        text.resize(below(text.size()));
        break;
      case 5:
        text.insert(at, token);
        break;
      case 6:
        text.replace(at, token.size(), token);
        break;
      case 7:
        text.insert(at, text.substr(below(text.size()), 1 + below(64)));
        break;
      case 8:
        text.replace(at, below(64), other.substr(below(other.size()), below(64)));
        break;
    }
  }
  return text;
}

int run_mutants(std::uint64_t count, const fs::path& folder, std::uint64_t seed) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<std::string> seeds;
  for (const fs::path& file : files) run(seeds.emplace_back(read_file(file)));
  if (seeds.empty()) {
    std::fprintf(stderr, "%s holds no seeds\n", folder.c_str());
    return 2;
  }
  fuzz::refusals = 0;
  for (std::uint64_t i = 0; i < count; ++i) run(mutant(seeds, Key{seed}.with("mutant").with(i)));
  std::printf("%llu mutants of %zu seeds, %llu refusals\n", static_cast<unsigned long long>(count),
              seeds.size(), static_cast<unsigned long long>(fuzz::refusals));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  finding_name = "finding-" + fs::path(argv[0]).filename().string();
  if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(keep_finding);
  std::signal(SIGABRT, [](int) {
    keep_finding();
    std::signal(SIGABRT, SIG_DFL);
    std::raise(SIGABRT);
  });
  if (argc >= 4 && std::strcmp(argv[1], "--mutants") == 0)
    return run_mutants(std::strtoull(argv[2], nullptr, 10), argv[3],
                       argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 0);
  if (argc < 2 || argv[1][0] == '-') {
    std::fprintf(stderr, "usage: %s FILE... | --mutants N FOLDER [SEED]\n", argv[0]);
    return 2;
  }
  for (int i = 1; i < argc; ++i) {
    run(read_file(argv[i]));
    std::printf("%s: no finding\n", argv[i]);
  }
  return 0;
}
