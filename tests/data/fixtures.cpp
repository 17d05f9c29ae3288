#include "data/fixtures.h"

#include <zlib.h>

#include <unistd.h>
#include <cstdio>

#include <cstring>
#include <fstream>
#include <sstream>

#include "data/decode.h"

namespace tessera::test {

namespace fs = std::filesystem;

void write_bytes(const fs::path& path, const std::string& bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string cifar_records(const data::CifarForm& form, int file, int records) {
  std::string out;
  for (int r = 0; r < records; ++r) {
    if (form.labels_before) out += static_cast<char>(r % 20);
    out += static_cast<char>(r % form.classes);
    for (int b = 0; b < 3072; ++b) out += static_cast<char>(cifar_byte(file, r, b));
  }
  return out;
}

namespace {

std::vector<std::pair<std::string, std::string>> cifar_files(const data::CifarForm& form,
                                                             int records) {
  std::vector<std::pair<std::string, std::string>> out;
  for (std::size_t i = 0; i < form.train.size(); ++i)
    out.emplace_back(form.train[i], cifar_records(form, static_cast<int>(i), records));
  out.emplace_back(form.test, cifar_records(form, 9, records));
  std::string names;
  for (int i = 0; i < form.classes; ++i) names += "name" + std::to_string(i) + "\n";
  out.emplace_back(form.names, names + "\n");
  return out;
}

}  // namespace

void write_cifar(const data::CifarForm& form, const fs::path& dir, int records) {
  for (const auto& [name, bytes] : cifar_files(form, records)) write_bytes(dir / name, bytes);
}

void write_class(const fs::path& folder, int count, int h, int w) {
  fs::create_directories(folder);
  for (int i = 0; i < count; ++i) {
    data::Image image(h, w, 3);
    std::fill(image.pixels.begin(), image.pixels.end(), static_cast<std::uint8_t>(10 + i));
    if (i % 2) {
      data::write_png(folder / (std::to_string(i) + ".png"), image);
    } else {
      const Bytes jpeg = encode_jpeg(image, 95);
      write_bytes(folder / (std::to_string(i) + ".jpg"),
                  std::string(reinterpret_cast<const char*>(jpeg.data()), jpeg.size()));
    }
  }
}

std::string tar(const std::vector<TarEntry>& entries) {
  std::string out;
  for (const TarEntry& entry : entries) {
    std::string header(512, '\0');
    const auto put = [&](std::size_t at, const std::string& text) {
      header.replace(at, text.size(), text);
    };
    put(0, entry.name);
    put(100, "0000644");
    char size[13];
    std::snprintf(size, sizeof(size), "%011zo", entry.content.size());
    put(124, size);
    put(148, "        ");
    header[156] = entry.type;
    put(257, "ustar");
    put(263, "00");
    unsigned sum = 0;
    for (const char c : header) sum += static_cast<unsigned char>(c);
    char check[8];
    std::snprintf(check, sizeof(check), "%06o", sum);
    put(148, std::string(check, 6) + '\0' + ' ');
    out += header + entry.content + std::string((512 - entry.content.size() % 512) % 512, '\0');
  }
  return out + std::string(1024, '\0');
}

std::string tar_gz(const std::vector<TarEntry>& entries) {
  const std::string plain = tar(entries);
  const std::string path =
      (fs::temp_directory_path() / ("tessera-tar-" + std::to_string(::getpid()))).string();
  gzFile file = gzopen(path.c_str(), "wb6");
  gzwrite(file, plain.data(), static_cast<unsigned>(plain.size()));
  gzclose(file);
  std::string out = read_bytes(path);
  fs::remove(path);
  return out;
}

std::string cifar_archive(const data::CifarForm& form, int records) {
  std::vector<TarEntry> entries = {{form.folder + "/", "", '5'},
                                   {form.folder + "/readme.html", "<html>", '0'}};
  for (const auto& [name, bytes] : cifar_files(form, records))
    entries.push_back({form.folder + "/" + name, bytes, '0'});
  return tar_gz(entries);
}

}  // namespace tessera::test
