// Files that fail under whoever reads them, and weight files with a hash: every damage is an Error
// that names the file.
#include "files/regular_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <numeric>

#include "files/hash.h"
#include "files/safetensors.h"
#include "files/scratch.h"
#include "files/sharded.h"
#include "files/text.h"

namespace tessera::files::regular_file_test {
namespace {

using test::error_of;
using test::Scratch;

std::vector<float> counting(std::size_t n) {
  std::vector<float> out(n);
  std::iota(out.begin(), out.end(), 0.0f);
  return out;
}

// A mapped file that somebody cuts ends its reader with SIGBUS.
TEST(RegularFile, OneThatIsCutWhileItIsOpenIsAnError) {
  const Scratch scratch;
  const std::vector<float> numbers = counting(100'000);
  write_safetensors(scratch / "a", {{"a", "F32", {100'000}, std::as_bytes(std::span(numbers))}});
  const Safetensors file(scratch / "a");
  EXPECT_EQ(to_floats(file.read("a")), numbers);
  std::filesystem::resize_file(scratch / "a", 5000);
  const Error error = error_of([&] { file.read("a"); });
  EXPECT_EQ(error.kind, ErrorKind::weights);
  EXPECT_NE(std::string(error.what()).find("a ends at byte 5000"), std::string::npos)
      << error.what();
}

TEST(RegularFile, ACheckpointThatIsCutWhileItIsOpenIsAnError) {
  const Scratch scratch;
  const std::vector<float> numbers = counting(100'000);
  Manifest manifest;
  manifest.tensors = write_shards(
      scratch.folder(), 0,
      {{"w", "F32", {1000, 100}, {0, 0}, {1000, 100}, std::as_bytes(std::span(numbers))}});
  write_atomically(scratch / manifest_name, print(manifest));
  const Sharded checkpoint(scratch.folder());
  checkpoint.verify();
  const std::vector<std::byte> rows = checkpoint.read("w", {10, 5}, {3, 7});
  for (std::size_t i = 0; i < 21; ++i) {
    float found = 0;
    std::memcpy(&found, rows.data() + 4 * i, 4);
    EXPECT_EQ(found, static_cast<float>((10 + i / 7) * 100 + 5 + i % 7));
  }
  std::filesystem::resize_file(scratch / "rank-0.safetensors", 5000);
  for (const auto& body : std::vector<std::function<void()>>{[&] { checkpoint.verify(); },
                                                             [&] { checkpoint.read("w"); }}) {
    const Error error = error_of(body);
    EXPECT_EQ(error.kind, ErrorKind::weights);
    EXPECT_NE(error.message.find("rank-0.safetensors"), std::string::npos) << error.message;
  }
}

// Two tensors and the hash that save_weights() would give them.
void write_hashed(const std::filesystem::path& path,
                  Metadata metadata = {{"format", "pt"}, {"note", "a"}}) {
  const std::vector<float> a = counting(6), b = counting(2);
  const TensorPlaces places = {{"a", {"F32", {2, 3}, 0, 24}}, {"b", {"F32", {2}, 24, 8}}};
  metadata[hash_key] = content_hash(
      metadata, places,
      {{"a", xxh3(std::as_bytes(std::span(a)))}, {"b", xxh3(std::as_bytes(std::span(b)))}});
  write_safetensors(path,
                    {{"a", "F32", {2, 3}, std::as_bytes(std::span(a))},
                     {"b", "F32", {2}, std::as_bytes(std::span(b))}},
                    metadata);
}

// A bit of every byte, each time another one.
TEST(HashedWeights, AFlippedBitIsNoticedWhereverItLies) {
  const Scratch scratch;
  write_hashed(scratch / "w");
  EXPECT_EQ(to_floats(Safetensors(scratch / "w").read("b")), counting(2));
  const std::string sound = read_text(scratch / "w");
  for (std::size_t bit = 0; bit < 8 * sound.size(); bit += 9) {
    std::string text = sound;
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
    std::ofstream(scratch / "w", std::ios::binary) << text;
    EXPECT_EQ(error_of([&] { Safetensors file(scratch / "w"); }).kind, ErrorKind::weights)
        << "bit " << bit % 8 << " of byte " << bit / 8 << " in " << sound.substr(8);
  }
}

TEST(HashedWeights, WithoutAHashAFileIsReadAsItIs) {
  const Scratch scratch;
  const std::vector<float> a = counting(6);
  write_safetensors(scratch / "w", {{"a", "F32", {6}, std::as_bytes(std::span(a))}},
                    {{"format", "pt"}});
  EXPECT_EQ(to_floats(Safetensors(scratch / "w").read("a")), a);
}

// Another program may write the same content in another order, with other blanks.
TEST(HashedWeights, TheHashIsThatOfTheContent) {
  const Scratch scratch;
  write_hashed(scratch / "w");
  const Safetensors file(scratch / "w");
  std::string header =
      R"({"b": {"shape": [2], "dtype": "F32", "data_offsets": [0, 8]}, "__metadata__": {"note": "a", "format": "pt", ")";
  header += std::string(hash_key) + R"(": ")" + file.metadata().at(hash_key) +
            R"("}, "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [8, 32]}})";
  const std::uint64_t length = header.size();
  std::ofstream out(scratch / "other", std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), 8) << header;
  for (const char* name : {"b", "a"}) {
    const TensorBytes tensor = file.read(name);
    out.write(reinterpret_cast<const char*>(tensor.bytes.data()),
              static_cast<std::streamsize>(tensor.bytes.size()));
  }
  out.close();
  EXPECT_EQ(to_floats(Safetensors(scratch / "other").read("a")), counting(6));
}

}  // namespace
}  // namespace tessera::files::regular_file_test
