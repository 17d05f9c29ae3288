// This header makes what a disk may hold after the power went: the calls of a tape (preload/tape.h)
// played again, of which those that nothing has flushed are there in part. Convention: the disk is
// the least that POSIX promises. Bytes of a file are there once the file was flushed, names once
// their folder was; everything else is there or not in any combination, whatever the order of the
// calls; a write that was not flushed may be torn at a page; only a rename is whole or not at all.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "faults/command.h"

namespace tessera::test::faults {

// Files and folders by number; 0 is the folder that was recorded.
struct Node {
  bool folder = false;
  std::map<std::string, int> names;
  std::string bytes;
};
struct Tree {
  std::map<int, Node> nodes;
  // The node at this path below the root; null: there is none.
  const Node* at(const std::string& path) const;
  void write_to(const fs::path& folder, int node = 0) const;           // into a new folder
  std::string difference(const fs::path& folder, int node = 0) const;  // empty: the same
};

// One thing that the disk has or has not.
struct Piece {
  std::int64_t time = 0;     // of its call, from 0
  std::int64_t durable = 0;  // the time of the call that flushed it; never: no call did
  static constexpr std::int64_t never = INT64_MAX;
  std::string path;  // as it was called, below the root
  // Names: each (folder, name) leads to that node from now on; -1: to none.
  struct Name {
    int folder = 0;
    std::string name;
    int node = -1;
  };
  std::vector<Name> names;
  std::vector<int> folders;  // that are made
  // Bytes of a file.
  int file = -1;
  std::uint64_t offset = 0;
  std::string data;
  bool resize = false;  // to `offset` bytes
};

struct Tape {
  // `forget`: a flush of a path with this text in it did not take place; for a test of the test.
  Tape(const fs::path& file, const fs::path& root, const std::string& forget = "");
  std::int64_t calls = 0, syncs = 0;
  std::vector<Piece> pieces;
  // By step: when ckpt/step-N got its name, and what was in it then.
  struct Checkpoint {
    std::int64_t named = 0, durable = 0;
    std::map<std::string, std::string> files;
  };
  std::map<std::int64_t, Checkpoint> checkpoints;
  Tree end;  // after all calls
};

// The tree of the pieces that `kept` says are there.
Tree tree_of(const Tape& tape, const std::vector<bool>& kept);

// Says what is wrong with a tree whose power went after the call `time`; empty: nothing. Every
// checkpoint that has its name is whole, and none is lost that was known to be on the disk.
std::string judge(const Tape& tape, const Tree& tree, std::int64_t time);

}  // namespace tessera::test::faults
