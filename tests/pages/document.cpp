#include "pages/document.h"

#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "app/binary.h"

namespace tessera::test {
namespace {

std::string trimmed(const std::string& text) {
  const std::size_t from = text.find_first_not_of(" \t"), to = text.find_last_not_of(" \t\r");
  return from == text.npos ? "" : text.substr(from, to - from + 1);
}

// A comment begins with "#" at the start of a line or after a space, outside quotes.
std::string without_comment(const std::string& line) {
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '#' && (i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t')) {
      return trimmed(line.substr(0, i));
    }
  }
  return trimmed(line);
}

[[noreturn]] void refuse(const fs::path& page, int line, const std::string& what) {
  throw std::runtime_error(page.string() + ":" + std::to_string(line) + ": " + what);
}

// Reads what <!-- test: ... --> says of the block below it.
CommandBlock tagged(const fs::path& page, int line, const std::string& text) {
  CommandBlock block;
  const std::string end = "-->", never = "not pasted:", cluster = "on a cluster:", scale = "scale ";
  if (!text.ends_with(end)) refuse(page, line, "the comment does not end on its line");
  std::istringstream statements(text.substr(0, text.size() - end.size()));
  for (std::string said; std::getline(statements, said, ';');) {
    said = trimmed(said);
    if (said == "long") {
      block.when = CommandBlock::When::slow;
    } else if (said == "on a card") {
      block.when = CommandBlock::When::card;
    } else if (said.starts_with(cluster) && !trimmed(said.substr(cluster.size())).empty()) {
      block.when = CommandBlock::When::cluster;
      block.reason = trimmed(said.substr(cluster.size()));
    } else if (said.starts_with(never) && !trimmed(said.substr(never.size())).empty()) {
      block.when = CommandBlock::When::never;
      block.reason = trimmed(said.substr(never.size()));
    } else if (said.starts_with(scale) && said.find(' ', scale.size()) != said.npos) {
      const std::size_t space = said.find(' ', scale.size());
      block.scaled.emplace_back(said.substr(scale.size(), space - scale.size()),
                                trimmed(said.substr(space)));
    } else {
      refuse(page, line,
             "expected \"long\", \"on a card\", \"on a cluster: BY WHAT\", \"not pasted: WHY\" or "
             "\"scale VERB WORDS\", found \"" +
                 said + "\"");
    }
  }
  return block;
}

}  // namespace

std::vector<CommandBlock> command_blocks(const fs::path& page) {
  std::ifstream file(page);
  if (!file) throw std::runtime_error("cannot read " + page.string());
  const std::string mark = "<!-- test:";
  std::vector<CommandBlock> out;
  CommandBlock next;
  bool inside = false, tag = false;
  std::string joined;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (inside && line.starts_with("```")) {
      inside = false;
      if (next.commands.empty()) refuse(page, number, "a block without a command");
      out.push_back(std::move(next));
      next = {};
    } else if (inside) {
      joined += without_comment(line);
      if (joined.ends_with('\\')) {
        joined.back() = ' ';
        continue;
      }
      if (!joined.empty()) {
        if (next.commands.empty()) next.line = number;
        next.commands.push_back(joined);
      }
      joined.clear();
    } else if (line.starts_with(mark)) {
      next = tagged(page, number, trimmed(line).substr(mark.size()));
      tag = true;
      continue;
    } else if (line.starts_with("```sh")) {
      inside = true;
    } else if (tag) {
      refuse(page, number,
             "the comment above says how a block is tested, but no block of commands follows it");
    }
    tag = false;
  }
  if (inside) refuse(page, number, "the last block does not end");
  return out;
}

std::string scaled_command(const CommandBlock& block, const std::string& command) {
  for (const auto& [verb, words] : block.scaled) {
    for (const std::string program : {"build/tessera ", "build-cuda/tessera "})
      if (command == program + verb || command.starts_with(program + verb + " "))
        return command + " " + words;
  }
  return command;
}

fs::path checkout_like(const std::string& name) {
  const fs::path folder = scratch() / name, source = TESSERA_SOURCE_DIR;
  fs::remove_all(folder);
  for (const char* build : {"build", "build-cuda"}) {
    fs::create_directories(folder / build);
    fs::create_symlink(TESSERA_BINARY, folder / build / "tessera");
  }
  for (const char* part : {"tests", "studies", "recipes", "bench"})
    fs::create_directory_symlink(source / part, folder / part);
  return folder;
}

Pasted paste(const fs::path& folder, const std::string& command) {
  // bash: what people paste into. Streams together, as they see them.
  const fs::path script = folder / ".pasted";
  write(script, command + "\n");
  // People have not told mpirun what the tests tell it.
  const std::string line = "cd '" + folder.string() +
                           "' && env -u OMPI_MCA_rmaps_base_oversubscribe -u "
                           "PRTE_MCA_rmaps_default_mapping_policy bash .pasted 2>&1 </dev/null";
  const auto start = std::chrono::steady_clock::now();
  Pasted out;
  FILE* pipe = ::popen(line.c_str(), "r");
  char buffer[4096];
  for (std::size_t n; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;)
    out.output.append(buffer, n);
  const int status = ::pclose(pipe);
  out.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

}  // namespace tessera::test
