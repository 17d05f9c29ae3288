// CIFAR: what is read back is what was written, and everything that is not a whole, sound set is
// refused in words that help.
#include "data/cifar.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/rng.h"
#include "data/fixtures.h"
#include "files/scratch.h"

namespace tessera::data::cifar_test {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::read_bytes;
using test::Scratch;
using test::write_bytes;
using test::write_cifar;

std::string refusal(const CifarForm& form, const fs::path& dir, Split split = Split::train) {
  const Error error = error_of([&] { cifar(form, dir, split); });
  EXPECT_EQ(error.kind, ErrorKind::data);
  return error.what();
}

void expect_says(const std::string& text, std::initializer_list<const char*> words) {
  for (const char* word : words)
    EXPECT_NE(text.find(word), std::string::npos) << "expected '" << word << "' in: " << text;
}

TEST(Cifar, RoundTripOfBothForms) {
  for (const CifarForm* form : {&cifar10_form(), &cifar100_form()})
    for (const char* below : {"", form->folder.c_str()}) {
      const Scratch scratch;
      write_cifar(*form, scratch / below, 12);
      const auto train = cifar(*form, scratch.folder(), Split::train),
                 tested = cifar(*form, scratch.folder(), Split::test);
      ASSERT_EQ(train->size(), 12 * static_cast<int>(form->train.size()));
      ASSERT_EQ(tested->size(), 12);
      EXPECT_EQ(train->classes(), form->classes);
      EXPECT_EQ(train->class_names()[3], "name3");
      EXPECT_EQ(std::tuple(train->height(), train->width(), train->channels()),
                std::tuple(32, 32, 3));
      Image image;
      const int last = static_cast<int>(train->size()) - 1;
      train->get(last, {}, image);
      EXPECT_EQ(train->label(last), 11 % form->classes);
      for (const auto& [y, x, k] : {std::tuple{0, 0, 0}, {0, 1, 0}, {31, 31, 2}, {5, 17, 1}})
        EXPECT_EQ(image.at(y, x)[k], test::cifar_byte(static_cast<int>(form->train.size()) - 1, 11,
                                                      k * 1024 + y * 32 + x));
      tested->get(0, {}, image);
      EXPECT_EQ(image.at(0, 2)[1], test::cifar_byte(9, 0, 1026));
    }
}

TEST(Cifar, AllMissingFilesAtOnce) {
  const Scratch scratch;
  write_cifar(cifar10_form(), scratch.folder(), 2);
  fs::remove(scratch / "data_batch_3.bin");
  fs::remove(scratch / "test_batch.bin");
  expect_says(refusal(cifar10_form(), scratch.folder()),
              {"data_batch_3.bin, test_batch.bin missing", "tessera data get cifar10"});
  expect_says(refusal(cifar10_form(), scratch / "nowhere"),
              {"found nothing", "nowhere", "data get"});
  expect_says(refusal(cifar100_form(), scratch.folder()),
              {"train.bin, test.bin, fine_label_names.txt missing"});
}

TEST(Cifar, OtherFormsAreRefusedWithTheWayOut) {
  for (const char* name :
       {"data_batch_1", "cifar-10-python.tar.gz", "cifar-10-batches-py/data_batch_1"}) {
    const Scratch scratch;
    write_bytes(scratch / name, "pickle");
    expect_says(refusal(cifar10_form(), scratch.folder()),
                {"Python form", "run code", "data get cifar10"});
  }
  const Scratch scratch;
  write_bytes(scratch / "train", "pickle");
  expect_says(refusal(cifar100_form(), scratch.folder()), {"Python form of CIFAR-100"});
  fs::remove(scratch / "train");
  write_bytes(scratch / "cifar-100-binary.tar.gz", "gz");
  expect_says(refusal(cifar100_form(), scratch.folder()), {"not unpacked", "tar xzf"});
}

TEST(Cifar, SizesLabelsAndNamesAreChecked) {
  const Scratch scratch;
  const CifarForm& form = cifar10_form();
  write_cifar(form, scratch.folder(), 3);
  const std::string whole = read_bytes(scratch / "data_batch_2.bin");
  write_bytes(scratch / "data_batch_2.bin", whole.substr(0, whole.size() - 1));
  expect_says(refusal(form, scratch.folder()),
              {"data_batch_2.bin", "records of 3073 bytes", "2 records and 3072 bytes more"});
  write_bytes(scratch / "data_batch_2.bin", "");
  expect_says(refusal(form, scratch.folder()), {"found 0 bytes"});
  std::string bad = whole;
  bad[3073] = 10;
  write_bytes(scratch / "data_batch_2.bin", bad);
  expect_says(refusal(form, scratch.folder()), {"record 1 has label 10, expected 0 to 9"});
  write_bytes(scratch / "data_batch_2.bin", whole);
  EXPECT_EQ(cifar(form, scratch.folder(), Split::train)->size(), 15);
  write_bytes(scratch / "batches.meta.txt", "one\ntwo\n");
  expect_says(refusal(form, scratch.folder()), {"expected 10 names", "found 2"});
}

// Any change of a file is either refused or read as what it now says; never anything else.
TEST(Hostile, MutatedCifarNeverCrashes) {
  const char* wanted = std::getenv("TESSERA_FUZZ_ITERATIONS");
  const std::uint64_t rounds = wanted ? std::strtoull(wanted, nullptr, 10) : 300;
  const Scratch scratch;
  const CifarForm& form = cifar100_form();
  write_cifar(form, scratch.folder(), 2);
  const std::string whole = read_bytes(scratch / "test.bin"),
                    names = read_bytes(scratch / form.names);
  for (std::uint64_t i = 0; i < rounds; ++i) {
    const Key key = Key{5}.with("cifar fuzz").with(i);
    std::string records = whole, text = names;
    for (std::uint64_t k = 0; k < 1 + i % 3; ++k)
      records[random_bits(key, k) % 4 ? random_bits(key, 10 + k) % records.size() : 1] ^=
          static_cast<char>(1 << random_bits(key, 20 + k) % 8);
    if (i % 5 == 0) records.resize(random_bits(key, 30) % (2 * records.size()));
    if (i % 7 == 0) text.resize(random_bits(key, 31) % text.size());
    write_bytes(scratch / "test.bin", records);
    write_bytes(scratch / form.names, text);
    try {
      const auto dataset = cifar(form, scratch.folder(), Split::test);
      Image image;
      for (std::int64_t s = 0; s < dataset->size(); ++s) {
        dataset->get(s, {}, image);
        ASSERT_LT(dataset->label(s), 100);
      }
    } catch (const Error& error) {
      ASSERT_EQ(error.kind, ErrorKind::data) << error.what();
      ASSERT_EQ(std::string(error.what()).find(scratch.folder().string()), 0u) << error.what();
    }
  }
}

}  // namespace
}  // namespace tessera::data::cifar_test
