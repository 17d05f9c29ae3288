#include "faults/crash.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>

#include "preload/tape.h"

namespace tessera::test::faults {
namespace {

constexpr std::size_t page = 4096;

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> out;
  std::istringstream text(path);
  for (std::string part; std::getline(text, part, '/');)
    if (!part.empty()) out.push_back(part);
  return out;
}

void apply(const Piece& piece, Tree& tree) {
  for (const int folder : piece.folders) tree.nodes[folder].folder = true;
  for (const Piece::Name& change : piece.names) {
    auto& names = tree.nodes[change.folder].names;
    if (change.node < 0)
      names.erase(change.name);
    else
      names[change.name] = change.node;
  }
  if (piece.file < 0) return;
  std::string& bytes = tree.nodes[piece.file].bytes;
  if (piece.resize) return bytes.resize(piece.offset);
  if (bytes.size() < piece.offset + piece.data.size())
    bytes.resize(piece.offset + piece.data.size());
  std::memcpy(bytes.data() + piece.offset, piece.data.data(), piece.data.size());
}

// Reads a tape call by call against the tree that all calls made.
class Reader {
 public:
  Reader(Tape& tape, std::string root, std::string forget)
      : tape_(tape), root_(std::move(root)), forget_(std::move(forget)) {
    tape_.end.nodes[0].folder = true;
  }

  void call(const Entry& entry, const std::string& path, const std::string& other,
            const std::string& data) {
    if (path.empty() && entry.change != Change::sync) return;  // the root itself is made
    const std::int64_t time = tape_.calls++;
    switch (entry.change) {
      case Change::create:
        ++last_;
        return add(time, path, {{parent(path), base(path), last_}});
      case Change::mkdir:
        ++last_;
        return add(time, path, {{parent(path), base(path), last_}}, {last_});
      case Change::unlink:
        return add(time, path, {{parent(path), base(path), -1}});
      case Change::rename: {
        const int moved = node(path);
        const std::string step = other.starts_with("ckpt/step-") ? other.substr(10) : "";
        if (!step.empty() && path.starts_with("ckpt/.part-")) name_checkpoint(step, moved, time);
        return add(time, path,
                   {{parent(path), base(path), -1}, {parent(other), base(other), moved}});
      }
      case Change::exchange: {
        const int first = node(path), second = node(other);
        return add(time, path,
                   {{parent(path), base(path), second}, {parent(other), base(other), first}});
      }
      case Change::sync:
        return sync(time, path);
      case Change::write:
      case Change::resize:
        return bytes(time, path, entry, data);
    }
  }

  std::string below(const std::string& path) const {
    return path.size() > root_.size() ? path.substr(root_.size() + 1) : "";
  }

 private:
  int node(const std::string& path) const {
    int at = 0;
    for (const std::string& part : parts_of(path)) {
      const auto& names = tape_.end.nodes.at(at).names;
      const auto found = names.find(part);
      if (found == names.end()) throw std::runtime_error("the tape does not know " + path);
      at = found->second;
    }
    return at;
  }
  int parent(const std::string& path) const { return node(fs::path(path).parent_path().string()); }
  static std::string base(const std::string& path) { return fs::path(path).filename().string(); }

  void add(std::int64_t time, const std::string& path, std::vector<Piece::Name> names,
           std::vector<int> folders = {}) {
    Piece piece;
    piece.time = time;
    piece.durable = Piece::never;
    piece.path = path;
    piece.names = std::move(names);
    piece.folders = std::move(folders);
    keep(std::move(piece));
  }

  // A write is as many pieces as it touches pages.
  void bytes(std::int64_t time, const std::string& path, const Entry& entry,
             const std::string& data) {
    const int file = node(path);
    for (std::size_t from = 0; from < std::max<std::size_t>(data.size(), 1);) {
      const std::size_t room = page - (entry.offset + from) % page;
      Piece piece;
      piece.time = time;
      piece.durable = Piece::never;
      piece.path = path;
      piece.file = file;
      piece.offset = entry.offset + from;
      piece.resize = entry.change == Change::resize;
      piece.data = data.substr(from, room);
      from += room;
      keep(std::move(piece));
    }
  }

  void keep(Piece piece) {
    apply(piece, tape_.end);
    tape_.pieces.push_back(std::move(piece));
  }

  void sync(std::int64_t time, const std::string& path) {
    if (!forget_.empty() && path.find(forget_) != path.npos) return;
    ++tape_.syncs;
    const int flushed = node(path);
    for (Piece& piece : tape_.pieces) {
      if (piece.durable != Piece::never) continue;
      const bool own = piece.file == flushed;
      // A name in two folders needs both flushed; all renames stay in one here.
      const bool named = piece.file < 0 && std::all_of(piece.names.begin(), piece.names.end(),
                                                       [&](const Piece::Name& name) {
                                                         return name.folder == flushed;
                                                       });
      if (own || named) piece.durable = time;
    }
    for (auto& [step, checkpoint] : tape_.checkpoints)
      if (checkpoint.durable == Piece::never && path == "ckpt") checkpoint.durable = time;
  }

