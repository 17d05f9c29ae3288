// CIFAR's binary files. Input: a byte that chooses the form, the length of the file of class names
// (two bytes), that file, the records.
#include "data/cifar.h"

#include "fuzz.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  if (size < 3) return 0;
  const data::CifarForm& form = input[0] % 2 ? data::cifar100_form() : data::cifar10_form();
  const std::string_view rest = fuzz::as_text(input + 3, size - 3),
                         names = rest.substr(0, input[1] * 256u + input[2]);
  const std::filesystem::path folder = fuzz::scratch() / form.name;
  if (std::filesystem::create_directory(folder))
    for (const std::string& name : form.train) fuzz::write_file(folder / name, "");
  fuzz::write_file(folder / form.names, names);
  fuzz::write_file(folder / form.test, rest.substr(names.size()));
  fuzz::accepts(ErrorKind::data, folder.string(), [&] {
    const auto set = data::cifar(form, folder, data::Split::test);
    data::Image image;
    for (std::int64_t i = 0; i < set->size(); ++i) {
      set->get(i, {}, image);
      if (set->label(i) < 0 || set->label(i) >= form.classes)
        fuzz::finding("a label out of range was accepted");
    }
  });
  return 0;
}
