// Writes the seeds of every fuzz target, sound inputs of every flavour, and for texts a dictionary:
// DIR/<target>/NN and DIR/<target>.dict. Convention: nothing binary lies in the repository; seeds
// are made by the writers of the formats and by the tests' encoders.
#include <spng.h>

#include <map>
#include <set>
#include <sstream>

#include "checkpoint/progress.h"
#include "config/fields.h"
#include "config/print.h"
#include "config/reader.h"
#include "data/fixtures.h"
#include "files/manifest.h"
#include "files/safetensors.h"
#include "fuzz.h"

namespace tessera::fuzz {
namespace {

namespace fs = std::filesystem;
using Seeds = std::vector<std::string>;

std::string text_of(const test::Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Seeds safetensors() {
  const std::vector<std::byte> zeros(64);
  const auto tensor = [&](const char* name, const char* dtype, std::vector<std::int64_t> shape) {
    std::size_t bytes = files::dtype_size(dtype);
    for (const std::int64_t dim : shape) bytes *= static_cast<std::size_t>(dim);
    return files::NamedTensor{name, dtype, std::move(shape), std::span(zeros).first(bytes)};
  };
  Seeds out;
  for (const auto& [tensors, metadata] :
       std::vector<std::pair<std::vector<files::NamedTensor>, files::Metadata>>{
           {{}, {}},
           {{tensor("w", "F32", {2, 3})}, {{"format", "pt"}}},
           {{tensor("w", "F64", {2}), tensor("b", "BF16", {4}), tensor("s", "I64", {}),
             tensor("e", "U8", {0, 5}), tensor("q", "F8_E4M3", {3})},
            {{"tessera.model", config::model_to_json(models::preset("vit_micro"))}}}}) {
    files::write_safetensors(scratch() / "seed", tensors, metadata);
    out.push_back(test::read_bytes(scratch() / "seed"));
  }
  return out;
}

Seeds manifests() {
  files::Manifest m;
  m.state = {{"progress", run::to_json({})}, {"classes", {"a", "b"}}};
  Seeds out = {files::print(m)};
  m.tensors["param.w"] = {"F32",
                          {4, 3},
                          {{"rank-0.safetensors", "param.w", {0, 0}, {2, 3}, 1},
                           {"rank-1.safetensors", "param.w", {2, 0}, {2, 3}, 2}}};
  m.tensors["adamw.m.w"] = {
      "F32", {}, {{"rank-0.safetensors", "adamw.m.w", {}, {}, 0xffffffffffffffffu}}};
  out.push_back(files::print(m));
  return out;
}

Seeds tomls() {
  const std::string zero(1, '\0');
  Seeds out = {
      "[model]\nname = \"vit_b_16\"\nimage = [224, 224]\n[lr]\nwarmup = \"5%\"\n[run]\nsteps = "
      "10\n",
      "[run]\nepochs = 3\nuntil = \"top1=0.9\"\n[batch]\nglobal = 64\nmicro = 16\n[data]\nsource = "
      "\"synthetic:64x64x3,10\"\n",
      "[optim]\nbetas = [0.9, 0.95]\n" + zero + "run.steps=5\nmodel.depth=2\noptim.lr=.5\n",
      "run.seed = 0x10\n[data]\nsource = '''folder:x'''\nmean = [\n 0.5, # grey\n 0.5,\n]\n",
      "[run]\nsteps = 1_0\nout=\"caf\u00e9\" # \u00e9\nname = 1979-05-27\n",
      zero + "run.name=a b\nrun.epochs=1"};
  for (const char* model : {"vit_micro", "swin_t", "resnet18"})
    out.push_back(
        config::to_toml(config::load({}, {config::from_set("run.steps=10"),
                                          config::from_set(std::string("model.name=") + model)})));
  return out;
}

Seeds studies() {
  const std::string head =
      "[study]\nname = \"s\"\nrepeats = 2\n[base]\nmodel.name = \"vit_micro\"\nrun.epochs = 1\n";
  return {head +
              "[[part]]\nname = \"a\"\nkind = \"strong\"\nset = { \"batch.global\" = 64, data = { "
              "flip = \"random\" } }\ngrid = { \"run.np\" = "
              "[1, "
              "2], "
              "\"optim.betas\" = [[0.9, 0.95]] }\n[[claim]]\npaper = \"vit\"\nsays = \"x\"\nnumber "
              "= \"1\"\nholds = \"> 0\"\n",
          head +
              "[launch]\nwith = \"mpirun\"\nhostfile = \"h\"\nper_host = 1\narguments = "
              "[\"--bind-to\", \"core\"]\n[[part]]\nname = "
              "\"w\"\nkind = "
              "\"weak\"\nset = { \"batch.global\" = 16, \"data.fraction\" = 0.2, \"launch.hosts\" "
              "= 2 }\ngrid = { \"run.np\" = [2, 4] }\n",
          head +
              "[[part]]\nname = \"t\"\nkind = \"techniques\"\n[[part.technique]]\nname = "
              "\"one\"\n[[part.technique]]\nname = \"two\"\nset = { "
              "\"run.np\" = 2, \"launch.throttle\" = \"1:0.33\" }\n[[part]]\nname = \"l\"\nkind = "
              "\"layers\"\npublished = { msa = 2.5 }\n"};
}

Seeds deepspeeds() {
  const std::string zero(1, '\0');
  return {
      "\2{\"train_batch_size\": 32, \"gradient_accumulation_steps\": 1, \"micro_batch_per_gpu\": "
      "16, \"fp16\": {\"enabled\": false},\n"
      "\"zero_optimization\": {\"stage\": 0, \"offload_optimizer\": {\"device\": \"none\"}}, "
      "\"wall_clock_breakdown\": true, "
      "\"pin_memory\": true}",
      "\1{train_micro_batch_size_per_gpu: 4 # per rank\n optimizer: {type: \"AdamW\", params: {lr: "
      "1e-3, betas: [0.9, 0.95]}}\n"
      " scheduler: {type: \"WarmupDecayLR\", params: {total_num_steps: 100, warmup_min_lr: 0, "
      "warmup_type: \"linear\"}}}",
      "\4// no braces\ntrain_batch_size: 64\ngradient_clipping: 1.0\nbf16: {enabled: "
      "true}\nzero_optimization: {stage: 3, "
      "stage3_param_persistence_threshold: 1e4}\n" +
          zero + "[optim]\nlr = 0.1\nclip = 2.0\n[batch]\nglobal = 8\n",
      "\3{\"train_batch_size\": \"auto\", \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": "
      "\"auto\", \"nesterov\": false}}, /* x */ "
      "\"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\"total_num_steps\": \"auto\"}}, "
      "\"sequence_parallel_size\": 3}"};
}

Seeds models_as_json() {
  Seeds out = {"{}", R"({"name": "vit_b_16", "image": [224, 192], "classes": 10})",
               R"({"family": "swin"})"};
  for (const models::Preset& preset : models::presets())
    out.push_back(config::model_to_json(models::preset(preset.name)));
  return out;
}

Seeds programs() {
  Seeds out = {
      "program t mesh(dp=2:data,tp=4:model)\n  input x : f32[2,3]{dp:S0 tp:P} batch \"x\" "
      "(rows,cols)\n  y : f32[2,3]{dp:S0 tp:P} = gelu x "
      "# mlp\n"
      "  output \"y\" = y\n"};
  for (const char* name : {"tests/ir/every_op.ir", "tests/transforms/simplify.ir",
                           "tests/transforms/optimizer_adamw.ir"})
    out.push_back(test::read_bytes(fs::path(TESSERA_SOURCE_DIR) / name));
  return out;
}

Seeds schedules() {
  return {"schedule one stages=1 micros=2\nrank 0: F0.0 B0.0 F0.1 B0.1\n",
          "schedule zb-h1 stages=2 micros=3\nrank 0: F0.0 F0.1 B0.0 W0.0 F0.2 B0.1 W0.1 B0.2 "
          "W0.2\nrank 1: F1.0 B1.0 F1.1 B1.1 W1.0 F1.2 "
          "B1.2 W1.1 W1.2\n",
          "# inference\nschedule forward stages=2 micros=2\nrank 1: F1.0 F1.1\nrank 0: F0.0 F0.1  "
          "# two\n"};
}

Seeds traces() {
  const std::string turn =
      R"({"ph":"X","cat":"turn","name":"F0.0","pid":0,"tid":1,"ts":1.5,"dur":2,"args":{"step":2,"stage":0,"micro":0,"work":"F"}})";
  return {
      R"({"traceEvents":[],"otherData":{"blocks":[1,2]}})",
      R"({"displayTimeUnit":"ms","traceEvents":[{"ph":"M","name":"process_name","pid":0,"args":{"name":"rank 0"}},)" +
          turn + R"(],"otherData":{"blocks":[2]}})"};
}

Seeds pngs() {
  Seeds out;
  const std::vector<std::uint8_t> samples(2 * 4 * 13 * 11, 0x5a);
  const auto add = [&](std::uint8_t depth, std::uint8_t type, std::size_t bits,
                       bool interlaced = false, std::vector<std::uint32_t> palette = {},
                       std::vector<std::uint8_t> alphas = {}) {
    const test::PngSpec spec = {
        13, 11, depth, type, interlaced, std::move(palette), std::move(alphas)};
    out.push_back(text_of(test::encode_png(spec, samples.data(), 13 * ((11 * bits + 7) / 8))));
  };
  const std::vector<std::uint32_t> colours(128, 0x102030);
  for (const bool interlaced : {false, true}) {
    add(8, SPNG_COLOR_TYPE_TRUECOLOR, 24, interlaced);
    add(16, SPNG_COLOR_TYPE_TRUECOLOR_ALPHA, 64, interlaced);
    add(2, SPNG_COLOR_TYPE_GRAYSCALE, 2, interlaced);
    add(8, SPNG_COLOR_TYPE_INDEXED, 8, interlaced, colours, {7, 9});
  }
  add(1, SPNG_COLOR_TYPE_GRAYSCALE, 1);
  add(16, SPNG_COLOR_TYPE_GRAYSCALE, 16);
  add(8, SPNG_COLOR_TYPE_GRAYSCALE_ALPHA, 16);
  add(4, SPNG_COLOR_TYPE_INDEXED, 4, false, {0, 0xffffff});
  return out;
}

Seeds jpegs() {
  Seeds out;
  for (const int channels : {1, 3, 4})
    for (const bool progressive : {false, true}) {
      out.push_back(
          text_of(test::encode_jpeg(test::smooth_image(20, 33, channels), 70, progressive)));
      out.push_back(
          text_of(test::encode_jpeg(test::smooth_image(1, 1, channels), 90, progressive)));
    }
  out.push_back(text_of(test::encode_jpeg(test::smooth_image(9, 9, 4), 80, false, true)));
  return out;
}

Seeds cifars() {
  Seeds out;
  for (const bool hundred : {false, true}) {
    const data::CifarForm& form = hundred ? data::cifar100_form() : data::cifar10_form();
    std::string names;
    for (int i = 0; i < form.classes; ++i) names += "c" + std::to_string(i) + "\n";
    const std::string head = {static_cast<char>(hundred), static_cast<char>(names.size() / 256),
                              static_cast<char>(names.size() % 256)};
    for (const int records : {1, 2})
      out.push_back(head + names + test::cifar_records(form, 0, records));
  }
  return out;
}

// A byte that chooses the model's channels, then the file.
Seeds arrays() {
  Seeds out;
  const auto add = [&](int channels, const std::string& descr, const std::string& order,
                       const std::string& shape, std::size_t bytes) {
    const std::string header =
        "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': (" + shape + "), }\n";
    out.push_back(std::string(1, static_cast<char>(channels)) + "\x93NUMPY\x01" +
                  std::string(1, '\0') + static_cast<char>(header.size()) + std::string(1, '\0') +
                  header + std::string(bytes, '\1'));
  };
  add(0, "|u1", "False", "2, 3", 6);
  add(3, "<u2", "False", "2, 2, 3", 24);
  add(2, "<f4", "True", "2, 2, 1", 16);
  add(1, ">f4", "False", "1, 1, 4", 16);
  return out;
}

Seeds archives() {
  Seeds out;
  for (const auto& entries : std::vector<std::vector<test::TarEntry>>{
           {{"set/one.bin", std::string(700, 'x')}, {"set/names.txt", "a\nb\n"}},
           {{"set/", "", '5'},
            {"set/link", "", '2'},
            {"./set/one.bin", ""},
            {"set/readme", "read me"},
            {"set/names.txt", "a\n"}}}) {
    out.push_back(test::tar_gz(entries));
    out.push_back(test::tar(entries));
  }
  return out;
}

// Words for libFuzzer's -dict, one quoted string a line.
void write_dictionary(const fs::path& path, const std::set<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += '"';
    for (const char c : word)
      text += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    text += "\"\n";
  }
  write_file(path, text);
}

void write_all(const fs::path& folder) {
  const std::map<std::string, Seeds> all = {
      {"safetensors", safetensors()},
      {"manifest", manifests()},
      {"toml", tomls()},
      {"study", studies()},
      {"deepspeed", deepspeeds()},
      {"model_json", models_as_json()},
      {"program", programs()},
      {"schedule", schedules()},
      {"trace", traces()},
      {"png", pngs()},
      {"jpeg", jpegs()},
      {"cifar", cifars()},
      {"npy", arrays()},
      {"archive", archives()},
      {"syntax",
       {"synthetic:64x64x3,10", "cifar10:a/b", "folder:x", "npy:x", "top1=0.94", "loss=1e-3",
        "backbone", "12", "every=2", "full", "none", "[1, 2.5, \"x\"]", "0x1f",
        "1979-05-27T07:32:00Z"}}};
  for (const auto& [target, seeds] : all)
    for (std::size_t i = 0; i < seeds.size(); ++i)
      test::write_bytes(folder / target / std::to_string(i), seeds[i]);

  std::set<std::string> keys = {"synthetic:", "cifar10:", "folder:", "every=", "top1=",     "nan",
                                "inf",        "true",     "0x",      "\"\"\"", "1979-05-27"},
                        models;
  for (const config::Field& field : config::fields()) {
    keys.insert({"[" + std::string(field.section) + "]", std::string(field.key) + " = ",
                 field.name() + "="});
    if (field.section == "model") models.insert("\"" + std::string(field.key) + "\":");
  }
  write_dictionary(folder / "toml.dict", keys);
  write_dictionary(folder / "model_json.dict", models);
  keys.insert({"[[part]]", "[[part.technique]]", "[[claim]]", "[launch]", "kind = ", "grid = { ",
               "launch.throttle", "launch.hosts", "strong", "weak"});
  write_dictionary(folder / "study.dict", keys);
  write_dictionary(folder / "deepspeed.dict",
                   {"\"train_batch_size\":", "\"train_micro_batch_size_per_gpu\":",
                    "\"gradient_accumulation_steps\":", "\"optimizer\":", "\"scheduler\":",
                    "\"params\":", "\"type\":", "\"enabled\":", "\"zero_optimization\":",
                    "\"stage\":", "\"auto\"", "//", "/*", "*/", "null", "true"});
  write_dictionary(folder / "schedule.dict",
                   {"schedule ", "stages=", "micros=", "rank ", "F0.0", "B0.0", "W0.0", "#"});
  write_dictionary(folder / "trace.dict",
                   {"\"traceEvents\":", "\"otherData\":", "\"blocks\":", "\"args\":", "\"stage\":",
                    "\"micro\":", "\"work\":", "\"pid\":", "\"ts\":", "\"dur\":", "\"turn\""});
  write_dictionary(folder / "safetensors.dict", {"\"dtype\":", "\"shape\":", "\"data_offsets\":",
                                                 "\"__metadata__\":", "\"F32\"", "\"BOOL\""});
  write_dictionary(folder / "manifest.dict",
                   {"\"dtype\":", "\"shape\":", "\"shards\":", "\"offset\":", "\"extent\":",
                    "\"file\":", "\"key\":", "\"xxh3\":", "\"state\":", "\"tensors\":",
                    "\"progress\":", "\"format\":", "rank-", ".safetensors"});
}

}  // namespace
}  // namespace tessera::fuzz

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_seeds DIR\n");
    return 2;
  }
  tessera::fuzz::write_all(argv[1]);
  return 0;
}
