// Global tensors in shards: any slice from any cut, folders that appear whole, and disks that fill
// up.
#include "files/sharded.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <numeric>

#include "base/rng.h"
#include "files/atomic_folder.h"
#include "files/disk.h"
#include "files/hash.h"
#include "files/scratch.h"
#include "files/text.h"

namespace tessera::files::sharded_test {
namespace {

using test::error_of;
using test::Scratch;

std::vector<std::byte> bytes_of(const std::vector<float>& values) {
  std::vector<std::byte> out(values.size() * 4);
  if (!out.empty()) std::memcpy(out.data(), values.data(), out.size());
  return out;
}
std::vector<float> floats_of(const std::vector<std::byte>& bytes) {
  std::vector<float> out(bytes.size() / 4);
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

// Element (i, j, k, ...) of the test tensor is its global row-major index.
std::vector<float> box_values(const Extents& shape, const Extents& offset, const Extents& extent) {
  std::vector<float> out;
  std::int64_t count = 1;
  for (const std::int64_t n : extent) count *= n;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i, index = 0, stride = 1;
    for (std::size_t d = shape.size(); d-- > 0;) {
      index += (offset[d] + rest % extent[d]) * stride;
      rest /= extent[d];
      stride *= shape[d];
    }
    out.push_back(static_cast<float>(index));
  }
  return out;
}

struct Cut {
  Extents offset, extent;
};

// A checkpoint of one tensor, each cut in the file of its own rank.
void write(const std::filesystem::path& folder, const Extents& shape,
           const std::vector<Cut>& cuts) {
  std::filesystem::create_directories(folder);
  Manifest manifest;
  int rank = 0;
  for (const Cut& cut : cuts) {
    const std::vector<std::byte> bytes = bytes_of(box_values(shape, cut.offset, cut.extent));
    for (auto& [name, tensor] :
         write_shards(folder, rank++, {{"t", "F32", shape, cut.offset, cut.extent, bytes}})) {
      GlobalTensor& whole =
          manifest.tensors.try_emplace(name, GlobalTensor{tensor.dtype, tensor.shape, {}})
              .first->second;
      whole.shards.insert(whole.shards.end(), tensor.shards.begin(), tensor.shards.end());
    }
  }
  write_atomically(folder / manifest_name, print(manifest));
}

void expect_every_slice(const std::filesystem::path& folder, const Extents& shape) {
  const Sharded sharded(folder);
  sharded.verify();
  EXPECT_EQ(floats_of(sharded.read("t")), box_values(shape, Extents(shape.size(), 0), shape));
  for (std::uint64_t i = 0; i < 300; ++i) {
    Extents offset, extent;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      const auto bits = random_bits(Key{9}.with(i), d);
      offset.push_back(static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(shape[d] + 1)));
      extent.push_back(static_cast<std::int64_t>(
          (bits >> 32) % static_cast<std::uint64_t>(shape[d] - offset[d] + 1)));
    }
    EXPECT_EQ(floats_of(sharded.read("t", offset, extent)), box_values(shape, offset, extent));
  }
}

TEST(Sharded, AnySliceFromTwoShards) {
  const Scratch scratch;
  write(scratch / "rows", {5, 4}, {{{0, 0}, {3, 4}}, {{3, 0}, {2, 4}}});
  expect_every_slice(scratch / "rows", {5, 4});
  write(scratch / "columns", {5, 4}, {{{0, 0}, {5, 1}}, {{0, 1}, {5, 3}}});
  expect_every_slice(scratch / "columns", {5, 4});
  write(scratch / "flat", {7}, {{{0}, {7}}, {{7}, {0}}});  // a rank may be left with nothing
  expect_every_slice(scratch / "flat", {7});
}

TEST(Sharded, AnySliceFromThreeShardsOfThreeDims) {
  const Scratch scratch;
  write(scratch / "a", {4, 3, 5},
        {{{0, 0, 0}, {4, 3, 2}}, {{0, 0, 2}, {4, 1, 3}}, {{0, 1, 2}, {4, 2, 3}}});
  expect_every_slice(scratch / "a", {4, 3, 5});
}

