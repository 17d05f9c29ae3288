// The command blocks of a Markdown page, and whether a test can paste them.
// Convention: every block fenced with ```sh is pasted, in the order of the page, in one folder,
// unless the line above it is a comment that says otherwise:
//
//   <!-- test: scale train --set data.train_size=64 -->   pasted; the words are added to each
//   `build/tessera train` while testing in short
//   <!-- test: long -->                                   pasted in the slow suite only
//   <!-- test: on a card -->                              pasted by ./check --gpu
//   <!-- test: on a cluster: tests/cluster/hosts.sh -->   pasted by these scripts, which have one
//   <!-- test: not pasted: it needs the network -->       never, and why
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace tessera::test {

struct CommandBlock {
  enum class When { always, slow, card, cluster, never };
  int line = 0;  // of its first command, from 1
  When when = When::always;
  std::string reason;  // why it is never pasted, or by what
  std::vector<std::pair<std::string, std::string>>
      scaled;  // verb, words that are added to its commands in the short form
  std::vector<std::string> commands;  // without comments; continued lines joined
};

// Throws std::runtime_error with the line of a comment that cannot be understood or of a block that
// does not end.
std::vector<CommandBlock> command_blocks(const std::filesystem::path& page);

// A command as the short form runs it.
std::string scaled_command(const CommandBlock& block, const std::string& command);

// An empty folder in which the commands of a page of the repository work as they do in a checkout
// that is built.
std::filesystem::path checkout_like(const std::string& name);

struct Pasted {
  int code = 0;
  std::string output;  // both streams
  double seconds = 0;
};
// As a shell would run it in `folder`.
Pasted paste(const std::filesystem::path& folder, const std::string& command);

}  // namespace tessera::test