  void name_checkpoint(const std::string& step, int folder, std::int64_t time) {
    Tape::Checkpoint& made = tape_.checkpoints[std::stoll(step)];
    made.named = time;
    made.durable = Piece::never;
    for (const auto& [name, file] : tape_.end.nodes.at(folder).names)
      made.files[name] = tape_.end.nodes.at(file).bytes;
  }

  Tape& tape_;
  const std::string root_, forget_;
  int last_ = 0;
};

}  // namespace

const Node* Tree::at(const std::string& path) const {
  int at = 0;
  for (const std::string& part : parts_of(path)) {
    const auto folder = nodes.find(at);
    if (folder == nodes.end() || !folder->second.names.contains(part)) return nullptr;
    at = folder->second.names.at(part);
  }
  const auto found = nodes.find(at);
  static const Node empty;  // a name that leads to a file of which nothing else is there
  return found == nodes.end() ? &empty : &found->second;
}

void Tree::write_to(const fs::path& folder, int node) const {
  fs::create_directories(folder);
  for (const auto& [name, child] : nodes.at(node).names) {
    const auto found = nodes.find(child);
    if (found != nodes.end() && found->second.folder)
      write_to(folder / name, child);
    else
      std::ofstream(folder / name, std::ios::binary)
          << (found == nodes.end() ? "" : found->second.bytes);
  }
}

std::string Tree::difference(const fs::path& folder, int node) const {
  std::set<std::string> mine, theirs;
  for (const auto& [name, child] : nodes.at(node).names) mine.insert(name);
  for (const auto& entry : fs::directory_iterator(folder))
    if (const std::string name = entry.path().filename();
        !name.starts_with(".ranks-") && name != ".pulse")
      theirs.insert(name);
  for (const std::string& name : mine)
    if (!theirs.contains(name)) return (folder / name).string() + " is on the tape alone";
  for (const std::string& name : theirs) {
    if (!mine.contains(name)) return (folder / name).string() + " is not on the tape";
    const int child = nodes.at(node).names.at(name);
    const auto found = nodes.find(child);
    if (fs::is_directory(folder / name)) {
      if (const std::string inside = difference(folder / name, child); !inside.empty())
        return inside;
    } else if ((found == nodes.end() ? "" : found->second.bytes) != text_of(folder / name)) {
      return (folder / name).string() + " has other bytes on the tape";
    }
  }
  return "";
}

Tape::Tape(const fs::path& file, const fs::path& root, const std::string& forget) {
  const std::string all = text_of(file);
  Reader reader(*this, root.string(), forget);
  for (std::size_t at = 0; at < all.size();) {
    Entry entry;
    std::memcpy(&entry, all.data() + at, sizeof(entry));
    at += sizeof(entry);
    const auto take = [&](std::size_t bytes) {
      at += bytes;
      return all.substr(at - bytes, bytes);
    };
    const std::string path = take(entry.path), other = take(entry.other), data = take(entry.data);
    reader.call(entry, reader.below(path), reader.below(other), data);
  }
}

Tree tree_of(const Tape& tape, const std::vector<bool>& kept) {
  Tree out;
  out.nodes[0].folder = true;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    // A folder whose name is there is a folder, whichever call gave it that name.
    for (const int folder : tape.pieces[i].folders) out.nodes[folder].folder = true;
    if (kept[i]) apply(tape.pieces[i], out);
  }
  return out;
}

std::string judge(const Tape& tape, const Tree& tree, std::int64_t time) {
  const Node* const folder = tree.at("ckpt");
  std::int64_t newest = -1, known = -1;
  for (const auto& [step, checkpoint] : tape.checkpoints) {
    if (checkpoint.durable <= time) known = step;
    const std::string name = "step-" + std::to_string(step);
    if (!folder || !folder->names.contains(name)) continue;
    newest = step;
    const Node& there = *tree.at("ckpt/" + name);
    for (const auto& [file, bytes] : checkpoint.files) {
      const Node* const found = tree.at("ckpt/" + name + "/" + file);
      if (!found) return name + "/" + file + " is missing";
      if (found->bytes != bytes) return name + "/" + file + " has other bytes";
    }
    if (there.names.size() != checkpoint.files.size()) return name + " has more files";
  }
  if (newest < known)
    return "step-" + std::to_string(known) + " was on the disk and the newest now is step-" +
           std::to_string(newest);
  if (newest < 0 && tree.at(".saved")) return ".saved is there and no checkpoint";
  return "";
}

}  // namespace tessera::test::faults