TEST(Sharded, ScalarsAndSeveralBoxesOfOneRank) {
  const Scratch scratch;
  const std::vector<std::byte> one = bytes_of({7}), left = bytes_of({0, 1, 2}),
                               right = bytes_of({3, 4, 5});
  std::filesystem::create_directories(scratch / "c");
  Manifest manifest;
  manifest.tensors = write_shards(scratch / "c", 0,
                                  {{"s", "F32", {}, {}, {}, one},
                                   {"t", "F32", {2, 3}, {0, 0}, {1, 3}, left},
                                   {"t", "F32", {2, 3}, {1, 0}, {1, 3}, right}});
  write_atomically(scratch / "c" / manifest_name, print(manifest));
  const Sharded sharded(scratch / "c");
  EXPECT_EQ(floats_of(sharded.read("s")), std::vector<float>{7});
  EXPECT_EQ(floats_of(sharded.read("t")), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(sharded.bytes(), 28u);
}

TEST(Sharded, DamageIsFoundAndNamed) {
  const Scratch scratch;
  write(scratch / "c", {5, 4}, {{{0, 0}, {3, 4}}, {{3, 0}, {2, 4}}});
  std::string bytes = read_text(scratch / "c/rank-1.safetensors");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_atomically(scratch / "c/rank-1.safetensors", bytes);
  const Error error = error_of([&] { Sharded(scratch / "c").verify(); });
  EXPECT_EQ(error.kind, ErrorKind::weights);
  EXPECT_NE(error.message.find("'t' in rank-1.safetensors"), std::string::npos) << error.what();
  std::filesystem::remove(scratch / "c/rank-0.safetensors");
  EXPECT_EQ(error_of([&] { Sharded(scratch / "c"); }).kind, ErrorKind::weights);
}

TEST(Hash, IsXxh3) {
  EXPECT_EQ(hash_text(xxh3(std::string_view(""))),
            "2d06800538d394c2");  // the published value of the empty input
  EXPECT_NE(xxh3(std::string_view("a")), xxh3(std::string_view("b")));
}

TEST(AtomicFolder, AppearsWholeReplacesAndLeavesNothing) {
  const Scratch scratch;
  const auto place = scratch / "ckpt/step-3";
  { const AtomicFolder torn(place); }
  EXPECT_TRUE(std::filesystem::is_empty(scratch / "ckpt"));
  for (const char* text : {"one", "two"}) {
    AtomicFolder folder(place);
    write_atomically(folder.path() / "file", text);
    folder.commit();
    EXPECT_EQ(read_text(place / "file"), text);
  }
  std::filesystem::create_directories(scratch / "ckpt/.part-step-9");
  std::filesystem::create_directories(scratch / "ckpt/.gone-step-1/sub");
  std::filesystem::rename(place, scratch / "ckpt/.old-step-3");  // a crash between two renames
  std::ofstream(scratch / "ckpt/.tessera-1-2.tmp") << "x";
  clean_leftovers(scratch / "ckpt");
  EXPECT_EQ(read_text(place / "file"), "two");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch / "ckpt"), {}), 1);
  remove_folder(place);
  EXPECT_TRUE(std::filesystem::is_empty(scratch / "ckpt"));
}

// It costs room, which its user should know of; it is no reason to end.
TEST(AtomicFolder, WhatCannotBeRemovedIsSaid) {
  namespace fs = std::filesystem;
  const Scratch scratch;
  const fs::path ckpt = scratch / "ckpt", place = ckpt / "step-3", gone = ckpt / ".gone-step-3";
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != text.npos;
  };
  for (const fs::path& folder : {place, ckpt / "step-4"}) {
    fs::create_directories(folder);
    std::ofstream(folder / "file") << "x";
  }
  const auto closed = fs::perms::owner_read | fs::perms::owner_exec;
  const test::AsNobody user(scratch.folder());
  fs::permissions(ckpt, closed);
  const std::string whole = remove_folder(place);
  EXPECT_TRUE(has(whole, "Permission denied; it stays whole")) << whole;
  EXPECT_TRUE(fs::exists(place / "file"));

  fs::permissions(ckpt, fs::perms::owner_all);
  fs::permissions(place, closed);
  const std::string rest = remove_folder(place);
  EXPECT_TRUE(has(rest, "Permission denied; what is left of it is " + gone.string())) << rest;
  EXPECT_FALSE(fs::exists(place));
  const std::vector<std::string> stuck = clean_leftovers(ckpt);
  ASSERT_EQ(stuck.size(), 1u);
  EXPECT_TRUE(has(stuck[0], gone.string()) && has(stuck[0], "Permission denied")) << stuck[0];

  fs::create_directories(place);
  const std::string behind = remove_folder(place);
  EXPECT_TRUE(has(behind, gone.string() + " is in its way: Permission denied")) << behind;
  EXPECT_TRUE(fs::exists(place));
  EXPECT_EQ(remove_folder(ckpt / "step-4"), "");
  fs::permissions(gone, fs::perms::owner_all);
  EXPECT_TRUE(clean_leftovers(ckpt).empty());
  EXPECT_EQ(remove_folder(place), "");
}

TEST(Text, WhatIsAddedComesAtTheEndOrIsAnError) {
  const Scratch scratch;
  append_text(scratch / "f", "one\n");
  append_text(scratch / "f", "two\n");
  EXPECT_EQ(read_text(scratch / "f"), "one\ntwo\n");
  for (const std::string name : {"f/g", "nowhere/f", "."}) {
    const Error error = error_of([&] { append_text(scratch / name, "x"); });
    EXPECT_EQ(error.kind, ErrorKind::disk) << error.what();
    EXPECT_EQ(error.where, (scratch / name).string());
  }
  const DiskFault fault(1, ENOSPC);
  EXPECT_EQ(error_of([&] { append_text(scratch / "f", "three\n"); }).kind, ErrorKind::disk);
}

TEST(Disk, AFullOneSaysHowMuchAndKeepsTheOldFile) {
  const Scratch scratch;
  write_atomically(scratch / "f", "old");
  const std::string text(5000, 'x');
  {
    const DiskFault fault(1000, ENOSPC);
    const Error error = error_of([&] { write_atomically(scratch / "f", text); });
    EXPECT_EQ(error.kind, ErrorKind::disk);
    EXPECT_NE(error.message.find("5000 bytes are needed"), std::string::npos) << error.what();
    EXPECT_NE(error.message.find("are free"), std::string::npos) << error.what();
  }
  EXPECT_EQ(read_text(scratch / "f"), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.folder()), {}), 1);
  const Error error = error_of([&] { require_room(scratch / "g/h", std::uint64_t{1} << 60); });
  EXPECT_EQ(error.kind, ErrorKind::disk);
  EXPECT_NE(error.message.find("1152921504606846976 bytes are needed"), std::string::npos)
      << error.what();
}

}  // namespace
}  // namespace tessera::files::sharded_test
